"""Raw grids and boxes with masks of YOLOv5 as its repository exports them, without weights."""

from pathlib import Path
import warnings

import pytest

from trt_ros.families.registry import SEGMENTERS
from trt_ros.families.yolo import YOLOV5
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZE = 192
ASKED = Thresholds(score=0.3, iou=0.5, max_detections=300)


@pytest.fixture
def yolov5(torch, ultralytics):
    """Its packaging needs no more than what it imports: pip install --no-deps yolov5."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return pytest.importorskip('yolov5.export', reason='pip install --no-deps yolov5')


def built(torch, yolov5, settle, spread, picture, name, kind):
    from yolov5.models import yolo

    torch.manual_seed(0)
    folder = Path(yolov5.__file__).parent / 'models'
    model = getattr(yolo, kind)(str(folder / f'{name}.yaml')).eval()
    image = torch.from_numpy(Preprocess((SIZE, SIZE), **YOLOV5.preprocess)(picture)[0])
    model.requires_grad_(False)
    settle(model, lambda: model(image))
    for layer in model.model[-1].m:
        spread(layer, lambda: model(image), -3.0, 1.5)
    return model, image


@pytest.mark.slow
def test_raw_grids(torch, yolov5, settle, spread, picture, assert_same, export):
    from yolov5.utils import general

    model, image = built(torch, yolov5, settle, spread, picture, 'yolov5n', 'DetectionModel')

    class Raw(torch.nn.Module):
        def forward(self, x):
            return tuple(model(x)[1])

    path = export(Raw(), (image,), ['images'], ['p3', 'p4', 'p5'])
    pipeline = Pipeline.open(
        LabeledOptions(str(path), backend='onnxruntime', decoder='yolov5_raw', labels=('coco',))
    )
    found = pipeline.infer(picture, ASKED)
    with torch.no_grad():
        decoded = model(image)[0]
    own = general.non_max_suppression(decoded, ASKED.score, ASKED.iou, max_det=300)[0]
    boxes = general.scale_boxes((SIZE, SIZE), own[:, :4], (picture.height, picture.width))
    assert len(own) > 5
    assert_same(found, boxes.numpy(), own[:, 4].numpy(), own[:, 5].numpy().astype(int))
    pipeline.close()


@pytest.mark.slow
def test_boxes_with_masks(torch, yolov5, settle, spread, picture, assert_same, tmp_path):
    from yolov5.utils import general

    model, image = built(
        torch, yolov5, settle, spread, picture, 'segment/yolov5n-seg', 'SegmentationModel'
    )
    model.model[-1].export = True
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # The exporter's, about itself.
        path, _ = yolov5.export_onnx(
            model, image, tmp_path / 'model.pt', 17, False, simplify=False
        )
    pipeline = Pipeline.open(LabeledOptions(str(path), backend='onnxruntime'), families=SEGMENTERS)
    assert pipeline.decoder.name == 'yolov5_seg'
    found = pipeline.infer(picture, ASKED)
    pixels, _ = pipeline.preprocess(picture)
    outputs = OnnxRuntimeRunner.open(path).infer({'images': pixels})
    rows = torch.from_numpy(outputs['output0'].copy())
    own = general.non_max_suppression(rows, ASKED.score, ASKED.iou, max_det=300, nm=32)[0]
    boxes = general.scale_boxes((SIZE, SIZE), own[:, :4].clone(), (picture.height, picture.width))
    assert len(own) > 5
    assert_same(found.detections, boxes.numpy(), own[:, 4].numpy(), own[:, 5].numpy().astype(int))
    pipeline.close()
