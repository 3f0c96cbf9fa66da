"""YOLOv8 to YOLO26 and RT-DETR as Ultralytics builds and exports them, without weights."""

from types import SimpleNamespace

import numpy as np
import pytest

from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZE = 192
THRESHOLD, IOU = 0.3, 0.5


def shake(torch, settle, spread, model, pixels):
    """Spread the scores so that some of each kind pass, and the boxes."""

    def run():
        model(torch.from_numpy(pixels))

    settle(model, run)
    head = model.model[-1]
    if hasattr(head, 'dec_score_head'):
        spread(head.dec_score_head[-1], run, -4.0, 1.5)
        spread(head.dec_bbox_head[-1].layers[-1], run, 0.0, 0.5)
        return
    for prefix in ('', 'one2one_'):
        for scores, boxes in zip(
            getattr(head, prefix + 'cv3', ()), getattr(head, prefix + 'cv2', ())
        ):
            spread(scores[-1], run, -7.0, 2.0)
            spread(boxes[-1], run, 1.0, 1.0)


def own_boxes(outputs, picture, is_end_to_end):
    from ultralytics.utils import nms, ops

    found = nms.non_max_suppression(outputs, THRESHOLD, IOU, max_det=300, end2end=is_end_to_end)[0]
    boxes = ops.scale_boxes((SIZE, SIZE), found[:, :4], (picture.height, picture.width))
    return boxes.numpy(), found[:, 4].numpy(), found[:, 5].numpy().astype(int)


def own_boxes_of_rtdetr(outputs, picture):
    from ultralytics.models.rtdetr.predict import RTDETRPredictor

    predictor = SimpleNamespace(
        args=SimpleNamespace(conf=THRESHOLD, classes=None, max_det=300),
        batch=[['picture']],
        model=SimpleNamespace(names={index: str(index) for index in range(80)}),
    )
    pixels = np.zeros((picture.height, picture.width, 3), np.uint8)
    found = RTDETRPredictor.postprocess(predictor, outputs, None, [pixels])[0].boxes
    limit = np.tile([picture.width, picture.height], 2)
    return (found.xyxy.numpy().clip(0, limit), found.conf.numpy(), found.cls.numpy().astype(int))


@pytest.mark.parametrize(
    ('network', 'options', 'family'),
    [
        ('yolov5n', {}, 'yolov8'),  # Ultralytics builds it without objectness.
        ('yolov8n', {}, 'yolov8'),
        ('yolov8n-p6', {}, 'yolov8'),
        ('yolov9t', {}, 'yolov8'),
        ('yolo11n', {}, 'yolov8'),
        ('yolo12n', {}, 'yolov8'),
        ('yolov10n', {'end2end': True}, 'yolov10'),
        ('yolo26n', {}, 'yolov8'),
        ('yolo26n', {'end2end': True}, 'yolov10'),
        ('yolo11n', {'nms': True, 'conf': THRESHOLD, 'iou': IOU}, 'yolov10'),
        ('rtdetr-l', {}, 'rtdetr'),
    ],
)
def test_decoder_equals_postprocessing_of_exporter(
    torch,
    ultralytics,
    settle,
    spread,
    picture,
    opened,
    outputs_of,
    assert_same,
    network,
    options,
    family,
):
    torch.manual_seed(0)
    build = ultralytics.RTDETR if 'rtdetr' in network else ultralytics.YOLO
    model = build(f'{network}.yaml')
    shake(torch, settle, spread, model.model, Preprocess((SIZE, SIZE))(picture)[0])
    path = model.export(format='onnx', imgsz=SIZE, simplify=False, opset=17, **options)
    pipeline = opened(path, family)
    assert len(pipeline.class_names) == 80

    found = pipeline.infer(picture, Thresholds(score=THRESHOLD, iou=IOU, max_detections=300))

    outputs = outputs_of(path, pipeline, picture)['output0']
    if family == 'rtdetr':
        own = own_boxes_of_rtdetr(outputs, picture)
    else:
        own = own_boxes(outputs, picture, family == 'yolov10')
    assert_same(found, *own)
