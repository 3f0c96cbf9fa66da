import numpy as np
import pytest

from support.descriptions import head
from trt_ros.errors import TensorMismatchError
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((200, 200), (200, 200), 'stretch')
BOXES = [[10, 20, 30, 60], [11, 20, 31, 60], [180, 90, 100, 20]]
SCORES = [[0.6, 0.9, 0.1], [0.3, 0.2, 0.7]]


def decode(
    *chosen,
    boxes=BOXES,
    scores=SCORES,
    rows_first=False,
    score_threshold=0.25,
    max_detections=9,
    dtype=np.float32,
):
    outputs = {
        'chosen': np.array(chosen, np.int64).reshape(-1, 3),
        'boxes': np.array([boxes], dtype),
        'scores': np.array([scores], dtype),
    }
    described = 'chosen (?, 3) int64; boxes (1, 3, 4); scores (1, 2, 3)'
    found = head('yolov3' if rows_first else 'onnx_nms', described)(
        outputs, WHOLE, Thresholds(score=score_threshold, iou=0.45, max_detections=max_detections)
    )
    return [
        (label, pytest.approx(score, abs=1e-3), xyxy)
        for label, score, xyxy in zip(
            found.labels.tolist(), found.scores.tolist(), found.xyxy.tolist()
        )
    ]


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
def test_selected_boxes_are_detected_best_first_without_nms(dtype):
    assert decode((0, 0, 0), (0, 0, 1), (0, 1, 2), dtype=dtype) == [
        (0, 0.9, [11, 20, 31, 60]),
        (1, 0.7, [100, 20, 180, 90]),
        (0, 0.6, [10, 20, 30, 60]),
    ]


def test_corners_may_be_rows_first():
    assert decode((0, 0, 0), rows_first=True) == [(0, 0.6, [20, 10, 60, 30])]


def test_unused_rows_are_ignored():
    assert decode((-1, -1, -1), (0, 0, 0), (1, 0, 1), (0, 2, 0), (0, 0, 3)) == [
        (0, 0.6, [10, 20, 30, 60])
    ]


def test_mismatched_outputs_are_refused():
    with pytest.raises(TensorMismatchError, match=r'got chosen .*, scores \(1, 1, 2\)'):
        decode((0, 0, 0), scores=[[0.5, 0.5]])
