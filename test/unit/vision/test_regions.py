"""Crops of regions: placement, interpolation, padding, normalization and the way back."""

import math

import numpy as np
import pytest

from support.frames import noise_frame
from support.objects import detections
from trt_ros.errors import ParameterError
from trt_ros.results.classes import Classification
from trt_ros.results.poses import Poses
from trt_ros.vision.frame import ENCODINGS, Frame, to_color
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.regions import Crop, sample

IDENTITY = {'scale': 1.0, 'pad_value': 0, 'resize': 'stretch'}


def crop(input_hw=(4, 4), scale=1.0, resize='expand', **preprocess):
    return Crop(Preprocess(input_hw, **{**IDENTITY, **preprocess}), scale, resize)


def noise(height=40, width=60, seed=3):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def reference(pixels, affine, input_hw, pad_value):
    """The same in loops and float64, written independently."""
    rows, cols = pixels.shape[:2]
    found = np.zeros((*input_hw, 3))
    for v in range(input_hw[0]):
        for u in range(input_hw[1]):
            x, y = np.asarray(affine, np.float64)[:, :3] @ (u + 0.5, v + 0.5, 1) - 0.5
            left, top = math.floor(x), math.floor(y)
            for row, col in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
                inside = 0 <= row < rows and 0 <= col < cols
                value = pixels[row, col] if inside else pad_value
                found[v, u] += value * ((1 - abs(x - col)) * (1 - abs(y - row)))
    return found


def test_no_region_needs_no_pixel_and_other_shapes_are_refused():
    maps = crop().maps(np.zeros((0, 5)))
    assert maps.shape == crop().maps([]).shape == (0, 2, 4)
    assert crop()(Frame.from_pixels(noise()), maps).shape == (0, 3, 4, 4)
    with pytest.raises(ParameterError, match=r'shape \(1, 4\), expected \(N, 5\)'):
        crop().maps(np.ones((1, 4)))


def test_a_region_of_the_input_s_size_is_copied_and_the_width_lies_along_its_angle():
    pixels = noise()
    preprocess = crop((10, 20), channel_order='bgr', dtype='uint8', layout='nhwc')
    maps = preprocess.maps(np.array([[20, 15, 20, 10, 0.0]]))
    assert maps.tolist() == [[[1, 0, 10, 20], [0, 1, 10, 10]]]
    found = preprocess(Frame.from_pixels(pixels), maps)
    assert found.dtype == np.uint8
    assert np.array_equal(found[0], pixels[10:20, 10:30])
    # A quarter turn from x towards y: the input's columns go down the image, its rows left.
    pixels = noise(20, 30)
    preprocess = crop((4, 6), channel_order='bgr', layout='nhwc')
    maps = preprocess.maps(np.array([[10, 9, 6, 4, math.pi / 2]]))
    found = preprocess(Frame.from_pixels(pixels), maps)[0]
    block = pixels[6:12, 8:12]  # Columns 10 - 4/2 to 10 + 4/2, rows 9 - 6/2 to 9 + 6/2.
    assert np.allclose(found, np.rot90(block), atol=1e-3)


@pytest.mark.parametrize(
    ('resize', 'step_xy'), [('stretch', (10 / 8, 40 / 4)), ('expand', (10, 10))]
)
def test_the_aspect_ratio_of_the_input_is_stretched_or_expanded_to(resize, step_xy):
    maps = crop((4, 8), 1.5, resize).maps(np.array([[100, 50, 10, 40, 0.0]]))
    step_x, step_y = (1.5 * step for step in step_xy)
    assert maps[0, 0].tolist() == [step_x, 0, 100 - 4 * step_x, 8]
    assert maps[0, 1].tolist() == [0, step_y, 50 - 2 * step_y, 4]


@pytest.mark.parametrize('angle', [0.0, 0.7, -2.5])
@pytest.mark.parametrize(
    'box', [(30, 20, 25, 13), (2, 1, 20, 30), (59, 39, 9, 9), (30, 20, 300, 200), (30, 20, 0.5, 1)]
)
def test_pixels_equal_four_taps_in_float64(box, angle):
    pixels = noise()
    maps = crop((12, 9)).maps(np.array([[*box, angle]]))
    found = sample(Frame.from_pixels(pixels), 'bgr', maps[0], (12, 9), 114)
    assert found.dtype == np.float32
    assert np.abs(found - reference(pixels, maps[0], (12, 9), 114)).max() < 0.01


@pytest.mark.parametrize('angle', [0.0, 1.0])
@pytest.mark.parametrize('encoding', ENCODINGS)
def test_every_encoding_is_converted_as_a_whole_image_is(encoding, angle):
    frame = noise_frame(encoding, 40, 30, padding=0)
    maps = crop((8, 8)).maps(np.array([[20, 15, 12, 12, angle], [0, 0, 20, 20, angle]]))
    for each in maps:
        expected = reference(to_color(frame, 'rgb'), each, (8, 8), 7)
        assert np.abs(sample(frame, 'rgb', each, (8, 8), 7) - expected).max() < 0.01


@pytest.mark.parametrize('center', [(-500, 5), (5, 1e9), (1e12, 1e12)])
def test_a_region_outside_the_image_is_padding(center):
    maps = crop().maps(np.array([[*center, 30, 30, 0.3]]))
    assert np.array_equal(
        sample(Frame.from_pixels(noise()), 'rgb', maps[0], (4, 4), 99), np.full((4, 4, 3), 99.0)
    )


def test_values_are_normalized_as_those_of_whole_images():
    normalized = {'scale': 1 / 255, 'mean': (0.4, 0.5, 0.6), 'std': (0.2, 0.3, 0.4)}
    pixels = noise(16, 16)
    whole, _ = Preprocess((16, 16), resize='stretch', dtype='float16', **normalized)(
        Frame.from_pixels(pixels)
    )
    region = Crop(Preprocess((16, 16), dtype='float16', **normalized))
    found = region(Frame.from_pixels(pixels), region.maps(np.array([[8, 8, 16, 16, 0.0]])))
    assert found.dtype == np.float16
    assert np.array_equal(found, whole)


def test_keypoints_return_to_the_pixels_that_the_input_shows_and_other_results_stay():
    maps = crop((20, 10), 1.25).maps(np.array([[50, 40, 8, 16, 0.0], [50, 40, 8, 16, math.pi]]))
    found = Poses(detections((0, 0, 10, 20)), np.array([[[5, 10, 0.5], [0, 0, 1]]], np.float32))
    upright, turned = (found.to_source(each) for each in maps)
    assert upright.keypoints.tolist() == [[[50, 40, 0.5], [45, 30, 1]]]
    assert turned.keypoints[0, 1].tolist() == pytest.approx([55, 50, 1])
    for each in (upright, turned):
        assert each.detections.xyxy.tolist() == [pytest.approx([45, 30, 55, 50], abs=1e-4)]
    assert found.keypoints[0, 0].tolist() == [5, 10, 0.5]
    found = Classification(np.ones(3, np.float32))
    assert found.to_source(crop().maps(np.array([[5, 5, 5, 5, 1.0]]))[0]) is found


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        ({'resize': 'letterbox'}, "region_resize is 'letterbox'"),
        ({'scale': 0.0}, 'region_scale is 0.0, expected above 0'),
        ({'dtype': 'bfloat16'}, 'Unsupported input dtype bfloat16'),
        ({'channels': 1}, 'Unsupported network of 1 image channels for regions'),
    ],
)
def test_other_values_are_refused(values, message):
    with pytest.raises(ParameterError, match=message):
        crop(**values)


@pytest.mark.parametrize(
    'region',
    [
        (np.nan, 1, 2, 2, 0),
        (1, 1, np.inf, 2, 0),
        (1, 1, 0, 2, 0),
        (1, 1, 2, -1, 0),
        (1e300, 1, 2, 2, 0),
        (1, 1, 1e300, 2, 0),
    ],
)
def test_rejects_region_without_a_crop(region):
    with pytest.raises(ParameterError, match='not finite, too large, or has no area'):
        crop().maps(np.array([region]))
