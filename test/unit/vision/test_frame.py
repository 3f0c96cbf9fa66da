from dataclasses import replace

import cv2
import numpy as np
import pytest

from support.frames import noise_frame
from trt_ros.errors import BadFrameError
from trt_ros.vision.frame import ENCODINGS, Frame, to_color

BY_OPENCV = {  # encoding: bytes as (H, W[, C]) -> rgb
    'rgb8': lambda pixels: pixels,
    'bgr8': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB),
    '8UC3': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB),
    'rgba8': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_RGBA2RGB),
    'bgra8': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGB),
    'mono8': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB),
    '8UC1': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB),
    'mono16': lambda pixels: cv2.cvtColor(pixels[..., 1], cv2.COLOR_GRAY2RGB),
    'yuv422': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_YUV2RGB_UYVY),
    'uyvy': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_YUV2RGB_UYVY),
    'yuv422_yuy2': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_YUV2RGB_YUY2),
    'yuyv': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_YUV2RGB_YUY2),
    'nv12': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_YUV2RGB_NV12),
    'nv21': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_YUV2RGB_NV21),
    # OpenCV names a mosaic by the second row's second and third pixel, ROS by the first two rows.
    'bayer_rggb8': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_BayerBG2RGB),
    'bayer_bggr8': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_BayerRG2RGB),
    'bayer_gbrg8': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_BayerGR2RGB),
    'bayer_grbg8': lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_BayerGB2RGB),
}
VIEWED = ('rgb8', 'bgr8', '8UC3', 'rgba8', 'bgra8', 'mono8', '8UC1', 'mono16')
EVEN = ('yuv422', 'uyvy', 'yuv422_yuy2', 'yuyv', 'nv12', 'nv21')


def random_bytes(encoding, width, height, *, padding=0) -> tuple[Frame, np.ndarray]:
    """A frame whose rows end in `padding` bytes, and the same without as OpenCV takes it."""
    frame, nbytes = noise_frame(encoding, width, height, padding=padding), ENCODINGS[encoding]
    pixels = frame.data.reshape(-1, frame.step)[:, : width * nbytes]
    if nbytes > 1:
        pixels = pixels.reshape(-1, width, nbytes)
    return frame, np.ascontiguousarray(pixels)


@pytest.mark.parametrize('encoding', ['16UC1', '32FC1'])
def test_rejects_colors_of_a_depth_image(encoding):
    frame = Frame(np.zeros(48, np.uint8), 4, 3, 16, encoding)
    with pytest.raises(BadFrameError, match=f'{encoding} is of depth images') as error:
        to_color(frame, 'rgb')
    assert error.value.kind == 'depth image'
    assert 'By REP 118' in error.value.cause
    assert 'color/image_raw' in error.value.remedy and 'mono16' in error.value.remedy


def test_every_encoding_is_compared_with_opencv_and_the_last_row_may_end_with_its_last_pixel():
    assert set(BY_OPENCV) == set(ENCODINGS)
    frame = Frame(np.arange(8 + 3, dtype=np.uint8), 1, 2, 8, 'rgb8')
    assert to_color(frame, 'rgb')[1, 0].tolist() == [8, 9, 10]


@pytest.mark.parametrize('padding', [0, 7])
@pytest.mark.parametrize('encoding', ENCODINGS)
def test_colors_are_those_of_opencv(encoding, padding):
    size = (46, 38) if encoding in EVEN else (47, 39)
    frame, pixels = random_bytes(encoding, *size, padding=padding)
    want = BY_OPENCV[encoding](pixels)
    limit = 1 if encoding in EVEN else 0  # OpenCV's YUV may round otherwise on some processors.
    rgb, bgr = to_color(frame, 'rgb'), to_color(frame, 'bgr')
    assert rgb.dtype == np.uint8 and rgb.shape == want.shape
    assert np.abs(rgb.astype(int) - want).max() <= limit
    assert np.array_equal(bgr, rgb[..., ::-1])


@pytest.mark.parametrize('encoding', [name for name in ENCODINGS if name.startswith('bayer')])
def test_the_smallest_mosaics_have_the_colors_of_opencv(encoding):
    for width, height in ((3, 3), (4, 3), (3, 4), (4, 4), (5, 6)):
        frame, pixels = random_bytes(encoding, width, height)
        assert np.array_equal(to_color(frame, 'rgb'), BY_OPENCV[encoding](pixels))


def test_yuv_is_rounded_as_the_docstring_says():
    uyvy = np.random.default_rng(0).integers(0, 256, (500, 4), np.uint8)
    rgb = to_color(Frame(uyvy.reshape(-1), 1000, 1, 2000, 'uyvy'), 'rgb')[0, ::2]
    for got, (u, y, v, _) in zip(rgb.tolist(), uyvy.tolist()):
        luma, u, v = 1220542 * max(y - 16, 0) + 2**19, u - 128, v - 128
        sums = luma + 1673527 * v, luma - 852492 * v - 409993 * u, luma + 2116026 * u
        assert got == [min(max(one >> 20, 0), 255) for one in sums]


@pytest.mark.parametrize('order', ['rgb', 'bgr'])
@pytest.mark.parametrize('encoding', VIEWED)
def test_colors_that_need_no_conversion_are_not_copied(encoding, order):
    frame, _ = random_bytes(encoding, 47, 39, padding=5)
    assert np.shares_memory(to_color(frame, order), frame.data)


@pytest.mark.parametrize(
    ('kind', 'changes'),
    [
        ('unknown encoding', {'encoding': 'rgb16'}),
        ('unknown encoding', {'encoding': ''}),
        ('zero size', {'width': 0}),
        ('zero size', {'height': 0}),
        ('wrong step', {'step': 11}),
        ('wrong step', {'step': 0}),
        ('short data', {'height': 4}),
        ('short data', {'step': 13}),
        ('short data', {'data': np.zeros(0, np.uint8)}),
        ('wrong data', {'data': np.zeros((3, 12), np.uint8)}),
        ('wrong data', {'data': np.zeros(36, np.int8)}),
        ('wrong data', {'data': bytes(36)}),
        ('wrong data', {'data': np.zeros(72, np.uint8)[::2]}),
        ('odd size', {'encoding': 'yuv422', 'width': 3}),
        ('odd size', {'encoding': 'yuyv', 'width': 3}),
        ('odd size', {'encoding': 'nv12', 'width': 4}),
        ('odd size', {'encoding': 'nv21', 'width': 3, 'height': 2}),
        ('short data', {'encoding': 'nv12', 'height': 4}),  # 6 rows, of which 3 are there.
        ('too small', {'encoding': 'bayer_rggb8', 'height': 2}),
        ('too small', {'encoding': 'bayer_gbrg8', 'width': 2}),
    ],
)
def test_a_bad_frame_is_refused_with_its_kind(kind, changes):
    good = Frame(np.zeros(36, np.uint8), width=4, height=3, step=12, encoding='rgb8')
    with pytest.raises(BadFrameError) as error:
        replace(good, **changes)
    assert error.value.kind == kind


@pytest.mark.parametrize(
    'rows, columns, step',
    [
        (slice(0, 20), slice(0, 30), 90),
        (slice(3, 9), slice(4, 11), 90),
        (slice(3, 9), slice(4, 5), 90),
        (slice(3, 4), slice(4, 11), 21),
        (slice(3, 9, 2), slice(0, 30), 180),
        (slice(3, 9), slice(0, 30), 90),
    ],
)
def test_an_array_or_a_crop_becomes_a_frame_without_a_copy(rows, columns, step):
    whole = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    crop = whole[rows, columns]
    frame = Frame.from_pixels(crop)
    assert (frame.width, frame.height, frame.step) == (crop.shape[1], crop.shape[0], step)
    assert np.shares_memory(frame.data, whole)
    assert frame.data.size == frame.nbytes
    assert np.array_equal(to_color(frame, 'bgr'), crop)


@pytest.mark.parametrize(
    'turn',
    [
        lambda pixels: pixels[::-1],
        lambda pixels: pixels[:, ::-1],
        lambda pixels: pixels[:, ::2],
        lambda pixels: pixels[..., ::-1],
        lambda pixels: pixels.transpose(1, 0, 2),
        lambda pixels: np.broadcast_to(pixels[:1], (5, 8, 3)),
    ],
)
def test_non_contiguous_pixels_are_copied(turn):
    pixels = turn(np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8))
    assert np.array_equal(to_color(Frame.from_pixels(pixels), 'bgr'), pixels)


@pytest.mark.parametrize('order', ['<', '>'])
def test_an_array_of_16_bits_keeps_its_byte_order(order):
    pixels = np.array([[0x1234, 0xABCD]], order + 'u2')
    frame = Frame.from_pixels(pixels, 'mono16')
    assert frame.is_bigendian == (order == '>')
    assert to_color(frame, 'rgb')[0, :, 0].tolist() == [0x12, 0xAB]


def test_an_array_of_nv12_has_two_thirds_of_its_rows_and_a_gray_one_is_no_color():
    frame = Frame.from_pixels(np.full((6, 8), 128, np.uint8), 'nv12')
    assert (frame.width, frame.height) == (8, 4)
    with pytest.raises(BadFrameError, match=r'\(5, 5\) uint8 does not match bgr8') as error:
        Frame.from_pixels(np.zeros((5, 5), np.uint8))
    assert "Frame.from_pixels(array, 'mono8')" in error.value.remedy


@pytest.mark.parametrize(
    ('shape', 'dtype', 'encoding', 'kind'),
    [
        ((0, 5, 3), np.uint8, 'bgr8', 'zero size'),
        ((5, 0, 3), np.uint8, 'bgr8', 'zero size'),
        ((5,), np.uint8, 'mono8', 'wrong data'),
        ((5, 5), np.uint8, 'bgr8', 'wrong data'),
        ((5, 5, 4), np.uint8, 'bgr8', 'wrong data'),
        ((5, 5), np.float32, 'bgra8', 'wrong data'),
        ((5, 5), np.uint8, 'mono16', 'wrong data'),
        ((5, 5, 3), np.uint8, 'rgb', 'unknown encoding'),
    ],
)
def test_an_array_of_another_kind_is_refused(shape, dtype, encoding, kind):
    with pytest.raises(BadFrameError) as error:
        Frame.from_pixels(np.zeros(shape, dtype), encoding)
    assert error.value.kind == kind
