"""NMS on the CPU in place of an operator that was cut off."""

import json

import numpy as np
import pytest

from trt_ros.decode.choice import choose_decoder
from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import NetworkDescription
from trt_ros.tensors import CUT_NMS, TensorSpec
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

ASKED = {
    'operator': 'NonMaxSuppression',
    'iou_threshold': 0.5,
    'score_threshold': None,
    'normalized': False,
    'per_class': None,
    'in_all': None,
    'background': -1,
}


def detect(
    boxes,
    scores,
    *,
    score_threshold=0.25,
    iou=0.99,
    max_detections=100,
    asked_score=None,
    choice=None,
    **asked,
):
    boxes = np.array(boxes, np.float32).reshape(1, -1, 4)
    scores = np.array(scores, np.float32).reshape(1, -1, 2)
    specs = tuple(
        TensorSpec(name, (1, -1, each.shape[2]), 'float32', 'output')
        for name, each in (('nms_boxes', boxes), ('nms_scores', scores))
    )
    said = json.dumps({**ASKED, **asked, 'score_threshold': asked_score})
    decoder = choose_decoder('auto', NetworkDescription((), specs, {CUT_NMS: said}, (64, 64)))
    found = decoder(
        {'nms_boxes': boxes, 'nms_scores': scores},
        Letterbox.fit((64, 64), (64, 64), 'letterbox'),
        ClassThresholds.of(Thresholds(score_threshold, iou, max_detections, **(choice or {})), ()),
    )
    return [(*map(round, xyxy.tolist()), label) for xyxy, label in zip(found.xyxy, found.labels)]


A, B, FAR = (10, 10, 30, 30), (12, 10, 32, 30), (40, 40, 60, 60)


def test_nms_uses_the_networks_iou_threshold_per_class_and_any_two_opposite_corners():
    assert detect([A, B], [(0.9, 0), (0.8, 0)]) == [(*A, 0)]
    assert detect([A, B], [(0.9, 0), (0, 0.8)]) == [(*A, 0), (*B, 1)]
    assert detect([A, B], [(0.9, 0), (0.8, 0)], iou_threshold=0.9) == [(*A, 0), (*B, 0)]
    assert detect([(30, 10, 10, 30)], [(0.9, 0)]) == [(*A, 0)]


def test_score_thresholds_and_limits_are_those_of_the_network_and_of_the_caller():
    boxes, scores = [A, FAR], [(0.9, 0), (0.5, 0)]
    assert detect(boxes, scores, score_threshold=0.5) == [(*A, 0), (*FAR, 0)]
    assert detect(boxes, scores, score_threshold=0.6) == [(*A, 0)]
    assert detect(boxes, scores, asked_score=0.5) == [(*A, 0)]
    boxes, scores = [A, FAR, FAR], [(0.9, 0), (0.8, 0), (0, 0.7)]
    assert detect(boxes, scores, per_class=1) == [(*A, 0), (*FAR, 1)]
    assert detect(boxes, scores, in_all=2) == [(*A, 0), (*FAR, 0)]
    assert detect(boxes, scores, max_detections=1) == [(*A, 0)]


def test_boxes_outside_the_image_suppress_but_do_not_count_towards_max_detections():
    beside, reaching = (-40, 0, -1, 40), (-40, 0, 1, 40)
    assert detect([beside, reaching], [(0.9, 0), (0.8, 0)]) == []
    beside = [(-40 - 10 * index, 0, -31 - 10 * index, 9) for index in range(9)]
    boxes, scores = [*beside, A, FAR], [*[(0.9, 0)] * 9, (0.8, 0), (0.7, 0)]
    assert detect(boxes, scores, max_detections=2) == [(*A, 0), (*FAR, 0)]


def test_normalized_boxes_and_a_background():
    assert detect([(0.25, 0.25, 0.5, 0.5)], [(0.9, 0.8)], normalized=True, background=0) == [
        (16, 16, 32, 32, 1)
    ]


def test_mismatched_boxes_and_scores_are_refused_and_non_finite_values_dropped():
    with pytest.raises(TensorMismatchError, match='do not fit the decoder'):
        detect([A, B], [(0.9, 0)])
    nan = float('nan')
    assert detect([A, (nan, 0, 9, 9), FAR], [(nan, 0), (0.9, 0), (0.8, 0)]) == [(*FAR, 0)]


def test_classes_are_chosen_before_the_nms_of_the_network():
    boxes, scores = [A, B, FAR], [(0.9, 0), (0, 0.8), (0.7, 0)]
    assert detect(boxes, scores, choice={'class_agnostic': True}) == [(*A, 0), (*FAR, 0)]
    assert detect(boxes, scores, choice={'classes': ['1']}) == [(*B, 1)]
    chosen = {'classes': ['1'], 'class_agnostic': True}
    assert detect(boxes, scores, choice=chosen) == [(*B, 1)]
    found = detect(boxes, scores, choice={'class_scores': {'0': 0.8}}, max_detections=2)
    assert found == [(*A, 0), (*B, 1)]
    # The IoU threshold of the network stays.
    one_of_each = [(0.9, 0), (0, 0.8)]
    found = detect(
        [A, B], one_of_each, iou=0.1, iou_threshold=0.9, choice={'class_agnostic': True}
    )
    assert found == [(*A, 0), (*B, 1)]
