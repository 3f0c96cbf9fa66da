import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.errors import TensorMismatchError
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((96, 64), (64, 96), 'stretch')  # Cells: 8 × 12, 4 × 6 and 2 × 3.
ANCHORS = 96 + 24 + 6


def head(*anchors, classes=3, dtype=np.float32) -> np.ndarray:
    """Each (index, x, y, w, h, objectness, {label: score}); the others are empty."""
    output = np.zeros((1, ANCHORS, 5 + classes), dtype)
    for index, *numbers, scores in anchors:
        output[0, index, :5] = numbers
        for label, score in scores.items():
            output[0, index, 5 + label] = score
    return output


def decode(output, letterbox=WHOLE, *, score_threshold=0.25, max_detections=100):
    return open_as('yolox', f'output (1, ?, {output.shape[2]})', hw=(64, 96))(
        {'output': output},
        letterbox,
        Thresholds(score=score_threshold, iou=0.45, max_detections=max_detections),
    )


@pytest.mark.parametrize(
    ('index', 'center', 'size'),
    [
        (0, (4, 4), 8),  # Stride 8, first cell: (0 + 0.5) * 8.
        (11, (92, 4), 8),  # The end of its first row.
        (12, (4, 12), 8),  # The second row.
        (96 + 7, (24, 24), 16),  # Stride 16, row 1, column 1.
        (96 + 24 + 5, (80, 48), 32),  # Stride 32, the last cell: row 1, column 2.
    ],
)
def test_boxes_lie_around_their_cells(index, center, size):
    found = decode(head((index, 0.5, 0.5, np.log(0.5), np.log(0.25), 1.0, {1: 0.9})))
    (x, y), width, height = center, size / 2, size / 4
    expected = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    assert found.xyxy[0].tolist() == pytest.approx(expected, abs=1e-4)
    assert found.labels.tolist() == [1]


def test_the_score_is_objectness_times_the_best_class():
    found = decode(head((0, 0, 0, 0, 0, 0.8, {0: 0.5, 2: 0.75})))
    assert found.scores.tolist() == pytest.approx([0.6])
    assert found.labels.tolist() == [2]


def test_box_size_that_overflows_is_dropped():
    assert len(decode(head((3, 0, 0, 1000, 0, 1.0, {0: 0.9})))) == 0


def test_decoded_boxes_are_refused_with_the_parameters_that_decode_them():
    rng = np.random.default_rng(0)
    decoded = head()
    decoded[0, :, :4] = rng.uniform(10, 60, (ANCHORS, 4))
    with pytest.raises(TensorMismatchError, match="'output' has decoded boxes") as error:
        decode(decoded)
    assert '`decoder` to yolov5' in error.value.remedy
    decoded[0, 6:, :4] = rng.uniform(-3, 3, (ANCHORS - 6, 4))
    assert len(decode(decoded)) == 0


def test_overlapping_neighbors_are_suppressed():
    same = [(index, 4.5 - index, 4.5, 1, 1, 1.0, {0: 0.5 + index / 10}) for index in range(4)]
    assert decode(head(*same)).scores.tolist() == pytest.approx([0.8])
