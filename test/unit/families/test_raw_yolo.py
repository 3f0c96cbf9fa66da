"""Raw grids of YOLOv5 and YOLOv7."""

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families.yolo import YOLOV5_RAW, YOLOV7_RAW
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

GRIDS = 'p3 (1, 3, 20, 20, 8); p4 (1, 3, 10, 10, 8); p5 (1, 3, 5, 5, 8)'
HW = (160, 160)
WHOLE = Letterbox.fit((160, 160), HW, 'stretch')
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=100)


def logit(probability):
    return np.log(probability / (1 - probability))


def empty(dtype=np.float32, classes=3):
    return {
        name: np.full((1, 3, size, size, 5 + classes), -20, dtype)
        for name, size in (('p3', 20), ('p4', 10), ('p5', 5))
    }


@pytest.fixture
def head(network):
    return open_head(YOLOV5_RAW, network(GRIDS, hw=HW))


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize(
    ('name', 'anchor', 'stride', 'wh'),
    [('p3', 1, 8, (16, 30)), ('p4', 0, 16, (30, 61)), ('p5', 0, 32, (116, 90))],
)
def test_zeros_are_the_anchor_in_the_middle_of_its_cell(head, dtype, name, anchor, stride, wh):
    outputs = empty(dtype)
    outputs[name][0, anchor, 2, 3] = [0, 0, 0, 0, logit(0.9), -20, logit(0.8), -20]
    found = head(outputs, WHOLE, THRESHOLDS)
    center = np.array([3.5, 2.5]) * stride
    corners = [*(center - np.array(wh) / 2), *(center + np.array(wh) / 2)]
    assert found.xyxy[0].tolist() == pytest.approx(np.clip(corners, 0, 160), abs=0.01)
    assert found.scores.tolist() == pytest.approx([0.72], abs=2e-3)
    assert found.labels.tolist() == [1]


def test_values_move_and_scale_the_anchor(head):
    outputs = empty()
    # Sigmoids 0.75, 0.25: moved by 1.0 and 0.0 of a cell; 0.75: (1.5)^2 of the anchor.
    outputs['p4'][0, 1, 4, 5] = [*logit(np.array([0.75, 0.25, 0.75, 0.5])), 9, 9, -9, -9]
    (box,) = head(outputs, WHOLE, THRESHOLDS).xyxy
    x, y, w, h = 6 * 16, 4 * 16, 62 * 2.25, 45
    assert box.tolist() == pytest.approx([x - w / 2, y - h / 2, 160, y + h / 2], abs=1e-3)


def test_boxes_return_to_the_image_and_overlaps_are_suppressed(head):
    outputs = empty()
    for anchor, score in ((0, 0.9), (1, 0.95)):
        outputs['p3'][0, anchor, 10, 10] = [0, 0, 0, 0, logit(score), 9, -9, -9]
    # The second anchor at the size of the first: (2 s)^2 = 10 / 16 and 13 / 30.
    sides = np.sqrt([10 / 16, 13 / 30]) / 2
    outputs['p3'][0, 1, 10, 10, 2:4] = logit(sides)
    letterbox = Letterbox.fit((320, 320), HW, 'letterbox')
    found = head(outputs, letterbox, THRESHOLDS)
    assert found.scores.tolist() == pytest.approx([0.95], abs=1e-3)
    assert found.xyxy[0].tolist() == pytest.approx([158, 155, 178, 181], abs=1e-2)


def test_yolov7_has_anchors_of_its_own_and_no_score_of_an_only_class(network):
    outputs = empty(classes=1)
    outputs['p5'][0, 0, 2, 2] = [0, 0, 0, 0, logit(0.6), logit(0.5)]
    seen = network(GRIDS.replace('8)', '6)'), hw=HW)
    (v5,) = open_head(YOLOV5_RAW, seen)(outputs, WHOLE, THRESHOLDS).scores
    found = open_head(YOLOV7_RAW, seen)(outputs, WHOLE, THRESHOLDS)
    assert (v5, found.scores[0]) == pytest.approx((0.3, 0.6))
    assert found.xyxy[0].tolist() == pytest.approx([80 - 71, 80 - 55, 80 + 71, 80 + 55])


def test_the_outputs_may_come_in_any_order(network):
    p3, p4, p5 = GRIDS.split('; ')
    head = open_head(YOLOV5_RAW, network('; '.join([p5, p3, p4]), hw=HW))
    assert [part.spec.name for part in head.reading.parts] == ['p3', 'p4', 'p5']
    assert head.class_count == 3


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('place', range(6))
def test_non_finite_values_never_become_boxes_outside_the_range(head, value, place):
    outputs = empty()
    outputs['p5'][0, 0, 2, 2] = [0, 0, 0, 0, 9, 9, -9, -9]
    outputs['p5'][0, 0, 2, 2, place] = value
    found = head(outputs, WHOLE, THRESHOLDS)
    assert np.isfinite(found.xyxy).all() and (found.scores <= 1).all()
    is_dropped = np.isnan(value) or (place > 1 and value < 0) or place > 3  # From 4 on: scores.
    assert len(found) == (not is_dropped)
