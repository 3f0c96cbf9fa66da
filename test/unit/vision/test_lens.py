"""Rectification by OpenCV, and by the kernel, which runs on the CPU here."""

import ctypes
from dataclasses import replace
import shutil

import cv2
import numpy as np
import pytest

from support.numbers_on_cpu import NumbersOnCpu
from support.stereo_scenes import LENSES
from trt_ros.errors import BadFrameError
from trt_ros.runtime.gpu.preprocess import Geometry, crop_args, preprocess_args, tile_args
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.regions import Tiles

WIDTH, HEIGHT = 160, 96
needs_compiler = pytest.mark.skipif(shutil.which('g++') is None, reason='needs g++')


@pytest.fixture(scope='module')
def kernels():
    return NumbersOnCpu()


def smooth(encoding: str, lens) -> Frame:
    """A picture whose neighboring pixels differ little, as the weights of OpenCV are rounded."""
    x, y = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))
    planes = [127 + 120 * np.sin(x / a) * np.cos(y / b) for a, b in ((11, 17), (23, 9), (15, 15))]
    bgr = np.stack(planes, -1).astype(np.uint8)
    if encoding == 'mono16':
        pixels = (planes[0] * 256).astype(np.uint16)
    elif encoding == 'nv12':
        yuv = cv2.cvtColor(bgr, cv2.COLOR_BGR2YUV_I420)
        chroma = yuv[HEIGHT:].reshape(2, -1).T.reshape(-1, WIDTH)
        pixels = np.concatenate([yuv[:HEIGHT], chroma])
    else:
        pixels = {'mono8': bgr[..., 0], 'bgr8': bgr, 'rgb8': bgr}.get(
            encoding, cv2.cvtColor(bgr, cv2.COLOR_BGR2BGRA)
        )
    return Frame.from_pixels(np.ascontiguousarray(pixels), encoding).with_lens(lens)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ('lens', 'encoding', 'resize'),
    [
        *((lens, 'bgr8', resize) for lens in LENSES for resize in ('letterbox', 'center_crop')),
        *(
            ('plumb_bob', each, 'letterbox')
            for each in ('rgb8', 'bgra8', 'mono8', 'mono16', 'nv12')
        ),
    ],
)
def test_the_kernel_equals_opencv(kernels, resize, lens, encoding):
    frame = smooth(encoding, LENSES[lens])
    for channels, antialias, size in (
        (3, False, (96, 160)),
        (1, False, (70, 90)),
        (3, True, (32, 40)),
    ):
        preprocess = Preprocess(size, resize, scale=1.0, channels=channels, antialias=antialias)
        want, _ = preprocess(frame.rectified())
        got = np.full_like(want, np.nan)
        (args,) = preprocess_args(
            preprocess, [Geometry.of(frame)], [frame.data.ctypes.data], got.ctypes.data
        )
        grid = (-(-size[1] // 32), -(-size[0] // 8), 1)
        kernels.launch(args.kernel, grid, (32, 8, 1), ctypes.addressof(args))
        assert np.abs(got - want).max() < 4
        assert np.abs(got - want).mean() < 0.6


@needs_compiler
def test_tiles_are_those_of_the_rectified_image(kernels):
    frame = smooth('bgr8', LENSES['plumb_bob'])
    tiles = Tiles(Preprocess((64, 64), scale=1.0), 3, 2)
    want = tiles(frame.rectified())
    got = np.full_like(want, np.nan)
    geometry, nbytes = Geometry.of(frame), want[0].nbytes
    for args in tile_args(tiles, geometry, frame.data.ctypes.data, got.ctypes.data, nbytes):
        kernels.launch(args.kernel, (2, 8, 1), (32, 8, 1), ctypes.addressof(args))
    assert np.abs(got - want).max() < 4


def test_other_uses_of_raw_images_are_refused():
    frame = smooth('bgr8', LENSES['plumb_bob'])
    with pytest.raises(BadFrameError, match='cut out of rectified images only'):
        crop_args(Preprocess((32, 32)), Geometry.of(frame), 0, 0, 0)
    depth = Frame.from_pixels(np.ones((HEIGHT, WIDTH), np.float32), '32FC1')
    with pytest.raises(BadFrameError, match='of depth images'):
        depth.with_lens(LENSES['plumb_bob'])


@pytest.mark.parametrize('lens', LENSES.values(), ids=LENSES)
def test_pixels_beyond_the_image_are_black_and_not_covered(lens):
    lens = replace(lens, k=(160.0, 150.0, 82.0, 45.5))
    white = Frame.from_pixels(np.full((HEIGHT, WIDTH, 3), 255, np.uint8)).with_lens(lens)
    shown = np.ndarray((HEIGHT, WIDTH, 3), np.uint8, white.rectified().data)[..., 0] == 255
    covered = lens.covers((WIDTH, HEIGHT))
    assert 0.3 < covered.mean() < 0.9
    assert (shown != covered).mean() < 0.01
