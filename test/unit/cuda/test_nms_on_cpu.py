"""The algorithm of the NMS kernels, compiled for the CPU, equals the NumPy reference."""

from functools import partial
import shutil

import numpy as np
import pytest

from support.nms_cases import assert_equal, columns, piled
from trt_ros.vision.thresholds import Thresholds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which('g++') is None, reason='needs g++'),
]

ASKED = Thresholds(0.25, 0.45, 300)


@pytest.fixture(scope='module')
def check(kernels):
    """Return a function that compares the kernels with NumPy."""

    def check(outputs, asked=ASKED):
        got, counts = assert_equal(partial(kernels.decode, runs=1), outputs, asked)
        assert counts[0] == len(got)
        return got, counts

    return check


@pytest.mark.parametrize('count', [0, 1, 33, 512, 513, 1024, 1025])
def test_every_number_of_candidates(count, check):
    outputs = piled(max(count, 1), 9, classes=2)
    outputs['head'][0, 4:, count:] = 0
    _, counts = check(outputs)
    assert counts[1] == count


@pytest.mark.parametrize('in_bands', [False, True])
def test_candidates_on_objects_leave_one_box_per_object(in_bands, check):
    got, _ = check(piled(2300, 90, in_bands=in_bands))
    assert 90 <= len(got) <= 99


@pytest.mark.parametrize('limit', [1, 40, 5000])
def test_as_many_boxes_as_requested_are_kept(limit, check):
    rng = np.random.default_rng(1)
    outputs = columns(
        rng.uniform(0, 640, (1500, 2)), rng.uniform(9, 30, (1500, 2)), rng.random((1500, 1))
    )
    got, _ = check(outputs, Thresholds(0.0, 0.3, limit))
    assert len(got) == min(limit, 5000) if limit < 5000 else 500 < len(got) < 1500


def test_boxes_that_each_overlap_only_the_next_are_decided_in_order(check):
    count = 600
    centers = np.stack([20 + np.arange(count), np.full(count, 320.0)], axis=1)
    outputs = columns(centers, np.full((count, 2), 2.5), np.linspace(0.9, 0.5, count)[:, None])
    got, _ = check(outputs, Thresholds(0.25, 0.3, 1000))
    assert len(got) == count // 2


@pytest.mark.parametrize('iou', [0.0, 1e-7, 1e-5, 0.5, 1.0])
def test_thresholds_at_which_rounding_decides(iou, check):
    outputs = piled(700, 30, classes=3)
    outputs['head'][0, :4, 100:130] = outputs['head'][0, :4, :30]
    outputs['head'][0, 2:4, 200:230] = 1e-18  # The areas underflow.
    check(outputs, Thresholds(0.25, iou, 300))


def test_iou_equal_to_the_threshold_does_not_suppress(check):
    # IoU of 1/3 and, of the last pair, 1/2, exactly.
    centers = np.array([[100, 100], [110, 100], [300, 300], [300, 310]])
    sizes = np.array([[20, 20], [20, 20], [20, 40], [20, 20]])
    outputs = columns(centers, sizes, np.array([[0.9], [0.8], [0.7], [0.6]]))
    exact = np.float32(1) / np.float32(3)
    for iou, expected in ((exact, 3), (np.nextafter(exact, np.float32(0)), 2), (0.5, 4)):
        got, _ = check(outputs, Thresholds(0.5, float(iou), 10))
        assert len(got) == expected


def test_infinite_areas_neither_suppress_nor_are_suppressed(check):
    outputs = piled(600, 20)
    outputs['head'][0, 2:4, ::60] = 3e38  # Finite, but the area is not.
    outputs['head'][0, 0, 7::50] = np.nan
    check(outputs)


@pytest.mark.parametrize('levels', [1, 3])
def test_equal_scores_are_ordered_by_place(levels, check):
    scores = 0.4 + np.arange(2100) % levels * 0.1
    check(piled(2100, 60, scores=scores), Thresholds(0.25, 0.45, 1000))


@pytest.mark.parametrize('above', [0.9, 0.1])
def test_odd_sample_of_scores_leaves_one_block_most_of_the_candidates(above, check):
    """The block that ranks nearly all candidates takes them in several turns."""
    count = 2400
    samples = 2 * -(-count // 64)
    scores = np.linspace(0.5, 0.6, count)
    scores[np.arange(samples) * count // samples] = np.linspace(0.8, 0.81, samples)
    if above < 0.5:
        scores = 1.1 - scores
    check(piled(count, 60, scores=scores))


@pytest.mark.nightly
def test_candidates_beyond_those_compared_at_once(check):
    check(piled(11000, 40, in_bands=True), Thresholds(0.25, 0.45, 50))
