"""Heatmaps and SimCC: keypoints of the one object that the input shows."""

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.decode.choice import open_head
from trt_ros.errors import TensorMismatchError
from trt_ros.families.keypoints import HEATMAP_POSE, SIMCC
from trt_ros.results.poses import LIMBS, NAMES
from trt_ros.vision.letterbox import Letterbox

INPUT_HW = (256, 192)
SIMCC_HEAD = open_as('simcc', 'x (1, ?, 384); y (1, ?, 512)', hw=INPUT_HW)
WHOLE = Letterbox.fit((192, 256), INPUT_HW, 'stretch')


def blobs(*keypoints, grid=(64, 48), sigma=2.0):
    """Heatmaps of (column, row, height) each, with Gaussian blobs at fractions of cells."""
    rows, cols = np.mgrid[: grid[0], : grid[1]]
    planes = [
        height * np.exp(-((cols - x) ** 2 + (rows - y) ** 2) / (2 * sigma**2))
        for x, y, height in keypoints
    ]
    return np.array(planes, np.float32)[None]


def decode(heatmaps, letterbox=WHOLE):
    head = open_as('heatmap_pose', 'heatmaps (1, ?, ?, ?)', hw=INPUT_HW)
    return head({'heatmaps': heatmaps}, letterbox)


def test_empty_heatmaps_are_invisible_keypoints_and_non_finite_cells_are_no_maximum():
    found = decode(np.zeros((1, 2, 64, 48), np.float32))
    assert found.keypoints.shape == (1, 2, 3)
    assert found.keypoints[..., 2].tolist() == [[0, 0]]
    assert found.detections.scores.tolist() == [0]
    assert found.detections.xyxy.tolist() == [[0, 0, 192, 256]]
    heatmaps = blobs((20.0, 30.0, 0.9), (20.0, 30.0, 0.9))
    heatmaps[0, 0, 3, 3] = np.nan
    heatmaps[0, 1, 4, 4] = np.inf
    found = decode(heatmaps)
    assert np.isfinite(found.keypoints).all()
    assert found.keypoints[0, :, 0].tolist() == pytest.approx([20 * 191 / 47 + 0.5] * 2, abs=0.1)


def test_the_maximum_is_found_between_the_cells():
    cells = [(20.0, 30.0, 0.9), (20.4, 30.3, 0.5), (11.75, 9.2, 0.7), (5.49, 50.51, 1.0)]
    found = decode(blobs(*cells))
    x, y, visibility = found.keypoints[0].T
    expected_x, expected_y, heights = np.array(cells).T
    # The outer cells' centers are those of the outer pixels, at 0.5 and 191.5, 0.5 and 255.5.
    assert x.tolist() == pytest.approx((expected_x * 191 / 47 + 0.5).tolist(), abs=0.02)
    assert y.tolist() == pytest.approx((expected_y * 255 / 63 + 0.5).tolist(), abs=0.02)
    assert (visibility <= heights + 1e-3).all()
    assert (visibility > heights * 0.9).all()
    assert found.keypoints.dtype == np.float32
    assert found.detections.scores.tolist() == [pytest.approx(visibility.mean())]


@pytest.mark.parametrize(
    ('cell', 'pixel'), [((0, 0), (0.5, 0.5)), ((47, 63), (191.5, 255.5)), ((47, 0), (191.5, 0.5))]
)
def test_a_maximum_at_the_edge_stays_within_a_cell_of_it(cell, pixel):
    found = decode(blobs((*cell, 1.0)))
    assert np.abs(found.keypoints[0, 0, :2] - pixel).max() < 191 / 47 / 2 + 0.01


def test_heatmaps_are_scaled_to_the_image():
    letterbox = Letterbox.fit((384, 512), INPUT_HW, 'stretch')
    found = decode(blobs((20, 30, 1.0)), letterbox)
    assert found.detections.xyxy.tolist() == [[0, 0, 384, 512]]
    assert found.keypoints[0, 0, 1] == pytest.approx(2 * (30 * 255 / 63 + 0.5), abs=0.05)


def test_values_above_1_are_limited_and_a_single_cell_has_no_neighbors():
    assert decode(blobs((20.0, 30.0, 1.3))).keypoints[0, 0, 2] == 1
    found = decode(np.full((1, 3, 1, 1), 0.5, np.float32))
    assert found.keypoints.tolist() == [[[0.5, 0.5, 0.5]] * 3]


def bins(size, *peaks):
    scores = np.zeros((1, len(peaks), size), np.float32)
    for index, (at, value) in enumerate(peaks):
        scores[0, index, at] = value
    return scores


def test_simcc_is_the_highest_bin_of_each_axis():
    outputs = {
        'x': bins(384, (0, 0.9), (101, 0.4), (383, 1.5)),
        'y': bins(512, (0, 0.8), (200, 0.6), (511, 1.2)),
    }
    found = SIMCC_HEAD(outputs, WHOLE)
    assert found.keypoints[0].tolist() == [
        pytest.approx([0.5, 0.5, 0.8]),
        pytest.approx([51, 100.5, 0.4]),
        pytest.approx([192, 256, 1]),
    ]
    assert found.detections.scores.tolist() == [pytest.approx((0.8 + 0.4 + 1) / 3)]
    assert found.detections.xyxy.tolist() == [[0, 0, 192, 256]]


@pytest.mark.parametrize(
    ('names', 'expected'),
    [(('x_bins', 'y_bins'), 'x_bins'), (('y_bins', 'x_bins'), 'x_bins'), (('a', 'b'), 'a')],
)
def test_names_order_the_outputs_of_a_square_input(network, names, expected):
    outputs = '; '.join(f'{name} (1, 21, 512)' for name in names)
    head = open_head(SIMCC, network(outputs, hw=(256, 256)))
    assert (head.reading.parts[0].spec.name, head.keypoint_count) == (expected, 21)


def test_the_number_of_keypoints_names_them_and_other_outputs_are_refused(network):
    heads = [
        open_head(HEATMAP_POSE, network(f'out ({batch}, {points}, 64, 48)', hw=INPUT_HW))
        for batch, points in ((1, 17), ('?', 133), (1, '?'))
    ]
    assert [head.keypoint_count for head in heads] == [17, 133, None]
    assert all(len(names) == count for count, names in NAMES.items())
    assert all(len(set(names)) == count for count, names in NAMES.items())
    assert NAMES[133][:17] == NAMES[17]
    assert all(0 <= index < 17 for limb in LIMBS for index in limb)
    with pytest.raises(TensorMismatchError, match=r'48\); or \(1, keypoints, rows, columns\)'):
        open_head(HEATMAP_POSE, network('out (1, 17, 64)', hw=INPUT_HW))
