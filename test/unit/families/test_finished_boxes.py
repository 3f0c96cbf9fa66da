"""Boxes after NMS of MMDetection and of TensorFlow."""

import numpy as np
import pytest

from trt_ros.decode.choice import choose_decoder, open_head
from trt_ros.families.boxes import MMDETECTION, TENSORFLOW
from trt_ros.runtime.heads import names_of
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

TWICE = Letterbox.fit((200, 100), (50, 100), 'letterbox')
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=100)
TF = (
    'detection_boxes (1, 4, 4); detection_classes (1, 4); detection_scores (1, 4); '
    'num_detections (1)'
)


def mmdetection(network, boxes, labels, dtype=np.float32):
    head = open_head(MMDETECTION, network('dets (1, ?, 5); labels (1, ?) int64', hw=(50, 100)))
    outputs = {
        'dets': np.array(boxes, dtype).reshape(1, -1, 5),
        'labels': np.array(labels, np.int64).reshape(1, -1),
    }
    return head(outputs, TWICE, THRESHOLDS)


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
def test_mmdetection_boxes_are_in_input_pixels_and_stay_as_they_are(network, dtype):
    rows = [[10, 5, 20, 15, 0.5], [11, 5, 20, 15, 0.75], [0, 0, 9, 9, 0.125], [0, 0, 0, 0, -1]]
    found = mmdetection(network, rows, [7, 7, 3, -1], dtype)
    assert found.xyxy.tolist() == [[22, 10, 40, 30], [20, 10, 40, 30]]
    assert (found.scores.tolist(), found.labels.tolist()) == ([0.75, 0.5], [7, 7])


def tensorflow(count=4, classes=(3, 1, 2, 1)):
    """The first three boxes are valid."""
    return {
        'detection_boxes': np.array(
            [[[0.1, 0.2, 0.5, 0.6], [0.5, 0, 1, 0.25], [0, 0, 1, 1], [0, 0, 1, 1]]], np.float32
        ),
        'detection_scores': np.array([[0.5, 0.75, 0.125, 0.5]], np.float32),
        'detection_classes': np.array([classes], np.float32),
        'num_detections': np.array([count], np.float32),
    }


def test_tensorflow_boxes_begin_with_y_and_classes_with_1(network):
    found = open_head(TENSORFLOW, network(TF, hw=(50, 100)))(tensorflow(3), TWICE, THRESHOLDS)
    assert found.xyxy.ravel().tolist() == pytest.approx([0, 50, 50, 100, 40, 10, 120, 50])
    assert (found.scores.tolist(), found.labels.tolist()) == ([0.75, 0.5], [0, 2])
    assert found.labels.dtype == np.int32


@pytest.mark.parametrize(('count', 'labels'), [(np.nan, []), (-np.inf, []), (np.inf, [0, 2, 0])])
def test_a_number_of_boxes_that_is_no_number_is_no_error(network, count, labels):
    found = open_head(TENSORFLOW, network(TF, hw=(50, 100)))(tensorflow(count), TWICE, THRESHOLDS)
    assert found.labels.tolist() == labels


def test_classes_that_are_no_class_indices_are_dropped(network):
    outputs = tensorflow(classes=(3, 1e38, np.nan, np.inf))
    found = open_head(TENSORFLOW, network(TF, hw=(50, 100)))(outputs, TWICE, THRESHOLDS)
    assert found.labels.tolist() == [2]


def test_tensorflow_without_a_number_of_boxes_reads_all(network):
    seen = network(TF.rpartition(';')[0], hw=(50, 100))
    outputs = tensorflow(classes=(3, 0, 2, 1))  # 0 is background.
    found = open_head(TENSORFLOW, seen)(outputs, TWICE, THRESHOLDS)
    assert found.labels.tolist() == [2, 0]


@pytest.mark.parametrize(
    'given', [['cat', 'dog', 'eel'], ['background', 'cat', 'dog', 'eel']], ids=len
)
def test_names_of_tensorflow_may_begin_with_background(network, given):
    seen = network(TF, hw=(50, 100))
    chosen = choose_decoder(
        'auto',
        (TensorSpec('input_tensor', (1, 50, 100, 3), 'uint8', 'input'),),
        seen.outputs,
        {},
        (50, 100),
        len(given),
        has_background=given[0] == 'background',
    )
    assert chosen.name == 'tensorflow'
    assert names_of(given, '', {}, chosen) == ('cat', 'dog', 'eel')
