import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((200, 200), (200, 200), 'stretch')


def head(*anchors, classes=3, count=20, dtype=np.float32) -> np.ndarray:
    """Each (cx, cy, w, h, objectness, {label: score}); the rest of `count` is empty."""
    output = np.zeros((1, count, 5 + classes), dtype)
    for index, (*numbers, scores) in enumerate(anchors):
        output[0, index, :5] = numbers
        for label, score in scores.items():
            output[0, index, 5 + label] = score
    return output


def decode(output, letterbox=WHOLE, *, score_threshold=0.25, max_detections=100, only=False):
    metadata = {} if only else {'stride': '32'}
    return open_as('yolov5', 'output (1, ?, ?)', **metadata)(
        {'output': output},
        letterbox,
        Thresholds(score=score_threshold, iou=0.45, max_detections=max_detections),
    )


def test_boxes_come_back_in_image_pixels():
    letterbox = Letterbox.fit((1280, 960), (640, 640), 'letterbox')
    found = decode(head((50, 120, 20, 10, 1.0, {1: 0.9})), letterbox)
    assert found.xyxy.tolist() == [[80, 70, 120, 90]]
    assert found.labels.tolist() == [1]


def test_the_score_of_an_untrained_only_class_is_objectness():
    """As of YOLOv7; what YOLOv5 exports says so by its metadata, and is multiplied."""
    output = head((50, 50, 20, 20, 0.8, {0: 0.5}), classes=1)
    found = decode(output, only=True)
    assert (found.labels.tolist(), found.scores.tolist()) == ([0], pytest.approx([0.8]))
    assert decode(output).scores.tolist() == pytest.approx([0.4])
    of_three = head((50, 50, 20, 20, 0.8, {0: 0.5}))
    assert decode(of_three, only=True).scores.tolist() == pytest.approx([0.4])


@pytest.mark.parametrize('metadata, score', [({}, 0.8), ({'stride': '32'}, 0.4)])
def test_only_yolov5_is_recognized_by_its_metadata(metadata, score):
    opened = open_as('yolov5', 'output (1, 20, 6)', **metadata)
    found = opened(
        {'output': head((50, 50, 20, 20, 0.8, {0: 0.5}), classes=1)},
        WHOLE,
        Thresholds(score=0.25, iou=0.45, max_detections=9),
    )
    assert found.scores.tolist() == pytest.approx([score])


def test_the_objectness_of_yolov6_is_always_one():
    opened = open_as('yolov5', 'outputs (1, 8400, 6)')
    output = head((50, 50, 20, 20, 1.0, {0: 0.7}), (90, 90, 20, 20, 1.0, {0: 0.1}), classes=1)
    found = opened({'outputs': output}, WHOLE, Thresholds(0.25))
    assert found.scores.tolist() == pytest.approx([0.7])


def test_overlapping_anchors_of_a_cell_are_suppressed():
    same = [(50 + i, 50, 20, 20, 0.5 + i / 10, {0: 1.0}) for i in range(3)]
    assert decode(head(*same)).scores.tolist() == pytest.approx([0.7])
