"""The kernels of results per pixel give what the NumPy reference gives."""

import itertools

import numpy as np
import pytest

from support.box_cases import rounded
from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 1')]


@pytest.mark.parametrize(
    'grid_hw, image_wh, input_hw, resize',
    [
        ((70, 70), (1920, 1080), (980, 980), 'stretch'),
        ((64, 64), (641, 479), (256, 256), 'letterbox'),
        ((128, 256), (33, 47), (512, 1024), 'stretch'),
        ((32, 32), (161, 119), (256, 256), 'center_crop'),
        ((64, 64), (64, 64), (64, 64), 'stretch'),
        ((64, 48), (48, 200), (64, 48), 'stretch'),
        ((2, 2), (1, 1), (8, 8), 'stretch'),
    ],
)
@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
@pytest.mark.parametrize('has_nan', [False, True])
def test_depths_of_all_pixels_are_those_of_numpy(
    grid_hw, image_wh, input_hw, resize, dtype, has_nan, decode_on_gpu
):
    rng = np.random.default_rng(0)
    cells = rng.uniform(0.1, 80, (1, *grid_hw)).astype(np.float32)
    if has_nan:
        cells[0, 1, 1], cells[0, 0, 0], cells[0, -1, grid_hw[1] // 2] = np.nan, np.inf, -np.inf
    bits, values = rounded(cells, dtype)
    head = open_as('depth', {'depth': values}, hw=input_hw)
    letterbox = Letterbox.fit(image_wh, input_hw, resize)
    got, counts = decode_on_gpu(head, {'depth': bits}, letterbox)
    want = head({'depth': values}, letterbox)
    assert (got.values.shape, got.values.dtype) == (want.values.shape, want.values.dtype)
    np.testing.assert_array_equal(got.values, want.values)
    assert counts[:2].tolist() == [0, 0]
    assert (counts[2] > 0) == (not np.isfinite(want.values).all())


@pytest.mark.parametrize('family', ['image', 'image_signed'])
@pytest.mark.parametrize('grid_hw', [(60, 80), (120, 160)])
@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
def test_pictures_are_those_of_numpy(family, grid_hw, dtype, decode_on_gpu):
    shape = (1, 3, *grid_hw) if family == 'image' else (1, *grid_hw, 3)
    bits, values = rounded(
        np.random.default_rng(4).uniform(-1.1, 1.1, shape).astype(np.float32), dtype
    )
    letterbox = Letterbox.fit((161, 97), (60, 80), 'letterbox')
    head = open_as(family, {'y': values}, hw=(60, 80))
    got, _ = decode_on_gpu(head, {'y': bits}, letterbox)
    want = head({'y': values}, letterbox).pixels
    assert got.pixels.shape == want.shape
    assert abs(got.pixels.astype(int) - want).max() <= 1
    assert (got.pixels != want).mean() < 1e-3


@pytest.mark.parametrize('is_sky', [False, True])
def test_depths_come_with_their_confidence(is_sky, decode_on_gpu):
    rng = np.random.default_rng(2)
    names = 'depth', 'sky' if is_sky else 'valid'
    cells = {name: rng.uniform(0, 1, (1, 1, 30, 40)).astype(np.float32) for name in names}
    head = open_as('depth', cells, hw=(60, 80))
    letterbox = Letterbox.fit((161, 97), (60, 80), 'letterbox')
    got, _ = decode_on_gpu(head, cells, letterbox)
    want = head(cells, letterbox)
    np.testing.assert_array_equal(got.values, want.values)
    np.testing.assert_array_equal(got.confidence, want.confidence)


@pytest.mark.parametrize(
    'grid_hw, image_wh, input_hw, resize',
    [
        ((128, 256), (958, 539), (512, 1024), 'letterbox'),
        ((64, 64), (33, 47), (64, 64), 'stretch'),
        ((48, 64), (64, 48), (48, 64), 'stretch'),
        ((60, 80), (641, 479), (480, 640), 'center_crop'),
    ],
)
@pytest.mark.parametrize(
    'dtype, classes',
    [*itertools.product(('float32', 'float16', 'bfloat16'), (1, 2, 21)), ('float32', 300)],
)
@pytest.mark.parametrize('are_logits', [False, True])
def test_confidence_of_all_pixels_is_that_of_numpy(
    grid_hw, image_wh, input_hw, resize, dtype, classes, are_logits, decode_on_gpu
):
    rng = np.random.default_rng(3)
    coarse = rng.normal(0, 4, (classes, -(-grid_hw[0] // 8), -(-grid_hw[1] // 8)))
    cells = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, : grid_hw[0], : grid_hw[1]]
    cells = (cells + rng.normal(0, 0.5, cells.shape)).astype(np.float32)[None]
    if not are_logits:
        cells = 1 / (1 + np.exp(-cells))
    letterbox = Letterbox.fit(image_wh, input_hw, resize)
    for channels_first in (True, False):
        layout = cells if channels_first else cells.transpose(0, 2, 3, 1)
        bits, values = rounded(np.ascontiguousarray(layout), dtype)
        head = open_as('semantic', {'scores': values}, hw=input_hw).with_confidence()
        got, _ = decode_on_gpu(head, {'scores': bits}, letterbox)
        want = head({'scores': values}, letterbox)
        assert (got.labels.dtype, got.is_binary) == (want.labels.dtype, want.is_binary)
        same = got.labels == want.labels
        assert np.mean(~same) <= 1e-3  # Equal scores but rounding.
        assert (got.confidence.shape, got.confidence.dtype) == (want.labels.shape, np.uint8)
        apart = np.abs(got.confidence.astype(int) - want.confidence)
        assert apart[same].max() <= 1
