"""The kernel that places regions equals NumPy; it runs on the CPU."""

import ctypes

import numpy as np
import pytest

from support.numbers_on_cpu import NumbersOnCpu
from trt_ros.runtime.gpu.preprocess import Geometry, region_args
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.regions import REGION_RESIZES, Crop, are_in_image

WIDTH, HEIGHT, ROWS = 640, 480, 8


@pytest.fixture(scope='module')
def kernels():
    return NumbersOnCpu()


def some_boxes(count, *, is_rotated):
    """Return centers, sizes and angles, of which some have no area in the image."""
    rng = np.random.default_rng(count)
    boxes = np.column_stack(
        [
            rng.uniform(-100, (WIDTH + 100, HEIGHT + 100), (count, 2)),
            rng.uniform(-5, 200, (count, 2)),
            rng.uniform(-3, 3, count) * is_rotated,
        ]
    ).astype(np.float32)
    boxes[::5, 2] = 0
    return boxes


@pytest.mark.slow
@pytest.mark.parametrize('is_rotated', [False, True])
@pytest.mark.parametrize('resize', REGION_RESIZES)
@pytest.mark.parametrize(('count', 'limit'), [(0, 6), (1, 6), (5, 8), (100, 6), (100, 8)])
def test_regions_are_those_of_numpy(kernels, count, limit, resize, is_rotated):
    boxes, capacity = some_boxes(count, is_rotated=is_rotated), 128
    # As the decoder leaves them: float32, with corners where boxes are upright.
    written = boxes[:, :4].copy()
    if not is_rotated:
        written[:, :2] = boxes[:, :2] - boxes[:, 2:4] / 2
        written[:, 2:] = written[:, :2] + boxes[:, 2:4]
    result = np.full(4 + 7 * capacity, np.nan, np.float32)
    result[:4].view(np.int32)[0] = count
    result[4 : 4 + 4 * count] = written.ravel()
    result[4 + 6 * capacity : 4 + 6 * capacity + count] = boxes[:, 4]
    boxes = boxes.astype(np.float64)
    if not is_rotated:
        low, high = written[:, :2].astype(np.float64), written[:, 2:].astype(np.float64)
        boxes[:, :2], boxes[:, 2:4] = (low + high) / 2, high - low
    maps, placed = np.full((2, ROWS, 8), np.nan, np.float32)
    chosen = np.full(ROWS, 99, np.int32)
    crop = Crop(Preprocess((64, 48)), 1.1, resize)
    args = region_args(crop, Geometry(WIDTH, HEIGHT, WIDTH * 3, 'bgr8', False))
    args.result, args.maps = result.ctypes.data, maps.ctypes.data
    args.placed, args.chosen = placed.ctypes.data, chosen.ctypes.data
    args.capacity, args.rows, args.count, args.is_rotated = capacity, ROWS, limit, is_rotated
    kernels.launch('place_regions', (1, 1, 1), (32, 1, 1), ctypes.addressof(args))
    wanted = np.flatnonzero(are_in_image(boxes, (WIDTH, HEIGHT)))[:limit]
    assert chosen.tolist() == [*wanted.tolist(), *[-1] * (ROWS - len(wanted))]
    expected = crop.maps(boxes[wanted]).reshape(-1, 8)
    np.testing.assert_allclose(maps[: len(wanted)], expected, rtol=1e-6, atol=1e-4)
    np.testing.assert_array_equal(placed[: len(wanted)], maps[: len(wanted)])
    assert not maps[len(wanted) :].any()
