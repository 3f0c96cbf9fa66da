"""YOLOv7 and YOLOX as their own repositories build and export them, without weights."""

from functools import partial
import sys

import numpy as np
import pytest

from trt_ros.decode.trial import pictures
from trt_ros.families.yolo import YOLOV5, YOLOX
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZE = 192
ASKED = Thresholds(score=0.3, iou=0.5, max_detections=300)
THRESHOLDS = (ASKED.score, ASKED.iou)


def package(name, how):
    return pytest.importorskip(name, reason=f'its exporter is under test: {how}')


def shown(torch, family, picture):
    """What the network is shown of the picture."""
    return torch.from_numpy(Preprocess((SIZE, SIZE), **family.preprocess)(picture)[0])


@pytest.fixture
def yolov7(torch, settle, spread, picture):
    """Build one of as few layers as have its three grids; of so many classes."""
    models = package('yolov7.models.yolo', 'pip install --no-deps yolov7detect')
    grids = [[10, 14, 16, 30, 33, 23], [30, 61, 62, 45, 59, 119], [80, 70, 90, 150, 160, 120]]

    def build(classes):
        torch.manual_seed(0)
        model = models.Model(
            {
                'nc': classes,
                'depth_multiple': 1.0,
                'width_multiple': 1.0,
                'anchors': grids,
                'backbone': [[-1, 1, 'Conv', [width, 3, 2]] for width in (8, 16, 16, 16, 16)],
                'head': [[[2, 3, 4], 1, 'IDetect', ['nc', 'anchors']]],
            }
        ).eval()
        image = shown(torch, YOLOV5, picture)
        settle(model, lambda: model(image))
        with torch.no_grad():
            model.fuse()
        for layer in model.model[-1].m:
            spread(layer, lambda: model(image), -2.5, 1.5)
        return model, image

    return build


@pytest.mark.parametrize('classes', [5, 1])
def test_yolov7(yolov7, export, picture, opened, outputs_of, assert_same, classes):
    """As its export.py does with --grid; of one class its score is the objectness alone."""
    from yolov7.utils import general

    model, image = yolov7(classes)
    model.model[-1].concat = True
    path = export(model, (image,), ['images'], ['output'])
    pipeline = opened(path, 'yolov5')
    assert pipeline.decoder.class_count == classes
    found = pipeline.infer(picture, ASKED)
    (outputs,) = outputs_of(path, pipeline, picture).values()
    own = general.non_max_suppression(outputs, *THRESHOLDS)[0]
    boxes = general.scale_coords((SIZE, SIZE), own[:, :4], (picture.height, picture.width))
    assert_same(
        found, boxes.numpy(), own[:, 4].numpy(), own[:, 5].numpy().astype(int), classes=classes
    )


def test_yolov7_with_the_nms_of_tensorrt(
    torch, yolov7, export, picture, opened, outputs_of, assert_same, tmp_path
):
    """As with --end2end --grid; cut off, as ONNX Runtime has no such operator."""
    from torchvision.ops import batched_nms
    from yolov7.models.experimental import End2End
    from yolov7.utils import general

    from trt_ros.engine.builder.onnx_cut_nms import write_cut

    model, image = yolov7(5)
    whole = End2End(model, 100, ASKED.iou, ASKED.score, None, None, 5)
    path = export(
        whole, (image,), ['images'], ['num_dets', 'det_boxes', 'det_scores', 'det_classes']
    )
    cut = tmp_path / 'cut.onnx'
    write_cut(path, cut)
    pipeline = opened(cut, 'efficient_nms')
    found = pipeline.infer(picture, ASKED)

    model.model[-1].concat, model.model[-1].end2end = True, False
    path = export(model, (image,), ['images'], ['output'])
    rows = outputs_of(path, pipeline, picture)['output'][0]
    scores = rows[:, 5:] * rows[:, 4:5]
    boxes = general.xywh2xyxy(rows[:, :4])
    row, label = torch.nonzero(scores > ASKED.score, as_tuple=True)
    best = batched_nms(boxes[row], scores[row, label], label, ASKED.iou)[:100]
    own = general.scale_coords((SIZE, SIZE), boxes[row[best]], (picture.height, picture.width))
    assert_same(found, own.numpy(), scores[row, label][best].numpy(), label[best].numpy())


EXPERIMENT = f"""
from yolox.exp import Exp as Base

class Exp(Base):
    def __init__(self):
        super().__init__()
        self.depth, self.width, self.num_classes = 0.33, 0.25, 5
        self.test_size = ({SIZE}, {SIZE})
"""


def test_yolox(
    torch, settle, spread, picture, opened, outputs_of, assert_same, tmp_path, monkeypatch
):
    exp = package('yolox.exp', 'pip install --no-deps --no-build-isolation yolox')
    from yolox.tools import export_onnx
    from yolox.utils import postprocess

    torch.manual_seed(0)
    experiment, weights, path = (
        tmp_path / name for name in ('experiment.py', 'weights.pth', 'yolox.onnx')
    )
    experiment.write_text(EXPERIMENT)
    model = exp.get_exp(str(experiment), None).get_model().eval()
    # A trial run shows pictures whose boxes must be logarithms as well.
    shown_to_it = [picture, *map(Frame.from_pixels, pictures((SIZE, SIZE)))]
    seen = torch.cat([shown(torch, YOLOX, each) for each in shown_to_it])
    settle(model, lambda: model(seen))
    for layers, mean in (
        (model.head.cls_preds, 0.0),
        (model.head.obj_preds, -1.0),
        (model.head.reg_preds, 0.5),
    ):
        for layer in layers:
            spread(layer, lambda: model(seen), mean, 1.0)
    torch.save({'model': model.state_dict()}, weights)
    # It calls what newer torch has under this name only.
    monkeypatch.setattr(
        torch.onnx, '_export', partial(torch.onnx.export, dynamo=False), raising=False
    )
    flags = '-f', experiment, '-c', weights, '--output-name', path, '--no-onnxsim'
    monkeypatch.setattr(sys, 'argv', ['export_onnx', *map(str, flags)])
    export_onnx.main()

    pipeline = opened(path, 'yolox')
    assert pipeline.decoder.class_count == 5
    found = pipeline.infer(picture, ASKED)
    (raw,) = outputs_of(path, pipeline, picture).values()
    outputs = model.head.decode_outputs(raw, torch.float32)
    own = postprocess(outputs, 5, *THRESHOLDS)[0].numpy()
    # As its demo does.
    boxes = own[:, :4] / min(SIZE / picture.height, SIZE / picture.width)
    boxes = boxes.clip(0, np.tile([picture.width, picture.height], 2))
    assert_same(found, boxes, own[:, 4] * own[:, 5], own[:, 6].astype(int))
