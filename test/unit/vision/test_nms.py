import cv2
import numpy as np
import pytest

from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes, iou, non_max_suppression
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((640, 480), (480, 640), 'stretch')


def crowd(count, *, classes=3, seed=0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes around a few places, so that many overlap; scores all differ."""
    rng = np.random.default_rng(seed)
    center = rng.uniform(50, 400, (12, 2))[rng.integers(0, 12, count)]
    center += rng.normal(0, 12, (count, 2))
    half = rng.uniform(8, 40, (count, 2))
    scores = rng.permutation(count).astype(np.float32) / max(count, 1)
    xyxy = np.hstack([center - half, center + half]).astype(np.float32)
    return xyxy, scores, rng.integers(0, classes, count)


def boxes(*rows) -> np.ndarray:
    return np.array(rows, np.float32).reshape(-1, 4)


def suppress(xyxy, scores, labels=None, *, iou_threshold=0.5, max_detections=100) -> list[int]:
    labels = np.zeros(len(scores), int) if labels is None else np.array(labels)
    return non_max_suppression(
        xyxy,
        np.array(scores, np.float32),
        labels,
        iou_threshold=iou_threshold,
        max_detections=max_detections,
    ).tolist()


def test_equal_scores_keep_the_earlier_box_and_overlap_at_the_threshold_both_unclipped():
    assert suppress(boxes(*[(0, 0, 10, 10)] * 300), [0.5] * 300) == [0]
    pair = boxes((0, 0, 10, 10), (0, 0, 10, 5))
    assert suppress(pair, [0.9, 0.8], iou_threshold=0.5) == [0, 1]
    assert suppress(pair, [0.9, 0.8], iou_threshold=0.49) == [0]
    # Clipped, these two are the same; whole, they overlap by a third.
    found = finish(boxes((-100, 0, 10, 10), (-10, 0, 10, 10)), [0.9, 0.8])
    assert len(found) == 2


def test_at_most_max_detections_are_chosen_and_none_of_no_candidates():
    xyxy = boxes(*[(20 * i, 0, 20 * i + 10, 10) for i in range(500)])
    scores = np.linspace(0.1, 0.9, 500)
    assert suppress(xyxy, scores, max_detections=200) == list(range(499, 299, -1))
    assert suppress(xyxy, scores, max_detections=0) == []
    found = finish(boxes(), [])
    assert len(found) == 0
    assert found.xyxy.shape == (0, 4)
    assert (found.xyxy.dtype, found.scores.dtype, found.labels.dtype) == (
        np.float32,
        np.float32,
        np.int32,
    )


@pytest.mark.parametrize('iou_threshold', [0.1, 0.45, 0.9])
@pytest.mark.parametrize('count', [1, 20, 127, 129, 900])
def test_each_class_is_what_opencv_finds(count, iou_threshold):
    xyxy, scores, labels = crowd(count, seed=count)
    ours = suppress(xyxy, scores, labels, iou_threshold=iou_threshold, max_detections=count)
    assert (np.diff(scores[ours]) < 0).all()
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        xywh = np.hstack([xyxy[members, :2], xyxy[members, 2:] - xyxy[members, :2]])
        theirs = cv2.dnn.NMSBoxes(
            xywh.tolist(), (scores[members] + 1).tolist(), 0.0, iou_threshold
        )
        assert [i for i in ours if labels[i] == label] == members[np.ravel(theirs)].tolist()


def test_iou_by_hand_and_of_empty_boxes():
    one = np.array([0, 0, 10, 10])
    many = boxes((0, 0, 10, 10), (5, 0, 15, 10), (0, 0, 5, 5), (10, 0, 20, 10), (90, 90, 99, 99))
    assert iou(one, many).tolist() == pytest.approx([1, 1 / 3, 1 / 4, 0, 0])
    assert iou(many[:2, None], many).shape == (2, 5)
    assert iou(one, boxes()).shape == (0,)
    assert iou(np.zeros(4), boxes((0, 0, 0, 0), (3, 3, 3, 9))).tolist() == [0, 0]


# The last step of every decoder


def finish(xyxy, scores, labels=None, *, iou_threshold=0.5):
    labels = np.zeros(len(scores), int) if labels is None else np.array(labels)
    thresholds = Thresholds(0.0, iou_threshold, 100)
    return choose_boxes(xyxy, np.array(scores, np.float32), labels, WHOLE, thresholds)[1]


@pytest.mark.parametrize(
    'bad',
    [
        (5, 5, 5, 9),
        (5, 5, 9, 5),
        (9, 5, 5, 9),
        (-20, 5, -3, 9),
        (5, 480, 9, 500),
        (np.nan, 5, 9, 9),
        (5, 5, np.inf, 9),
        (-np.inf, -np.inf, np.inf, np.inf),
    ],
)
def test_a_degenerate_box_is_dropped_and_suppresses_none(bad):
    good = (4, 4, 10, 10)
    found = finish(boxes(bad, good), [0.9, 0.8], iou_threshold=0.0)
    assert found.xyxy.tolist() == [list(good)]
