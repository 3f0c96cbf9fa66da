import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((160, 96), (96, 160), 'stretch')  # 6 × 10 cells.
CLASSES, ROWS, COLUMNS = 3, 6, 10


def grids(*cells, dtype=np.float32):
    """Each (class, row, column, coverage, left, top, right, bottom), reaches in pixels."""
    coverage = np.zeros((1, CLASSES, ROWS, COLUMNS), dtype)
    boxes = np.zeros((1, 4 * CLASSES, ROWS, COLUMNS), dtype)
    for label, row, column, score, *reach in cells:
        coverage[0, label, row, column] = score
        boxes[0, 4 * label : 4 * label + 4, row, column] = np.array(reach) / 35
    return {'output_cov': coverage, 'output_bbox': boxes}


def decode(outputs, letterbox=WHOLE, *, score_threshold=0.25, max_detections=100):
    described = f'output_cov (1, {CLASSES}, ?, ?); output_bbox (1, {4 * CLASSES}, ?, ?)'
    return open_as('detectnet_v2', described, hw=(96, 160))(
        outputs,
        letterbox,
        Thresholds(score=score_threshold, iou=0.45, max_detections=max_detections),
    )


@pytest.mark.parametrize(
    ('row', 'column', 'center'),
    [
        (1, 2, (32.5, 16.5)),
        (2, 1, (16.5, 32.5)),
        (5, 9, (144.5, 80.5)),
    ],
)
def test_boxes_reach_from_a_half_pixel_into_their_cell(row, column, center):
    found = decode(grids((0, row, column, 0.9, 5, 6, 7, 8)))
    x, y = center
    assert found.xyxy[0].tolist() == pytest.approx([x - 5, y - 6, x + 7, y + 8], abs=1e-4)


@pytest.mark.parametrize('label', range(CLASSES))
def test_each_class_has_four_planes_of_its_own(label):
    outputs = grids((label, 3, 3, 0.9, 10, 10, 10, 10))
    for other in set(range(CLASSES)) - {label}:
        outputs['output_bbox'][0, 4 * other : 4 * other + 4] = 99.0
    found = decode(outputs)
    assert found.labels.tolist() == [label]
    assert found.xyxy[0].tolist() == pytest.approx([38.5, 38.5, 58.5, 58.5], abs=1e-4)


def test_the_cells_of_one_object_are_one_box_and_classes_do_not_compete():
    found = decode(
        grids(
            (0, 2, 2, 0.5, 10, 10, 26, 26),
            (0, 2, 3, 0.75, 26, 10, 10, 26),
            (1, 2, 3, 0.625, 26, 10, 10, 26),
        )
    )
    assert found.scores.tolist() == [0.75, 0.625]
    assert found.labels.tolist() == [0, 1]


def test_equal_scores_are_ordered_by_cell_and_then_by_class():
    found = decode(
        grids(*((c, 2, x, 0.9, 5, 5, 5, 5) for c, x in ((0, 7), (2, 1), (1, 4), (0, 1))))
    )
    assert found.labels.tolist() == [0, 2, 1, 0]
