"""The kernels of non-maximum suppression keep the boxes that the NumPy reference keeps."""

from typing import Any

import numpy as np
import pytest

from support.descriptions import head as open_as
from support.nms_cases import assert_equal, columns, piled
from trt_ros.vision.thresholds import Thresholds

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 2')]


@pytest.mark.parametrize('count', [1, 2, 31, 32, 63, 64, 65, 255, 256, 257, 511, 1000])
def test_every_number_of_candidates_is_suppressed_like_numpy(count, decode_on_gpu):
    outputs = piled(count, 9, classes=2, seed=count)
    got, counts = assert_equal(decode_on_gpu, outputs, Thresholds(0.25, 0.45, 300))
    assert counts[1] == count
    assert len(got) >= 1


@pytest.mark.parametrize('count', [2048, 8400])
@pytest.mark.parametrize('objects', [1, 10, 270])
@pytest.mark.parametrize('in_bands', [False, True])
def test_piled_candidates_leave_one_box_per_object(count, objects, in_bands, decode_on_gpu):
    outputs = piled(count, objects, in_bands=in_bands)
    got, counts = assert_equal(decode_on_gpu, outputs, Thresholds(0.25, 0.45, 300))
    assert counts[1] == count
    assert objects <= len(got) <= 1.1 * objects


@pytest.mark.parametrize('limit', [0, 1, 300, 4096, 20000])
def test_as_many_boxes_as_requested_are_kept(limit, decode_on_gpu):
    rng = np.random.default_rng(1)
    outputs = columns(
        rng.uniform(0, 640, (6000, 2)), rng.uniform(2, 6, (6000, 2)), rng.uniform(0, 1, (6000, 1))
    )
    got, _ = assert_equal(decode_on_gpu, outputs, Thresholds(0.0, 0.3, limit))
    assert len(got) == limit if limit <= 4096 else 4096 < len(got) <= 6000


@pytest.mark.parametrize('count', [300, 3000, 12000])
def test_among_equal_boxes_and_scores_the_first_is_kept(count, decode_on_gpu):
    outputs = columns(
        np.full((count, 2), 320.0), np.full((count, 2), 50.0), np.full((count, 2), 0.5)
    )
    _, counts = assert_equal(decode_on_gpu, outputs, Thresholds(0.5, 0.5, 10))
    assert counts[:2].tolist() == [1, count]


@pytest.mark.parametrize('count', [300, 9000])
def test_equal_scores_are_ordered_by_place(count, decode_on_gpu):
    rng = np.random.default_rng(2)
    outputs = columns(
        rng.uniform(0, 640, (count, 2)), rng.uniform(5, 90, (count, 2)), np.full((count, 2), 0.5)
    )
    assert_equal(decode_on_gpu, outputs, Thresholds(0.5, 0.4, 1000))


def test_boxes_that_each_overlap_only_the_next_are_decided_in_order(decode_on_gpu):
    """Every second one is kept: each decision depends on the one before."""
    count = 600
    centers = np.stack([20 + np.arange(count), np.full(count, 320.0)], axis=1)
    outputs = columns(centers, np.full((count, 2), 2.5), np.linspace(0.9, 0.5, count)[:, None])
    got, _ = assert_equal(decode_on_gpu, outputs, Thresholds(0.25, 0.3, 1000))
    assert len(got) == count // 2


def test_boxes_with_nan_and_infinity_neither_suppress_nor_appear(decode_on_gpu):
    outputs = piled(2000, 40, classes=2)
    bad = outputs['head'][0]
    bad[0, 3::7], bad[2, 5::7], bad[1, 6::7], bad[4, 1::7] = np.nan, np.inf, -np.inf, np.nan
    bad[2, 8::70] = 3e38  # Finite, but the area is not.
    got, counts = assert_equal(decode_on_gpu, outputs, Thresholds(0.25, 0.45, 300))
    assert counts[2] == np.count_nonzero(~np.isfinite(bad))
    assert np.isfinite(got.xyxy).all()


# More candidates than are sorted at once.


def spread(count, size, *, seed=3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return columns(
        rng.uniform(0, 640, (count, 2)),
        np.full((count, 2), float(size)),
        rng.uniform(0.3, 1, (count, 1)),
    )


@pytest.mark.parametrize('limit', [300, 1000, 20000])
def test_25200_candidates_that_overlap_a_little(limit, decode_on_gpu):
    got, _ = assert_equal(decode_on_gpu, spread(25200, 12), Thresholds(0.25, 0.3, limit))
    assert len(got) == limit or 2000 < len(got) < 10000


def test_25200_candidates_in_bands_are_decided_to_the_last(decode_on_gpu):
    """The objects of the lower scores appear only after the best 10240 have been decided."""
    outputs = piled(25200, 200, in_bands=True)
    got, _ = assert_equal(decode_on_gpu, outputs, Thresholds(0.25, 0.45, 1000))
    assert len(got) >= 200


def boxes_and_scores(rows, classes, scores) -> tuple[Any, dict[str, np.ndarray]]:
    rng = np.random.default_rng(4)
    corner = rng.uniform(0, 560, (rows, 2))
    outputs = {
        'boxes': np.hstack([corner, corner + rng.uniform(10, 90, (rows, 2))])[None],
        'scores': scores(rng, (rows, classes))[None],
    }
    outputs = {name: value.astype(np.float32, order='C') for name, value in outputs.items()}
    return open_as('boxes', outputs), outputs


@pytest.mark.parametrize(
    'scores',
    [
        lambda rng, shape: np.ones(shape),
        lambda rng, shape: rng.uniform(0, 1, shape),
        lambda rng, shape: rng.integers(1, 4, shape) / 4,
        lambda rng, shape: np.where(rng.random(shape) < 0.001, 0.9, 0.01),
    ],
    ids=['saturated', 'random', 'three values', 'sparse'],
)
def test_182000_scores_of_boxes_equal_numpy(scores, decode_on_gpu):
    head, outputs = boxes_and_scores(2000, 91, scores)
    for asked in (Thresholds(0.05, 0.5, 100), Thresholds(0.05, 0.5, 1500)):
        assert_equal(decode_on_gpu, outputs, asked, head)


def test_boxes_on_one_object_in_many_classes_leave_one_per_class(decode_on_gpu):
    """Nearly all of the 182000 candidates are left when the best 10240 have been decided."""
    head, outputs = boxes_and_scores(2000, 91, lambda rng, shape: np.ones(shape))
    outputs['boxes'][:] = [100, 100, 200, 200]
    _, counts = assert_equal(decode_on_gpu, outputs, Thresholds(0.5, 0.5, 1000), head)
    assert counts[:2].tolist() == [91, 182000]
