from itertools import product

import cv2
import numpy as np
import pytest

from support.frames import noise_frame
from trt_ros.vision.frame import ENCODINGS, Frame, to_color
from trt_ros.vision.resample import Scaled, resample

SIZES = [  # From width × height to width × height.
    ((2, 1), (5, 7)),
    ((5, 7), (1, 1)),
    ((31, 17), (31, 17)),
    ((31, 17), (64, 48)),
    ((97, 61), (48, 30)),
    ((97, 61), (33, 29)),
    ((641, 359), (320, 180)),
    ((131, 47), (41, 83)),
    ((47, 131), (83, 41)),
    ((300, 200), (100, 100)),
    ((1000, 3), (64, 64)),
]


def random_pixels(width, height, channels=3) -> np.ndarray:
    return np.random.default_rng(width).integers(0, 256, (height, width, channels), np.uint8)


def resized(frame, out_wh, *, crop_wh=None, **options) -> np.ndarray:
    """All blocks together, (H, W, 3)."""
    out = np.full((3, *(crop_wh or out_wh)[::-1]), np.nan, np.float32)
    for block, pixels in resample(frame, Scaled(out_wh, crop_wh=crop_wh, **options)):
        assert pixels.dtype == np.float32
        out[:, block] = pixels
    return out.transpose(1, 2, 0)


@pytest.mark.parametrize(
    ('from_wh', 'to_wh', 'antialias'),
    [
        *((*sizes, False) for sizes in SIZES),
        ((200, 120), (50, 30), True),
        ((200, 121), (50, 40), True),
        ((641, 359), (211, 97), True),
        ((97, 61), (1, 1), True),
        ((1999, 1003), (640, 321), True),
    ],
)
def test_pixels_are_bilinear_or_area_means_as_those_of_opencv(from_wh, to_wh, antialias):
    pixels = random_pixels(*from_wh)
    ours = resized(Frame.from_pixels(pixels, 'rgb8'), to_wh, antialias=antialias)
    how = {'dsize': to_wh, 'interpolation': cv2.INTER_AREA if antialias else cv2.INTER_LINEAR}
    exact, rounded = cv2.resize(pixels.astype(np.float32), **how), cv2.resize(pixels, **how)
    assert np.abs(ours - exact).max() < (0.1 if antialias else 0.01)
    assert np.abs(ours - rounded).max() < 1


def test_antialias_takes_each_axis_by_itself():
    pixels = random_pixels(301, 40)
    ours = resized(Frame.from_pixels(pixels, 'rgb8'), (77, 31), antialias=True)
    narrow = cv2.resize(pixels.astype(np.float32), (77, 40), interpolation=cv2.INTER_AREA)
    want = cv2.resize(narrow, (77, 31), interpolation=cv2.INTER_LINEAR)
    assert np.abs(ours - want).max() < 0.1


@pytest.mark.parametrize('to_wh', [(100, 60), (150, 90), (200, 120), (400, 240)])
def test_antialias_changes_nothing_up_to_a_half(to_wh):
    frame = Frame.from_pixels(random_pixels(200, 120), 'rgb8')
    assert np.array_equal(resized(frame, to_wh), resized(frame, to_wh, antialias=True))


@pytest.mark.parametrize('encoding', ENCODINGS)
def test_every_encoding_is_resized_like_its_colors(encoding):
    frame = noise_frame(encoding, 90, 70)
    colors = Frame.from_pixels(np.ascontiguousarray(to_color(frame, 'rgb')), 'rgb8')
    for to_wh, antialias in product([(30, 20), (75, 99), (100, 80)], [False, True]):
        np.testing.assert_allclose(
            resized(frame, to_wh, antialias=antialias),
            resized(colors, to_wh, antialias=antialias),
            atol=2e-3,  # OpenCV, which resizes some, is 1.2e-3 off on Arm, 1e-4 on x86-64.
            err_msg=f'{to_wh}, antialias {antialias}',
        )


@pytest.mark.parametrize('encoding', ['rgb8', 'mono8', 'nv12', 'bayer_rggb8'])
def test_a_part_of_the_output_is_that_part_of_the_whole(encoding):
    frame = noise_frame(encoding, 90, 70, padding=0)
    part = resized(frame, (60, 80), crop_xy=(7, 11), crop_wh=(40, 50))
    assert part.shape == (50, 40, 3)
    assert np.array_equal(part, resized(frame, (60, 80))[11:61, 7:47])
