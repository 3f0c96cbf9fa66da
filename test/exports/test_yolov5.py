"""YOLOv5 as its repository exports it, whole, as raw grids and with masks, without weights."""

from pathlib import Path

import pytest

from trt_ros.families.registry import SEGMENTERS
from trt_ros.families.yolo import YOLOV5
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZE = 192
ASKED = Thresholds(score=0.3, iou=0.5, max_detections=300)


@pytest.fixture
def yolov5(torch, ultralytics):
    """Its packaging needs no more than what it imports: pip install --no-deps yolov5."""
    return pytest.importorskip('yolov5.export', reason='pip install --no-deps yolov5')


@pytest.fixture
def build(torch, yolov5, settle, spread, picture):
    """Build a network by the name of its file; give it and its input."""
    from yolov5.models import yolo

    def build(name, kind='DetectionModel'):
        torch.manual_seed(0)
        folder = Path(yolov5.__file__).parent / 'models'
        model = getattr(yolo, kind)(str(folder / f'{name}.yaml')).eval()
        image = torch.from_numpy(Preprocess((SIZE, SIZE), **YOLOV5.preprocess)(picture)[0])
        model.requires_grad_(False)
        settle(model, lambda: model(image))
        for layer in model.model[-1].m:
            spread(layer, lambda: model(image), -3.0, 1.5)
        return model, image

    return build


@pytest.fixture
def export_own(yolov5, tmp_path):
    """Export a network as its repository does."""

    def export(model, image, is_dynamic=False):
        model.model[-1].dynamic, model.model[-1].export = is_dynamic, True
        return yolov5.export_onnx(
            model, image, tmp_path / 'model.pt', 17, is_dynamic, simplify=False
        )[0]

    return export


@pytest.fixture
def assert_boxes(torch, picture, assert_same):
    """Compare detections with those of rows of a network, (1, N, 5 + C)."""
    from yolov5.utils import general

    def check(found, rows, **options):
        own = general.non_max_suppression(rows, ASKED.score, ASKED.iou, max_det=300, **options)[0]
        boxes = general.scale_boxes(
            (SIZE, SIZE), own[:, :4].clone(), (picture.height, picture.width)
        )
        assert len(own) > 5
        assert_same(found, boxes.numpy(), own[:, 4].numpy(), own[:, 5].numpy().astype(int))

    return check


@pytest.mark.parametrize(
    ('name', 'is_dynamic'), [('yolov5n', False), ('yolov5n', True), ('hub/yolov5n6', False)]
)
def test_boxes(build, export_own, picture, opened, outputs_of, assert_boxes, name, is_dynamic):
    path = export_own(*build(name), is_dynamic)
    size = (SIZE, SIZE) if is_dynamic else ()
    pipeline = opened(path, 'yolov5', input_size=size)
    assert len(pipeline.class_names) == 80
    (rows,) = outputs_of(path, pipeline, picture).values()
    assert_boxes(pipeline.infer(picture, ASKED), rows)


def test_raw_grids(torch, build, picture, opened, assert_boxes, export):
    model, image = build('yolov5n')

    class Raw(torch.nn.Module):
        def forward(self, x):
            return tuple(model(x)[1])

    path = export(Raw(), (image,), ['images'], ['p3', 'p4', 'p5'])
    pipeline = opened(path, 'yolov5_raw', decoder='yolov5_raw', labels=('coco',))
    found = pipeline.infer(picture, ASKED)
    with torch.no_grad():
        assert_boxes(found, model(image)[0])


def test_boxes_with_masks(build, export_own, picture, opened, outputs_of, assert_boxes):
    path = export_own(*build('segment/yolov5n-seg', 'SegmentationModel'))
    pipeline = opened(path, 'yolov5_seg', SEGMENTERS)
    rows = outputs_of(path, pipeline, picture)['output0']
    assert_boxes(pipeline.infer(picture, ASKED).detections, rows, nm=32)
