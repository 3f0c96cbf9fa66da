"""Networks of one and four channels: gray levels, depths and alpha."""

import cv2
import numpy as np
import pytest

from trt_ros.errors import BadFrameError
from trt_ros.runtime.gpu.preprocess import Geometry, preprocess_args
from trt_ros.vision.frame import ENCODINGS, Frame
from trt_ros.vision.letterbox import RESIZES, Preprocess

STRETCH = Preprocess((48, 64), 'stretch', scale=1.0, channels=1)


def noise(*shape: int, high: int = 256, dtype: str = 'uint8') -> np.ndarray:
    return np.random.default_rng(3).integers(0, high, shape).astype(dtype)


@pytest.mark.parametrize('size', [(96, 128), (300, 500), (30, 20)])
def test_gray_levels_equal_opencv(size):
    pixels = noise(*size, 3)
    got, _ = STRETCH(Frame.from_pixels(pixels))
    gray = pixels.astype(np.float32) @ np.float32([0.114, 0.587, 0.299])
    want = cv2.resize(gray, (64, 48), interpolation=cv2.INTER_LINEAR)
    assert got.shape == (1, 1, 48, 64)
    np.testing.assert_allclose(got[0, 0], want, atol=0.02)


@pytest.mark.parametrize('order', ['<', '>'])
def test_mono16_keeps_all_bits(order):
    pixels = noise(48, 64, high=65536, dtype='uint16')
    frame = Frame.from_pixels(pixels.astype(order + 'u2'), 'mono16')
    np.testing.assert_allclose(STRETCH(frame)[0][0, 0], pixels / 256, rtol=1e-6)


def test_millimeters_and_meters_are_the_same_depth_and_0_is_padding_or_not_finite():
    millimeters = noise(60, 80, high=9000, dtype='uint16')
    meters = (millimeters / 1000).astype(np.float32)
    preprocess = Preprocess((48, 64), mean=(2.0,), std=(4.0,), channels=1)
    integers, _ = preprocess(Frame.from_pixels(millimeters, '16UC1'))
    floats, _ = preprocess(Frame.from_pixels(meters, '32FC1'))
    np.testing.assert_allclose(integers, floats, atol=1e-6)
    want = (cv2.resize(meters, (64, 48), interpolation=cv2.INTER_LINEAR) - 2) / 4
    np.testing.assert_allclose(floats[0, 0], want, atol=1e-5)
    preprocess = Preprocess((48, 64), pad_value=114, channels=1)
    got = preprocess(Frame.from_pixels(np.full((64, 64), 3, np.float32), '32FC1'))[0][0, 0]
    assert (got[:, :8] == 0).all() and (got[:, 8:56] == 3).all() and (got[:, 56:] == 0).all()
    meters = np.full((48, 64), 3, np.float32)
    meters[0], meters[1] = np.nan, np.inf
    got, _ = STRETCH(Frame.from_pixels(meters, '32FC1'))
    assert np.array_equal(got[0, 0, :2], np.zeros((2, 64))) and (got[0, 0, 2:] == 3).all()


@pytest.mark.parametrize('layout', ['nchw', 'nhwc'])
def test_the_fourth_channel_is_the_second_image(layout):
    colors, meters = noise(48, 64, 3), noise(96, 128, high=5).astype(np.float32)
    preprocess = Preprocess(
        (48, 64), 'stretch', mean=(0, 0, 0, 1), std=(1, 1, 1, 2), channels=4, layout=layout
    )
    got, _ = preprocess(Frame.from_pixels(colors), Frame.from_pixels(meters, '32FC1'))
    planes = got[0] if layout == 'nchw' else got[0].transpose(2, 0, 1)
    assert got.shape == preprocess.shape
    np.testing.assert_allclose(planes[:3], colors[..., ::-1].transpose(2, 0, 1) / 255, atol=1e-6)
    want = cv2.resize(meters, (64, 48), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_allclose(planes[3], (want - 1) / 2, atol=1e-5)


def test_the_fourth_channel_of_one_image_is_its_alpha():
    pixels = noise(48, 64, 4)
    preprocess = Preprocess((50, 64), 'letterbox', scale=1.0, channels=4)
    got, _ = preprocess(Frame.from_pixels(pixels, 'rgba8'))
    assert np.array_equal(got[0, :, 1:49], pixels.transpose(2, 0, 1))
    assert got[0, :, 0, 0].tolist() == [114, 114, 114, 0]


@pytest.mark.parametrize('encoding', ['rgb8', 'bgr8', 'mono8', 'nv12'])
def test_rejects_an_image_without_alpha_and_second_image(encoding):
    data = np.zeros(48 * 64 * 3, np.uint8)
    frame = Frame(data, 64, 48, 64 * ENCODINGS[encoding], encoding)
    with pytest.raises(
        BadFrameError, match=rf'{encoding} has no fourth(.|\n)*Publish rgba8 or bgra8, or bind'
    ) as caught:
        Preprocess((48, 64), channels=4)(frame)
    assert caught.value.kind == 'no fourth channel'
    geometry = Geometry.of(frame)
    with pytest.raises(BadFrameError, match=f'{encoding} has no fourth channel'):
        preprocess_args(Preprocess((48, 64), channels=4), [geometry], [1], 2)
    assert len(preprocess_args(Preprocess((48, 64), channels=4), [geometry] * 2, [1, 1], 2)) == 2


@pytest.mark.parametrize('resize', RESIZES)
def test_the_second_image_lies_where_the_first_one_does(resize):
    """A wide color image and a square depth image of one object, both with a bright square."""
    colors, meters = np.zeros((60, 120, 3), np.uint8), np.zeros((90, 90), np.float32)
    colors[20:40, 40:80], meters[30:60, 30:60] = 255, 1
    preprocess = Preprocess((64, 96), resize, channels=4, pad_value=0)
    got, _ = preprocess(Frame.from_pixels(colors), Frame.from_pixels(meters, '32FC1'))
    bright = [np.argwhere(plane > 0.5) for plane in got[0]]
    for corner in (np.min, np.max):
        np.testing.assert_allclose(corner(bright[3], axis=0), corner(bright[0], axis=0), atol=1)
    geometries = [Geometry(120, 60, 360, 'bgr8', False), Geometry(90, 90, 360, '32FC1', False)]
    first, second = preprocess_args(preprocess, geometries, [1, 2], 3)
    for name in ('left', 'top', 'content_width', 'content_height'):
        assert getattr(first, name) == getattr(second, name)
    assert second.step_x == pytest.approx(90 / second.content_width)
    assert second.step_y == pytest.approx(90 / second.content_height)
