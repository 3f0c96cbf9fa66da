import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((200, 200), (200, 200), 'stretch')


def head(*anchors, classes=3, count=20, dtype=np.float32) -> np.ndarray:
    """Each (cx, cy, w, h, {label: score}); the rest of `count` is empty."""
    output = np.zeros((1, 4 + classes, count), dtype)
    for index, (*box, scores) in enumerate(anchors):
        output[0, :4, index] = box
        for label, score in scores.items():
            output[0, 4 + label, index] = score
    return output


def decode(output, letterbox=WHOLE, *, score_threshold=0.25, max_detections=100):
    return open_as('yolov8', {'output0': output}, hw=(200, 200))(
        {'output0': output},
        letterbox,
        Thresholds(score=score_threshold, iou=0.45, max_detections=max_detections),
    )


def test_boxes_come_back_in_image_pixels():
    letterbox = Letterbox.fit((1280, 960), (640, 640), 'letterbox')
    found = decode(head((50, 120, 20, 10, {1: 0.9})), letterbox)
    assert found.xyxy.tolist() == [[80, 70, 120, 90]]
    assert found.labels.tolist() == [1]
    assert found.scores.tolist() == pytest.approx([0.9])


def test_the_best_class_of_an_anchor_counts_and_the_first_of_equals():
    found = decode(head((50, 50, 20, 20, {0: 0.3, 2: 0.7}), (150, 50, 20, 20, {1: 0.5, 2: 0.5})))
    assert found.labels.tolist() == [2, 1]
    assert found.scores.tolist() == pytest.approx([0.7, 0.5])


def test_either_order_of_the_axes_is_the_same():
    rng = np.random.default_rng(0)
    output = np.concatenate(
        [rng.uniform(20, 180, (1, 4, 300)), rng.uniform(0, 1, (1, 3, 300))], axis=1
    ).astype(np.float32)
    first = decode(output)
    last = decode(np.ascontiguousarray(output.transpose(0, 2, 1)))
    assert len(first) > 10
    assert np.array_equal(first.xyxy, last.xyxy)
    assert np.array_equal(first.scores, last.scores)
    assert np.array_equal(first.labels, last.labels)


def test_overlapping_boxes_of_one_class_are_suppressed():
    found = decode(
        head((50, 50, 20, 20, {0: 0.6}), (51, 50, 20, 20, {0: 0.8}), (50, 51, 20, 20, {1: 0.7}))
    )
    assert found.labels.tolist() == [0, 1]
    assert found.scores.tolist() == pytest.approx([0.8, 0.7])


def test_a_nan_beside_the_best_class_makes_the_anchor_none():
    output = head((50, 50, 20, 20, {0: 0.9, 1: np.nan}))
    assert len(decode(output)) == 0


def test_outputs_are_not_modified():
    output = head((50, 50, 20, 20, {0: 0.9}))
    before = output.copy()
    found = decode(output)
    assert np.array_equal(output, before)
    assert not np.shares_memory(found.xyxy, output)


def test_a_score_equal_to_the_threshold_passes():
    output = head((50, 50, 20, 20, {0: 0.5}))
    assert len(decode(output, score_threshold=0.5)) == 1
    assert len(decode(output, score_threshold=0.501)) == 0
