import cv2
import numpy as np
import pytest

from trt_ros.vision.grid import bilinear, covers, taps
from trt_ros.vision.letterbox import Letterbox


@pytest.mark.parametrize(
    ('image_wh', 'input_hw', 'grid_hw'),
    [
        ((64, 48), (48, 64), (48, 64)),
        ((200, 120), (48, 64), (48, 64)),
        ((31, 17), (64, 64), (64, 64)),
        ((200, 120), (64, 64), (16, 16)),
        ((50, 130), (64, 96), (8, 12)),
        ((1, 1), (64, 64), (16, 16)),
    ],
)
def test_stretched_grid_equals_opencv_resize(image_wh, input_hw, grid_hw):
    grid = np.random.default_rng(0).normal(size=grid_hw).astype(np.float32)
    image = bilinear(grid, *taps(Letterbox.fit(image_wh, input_hw, 'stretch'), grid_hw))
    expected = cv2.resize(grid, image_wh, interpolation=cv2.INTER_LINEAR)
    assert image.shape == image_wh[::-1] and image.dtype == np.float32
    assert np.abs(image - expected).max() < 1e-4


@pytest.mark.parametrize('resize', ['letterbox', 'letterbox_topleft'])
def test_letterbox_padding_is_removed(resize):
    letterbox = Letterbox.fit((200, 100), (64, 64), resize)  # 64 × 32 pixels in the input.
    top = int(letterbox.pad_xy[1])
    grid = np.full((64, 64), np.nan, np.float32)
    grid[top : top + 32] = np.random.default_rng(0).normal(size=(32, 64))
    image = bilinear(grid, *taps(letterbox, (64, 64)))
    expected = cv2.resize(grid[top : top + 32], (200, 100), interpolation=cv2.INTER_LINEAR)
    assert np.abs(image - expected).max() < 1e-4


def test_a_part_of_the_pixels_is_that_part_of_the_whole():
    letterbox = Letterbox.fit((90, 70), (64, 64), 'letterbox')
    grid = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    rows, cols = taps(letterbox, (16, 16))
    part = bilinear(grid, rows[20:50], cols[33:34])
    assert np.array_equal(part, bilinear(grid, rows, cols)[20:50, 33:34])


@pytest.mark.parametrize('image_wh', [(1, 1), (7, 3), (90, 70), (200, 50)])
@pytest.mark.parametrize('grid', [1, 2, 5, 64])
def test_runs_cover_each_pixel_once_grouped_by_cell_pair(image_wh, grid):
    for axis in taps(Letterbox.fit(image_wh, (64, 64), 'letterbox'), (grid, grid)):
        runs = [sorted(set(run)) for run in axis.runs.tolist()]
        assert [pixel for run in runs for pixel in run] == list(range(len(axis.first)))
        assert all(len(set(axis.first[run])) == 1 for run in runs)


@pytest.mark.parametrize(
    ('grid', 'input_hw', 'expected'),
    [
        ((640, 640), (640, 640), True),
        ((160, 160), (640, 640), True),
        ((37, 37), (518, 518), True),
        ((68, 120), (544, 960), True),
        ((-1, 160), (640, 640), True),
        ((15, 25), (480, 800), True),
        ((160, 120), (640, 640), False),
        ((1, 1), (640, 640), False),
        ((25, 15), (480, 800), False),
    ],
)
def test_a_grid_covers_its_input_when_it_has_its_shape(grid, input_hw, expected):
    assert covers(grid, input_hw) is expected
