import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((200, 100), (100, 200), 'stretch')
NEVER = -50.0
SIGMOID, SOFTMAX = 'rtdetr', 'detr'


def logit(score):
    return np.log(score / (1 - score))


def outputs(*queries, classes=3, count=6, dtype=np.float32):
    """Each (cx, cy, w, h, {class: logit}); the rest of `count` is empty."""
    logits, boxes = np.full((1, count, classes), NEVER), np.zeros((1, count, 4))
    for index, (*box, scores) in enumerate(queries):
        boxes[0, index] = box
        for label, value in scores.items():
            logits[0, index, label] = value
    return {'logits': logits.astype(dtype), 'pred_boxes': boxes.astype(dtype)}


def decode(tensors, family=SIGMOID, letterbox=WHOLE, *, score_threshold=0.25, max_detections=100):
    return open_as(family, 'logits (1, ?, ?); pred_boxes (1, ?, 4)')(
        tensors,
        letterbox,
        Thresholds(score=score_threshold, iou=0.45, max_detections=max_detections),
    )


def test_boxes_are_of_the_input_and_come_back_in_image_pixels():
    tensors = outputs((0.5, 0.5, 0.5, 0.5, {1: 3.0}))
    assert decode(tensors).xyxy.tolist() == [[50, 25, 150, 75]]
    half_size = Letterbox.fit((200, 200), (100, 200), 'letterbox')
    assert decode(tensors, letterbox=half_size).xyxy.tolist() == [[0, 50, 200, 150]]


def test_sigmoid_scores_are_independent_per_class():
    found = decode(
        outputs(
            (0.5, 0.5, 0.5, 0.5, {0: logit(0.5), 2: logit(0.75)}),
            (0.2, 0.2, 0.1, 0.1, {1: logit(0.6)}),
        )
    )
    assert found.scores.tolist() == pytest.approx([0.75, 0.6, 0.5])
    assert found.labels.tolist() == [2, 1, 0]
    assert found.xyxy[0].tolist() == found.xyxy[2].tolist()


def test_the_no_object_logit_is_never_detected():
    tensors = outputs((0.5, 0.5, 0.5, 0.5, {1: logit(0.5), 2: logit(0.75)}))
    found = open_as('rfdetr', tensors, class_count=2)(tensors, WHOLE, Thresholds())
    assert (found.labels.tolist(), found.scores.tolist()) == ([1], pytest.approx([0.5]))


def test_softmax_scores_are_of_the_best_class_among_all_and_no_object():
    found = decode(
        outputs(
            (0.5, 0.5, 0.5, 0.5, {0: np.log(3), 1: np.log(6), 2: 0.0}),
            (0.2, 0.2, 0.1, 0.1, {0: 0.0, 1: 0.0, 2: 1.0}),
        ),
        SOFTMAX,
        score_threshold=0.25,
    )
    assert found.scores.tolist() == pytest.approx([0.6])
    assert found.labels.tolist() == [1]


def test_boxes_and_scores_may_come_in_one_output():
    rows = np.zeros((1, 4, 4 + 3), np.float32)
    rows[0, 2] = 0.5, 0.5, 0.5, 0.5, 0.1, 0.0, 0.75
    found = open_as('rtdetr', 'output0 (1, ?, 7)')(
        {'output0': rows}, WHOLE, Thresholds(score=0.25, iou=0.45, max_detections=9)
    )
    assert (found.xyxy.tolist(), found.labels.tolist()) == ([[50, 25, 150, 75]], [2])
    assert found.scores.tolist() == [0.75]


def test_logits_too_large_for_exp_give_finite_scores():
    assert decode(outputs((0.5, 0.5, 0.5, 0.5, {0: 1000.0}), dtype=np.float32)).scores == [1.0]
    found = decode(outputs((0.5, 0.5, 0.5, 0.5, {0: 1000.0})), SOFTMAX)
    assert found.scores == [1.0]


def test_softmax_query_gives_only_best_class_at_threshold_zero():
    box = (0.5, 0.5, 0.5, 0.5)
    found = decode(
        outputs((*box, {1: 3.0}), (*box, {0: 2.0}), count=2),
        SOFTMAX,
        score_threshold=0.0,
    )
    assert found.labels.tolist() == [1, 0]
    tied = decode(
        outputs(*[(*box, {1: 3.0})] * 5, count=5, classes=4),
        SOFTMAX,
        score_threshold=0.0,
    )
    assert tied.labels.tolist() == [1] * 5


def test_a_query_is_found_though_no_object_is_likelier():
    """As transformers does: the best class counts, if it is above the threshold."""
    found = decode(outputs((0.5, 0.5, 0.5, 0.5, {0: np.log(2), 2: np.log(3)})), SOFTMAX)
    assert found.scores.tolist() == pytest.approx([0.4])


def test_overlapping_queries_are_not_suppressed():
    assert len(decode(outputs(*[(0.5, 0.5, 0.5, 0.5, {0: 2.0})] * 2))) == 2
