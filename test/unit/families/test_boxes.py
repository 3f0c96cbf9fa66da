"""Boxes and scores as separate outputs: plain, SSD, EfficientNMS, deployed RT-DETR."""

import numpy as np
import pytest

from trt_ros.decode.choice import choose_decoder
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

INPUT = TensorSpec('images', (1, 3, 100, 200), 'float32', 'input')
WHOLE = Letterbox.fit((200, 100), (100, 200), 'stretch')
FOUR = [[10, 10, 30, 30], [11, 10, 31, 30], [100, 20, 180, 80], [0, 0, 5, 5]]


def decode(family, outputs, letterbox=WHOLE, *, score_threshold=0.25, max_detections=100):
    """Decode {name: array} as `family`, with the specs that they say."""
    outputs = {name: np.asarray(array) for name, array in outputs.items()}
    specs = tuple(
        TensorSpec(name, array.shape, array.dtype.name, 'output')
        for name, array in outputs.items()
    )
    return choose_decoder(family, (INPUT,), specs, {}, (100, 200))(
        outputs,
        letterbox,
        Thresholds(score=score_threshold, iou=0.45, max_detections=max_detections),
    )


def plain(boxes, scores, **others):
    return {
        'boxes': np.array([boxes], np.float32).reshape(1, -1, 4),
        'scores': np.array([scores], np.float32),
        **others,
    }


def found(detections):
    return [
        (label, pytest.approx(score), xyxy)
        for label, score, xyxy in zip(
            detections.labels.tolist(), detections.scores.tolist(), detections.xyxy.tolist()
        )
    ]


def test_scores_per_class_are_suppressed_per_class():
    scores = [[0.6, 0.0], [0.9, 0.3], [0.0, 0.5], [0.1, 0.2]]
    assert found(decode('boxes', plain(FOUR, scores))) == [
        (0, 0.9, FOUR[1]),
        (1, 0.5, FOUR[2]),
        (1, 0.3, FOUR[1]),
    ]


def test_boxes_with_labels_are_final():
    labels = {'labels': np.array([[4, 4, 7, 4]])}
    assert found(decode('boxes', plain(FOUR, [0.6, 0.9, 0.5, 0.1], **labels))) == [
        (4, 0.9, FOUR[1]),
        (4, 0.6, FOUR[0]),
        (7, 0.5, FOUR[2]),
    ]


def test_scores_without_labels_are_of_one_class_and_compete():
    assert found(decode('boxes', plain(FOUR, [0.6, 0.9, 0.5, 0.1]))) == [
        (0, 0.9, FOUR[1]),
        (0, 0.5, FOUR[2]),
    ]


def test_torchvision_has_no_batch_and_any_number_of_boxes():
    def outputs(count):
        return {
            'boxes': np.array(FOUR[:count], np.float32).reshape(-1, 4),
            'labels': np.arange(1, count + 1),
            'scores': np.full(count, 0.5, np.float32),
        }

    assert len(decode('auto', outputs(0))) == 0
    assert found(decode('auto', outputs(2))) == [(1, 0.5, FOUR[0]), (2, 0.5, FOUR[1])]


def test_normalized_boxes_are_of_the_input_and_come_back_in_image_pixels():
    letterbox = Letterbox.fit((200, 200), (100, 200), 'letterbox')  # Half the size, 50 columns on.
    outputs = plain([[0.25, 0.0, 0.5, 0.5]], [[0.5]])
    assert found(decode('boxes_normalised', outputs, letterbox)) == [(0, 0.5, [0, 0, 100, 100])]


def test_first_ssd_class_is_background():
    outputs = plain(
        [[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]], [[0.9, 0.1, 0.0], [0.2, 0.1, 0.7]]
    )
    assert found(decode('ssd', outputs)) == [(1, 0.7, [100, 50, 200, 100])]


@pytest.mark.parametrize('count', [0, 2, 4, 99, -1])
def test_efficient_nms_rows_beyond_count_are_ignored(count):
    outputs = {
        'num_dets': np.array([[count]], np.int32),
        **plain(FOUR, [0.9, 0.8, 0.7, 0.6]),
        'classes': np.array([[3, 3, 5, -1]], np.int32),
    }
    expected = [(3, 0.9, FOUR[0]), (3, 0.8, FOUR[1]), (5, 0.7, FOUR[2])][: max(count, 0)]
    assert found(decode('auto', outputs)) == expected


def test_a_score_equal_to_the_threshold_passes_also_in_half_precision():
    outputs = plain(FOUR[:1], [[0.5]])
    half = {name: array.astype(np.float16) for name, array in outputs.items()}
    for each in (outputs, half):
        assert len(decode('boxes', each, score_threshold=0.5)) == 1
        assert len(decode('boxes', each, score_threshold=0.5001)) == 0
    assert decode('boxes', half).xyxy.dtype == np.float32
