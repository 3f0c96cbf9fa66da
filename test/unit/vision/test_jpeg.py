"""Headers of JPEG images that OpenCV wrote, some of them damaged, and frames of their pixels."""

from functools import partial

import cv2
import numpy as np
import pytest

from trt_ros.errors import BadFrameError
from trt_ros.vision.picture_header import JpegFrame, read_jpeg_header

SAMPLINGS = ('444', '422', '420', '440')


def jpeg_of(pixels, **options):
    """Encode; `options` are cv2's parameters IMWRITE_JPEG_..., without this prefix."""
    flags = [(getattr(cv2, f'IMWRITE_JPEG_{name}'), value) for name, value in options.items()]
    return cv2.imencode('.jpg', pixels, [number for flag in flags for number in flag])[1]


def sampling(name):
    return getattr(cv2, f'IMWRITE_JPEG_SAMPLING_FACTOR_{name}')


def patched(jpeg, marker, offset, replacement):
    """Replace bytes at an offset from the first marker segment of this kind."""
    jpeg = jpeg.copy()
    at = jpeg.tobytes().index(bytes([0xFF, marker])) + offset
    jpeg[at : at + len(replacement)] = list(replacement)
    return jpeg


@pytest.fixture(scope='module')
def pixels():
    y, x = np.mgrid[:45, :67]
    return np.stack([3 * x, 5 * y, x + y], -1).astype(np.uint8)


def with_bytes(jpeg, inserted):
    """Insert bytes behind the first marker."""
    return np.concatenate([jpeg[:2], np.frombuffer(inserted, np.uint8), jpeg[2:]])


def with_adobe(jpeg, transform):
    """Insert the segment that tells the colors."""
    return with_bytes(jpeg, b'\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00' + bytes([transform]))


@pytest.mark.parametrize(
    ('make', 'channels'),
    [
        *((partial(jpeg_of, SAMPLING_FACTOR=sampling(name)), 3) for name in SAMPLINGS),
        (lambda pixels: jpeg_of(pixels[..., 0]), 1),
        (lambda pixels: jpeg_of(pixels, RST_INTERVAL=2), 3),
        (lambda pixels: np.concatenate([jpeg_of(pixels), np.zeros(50, np.uint8)]), 3),
        (lambda pixels: with_bytes(jpeg_of(pixels), b'\xff\xff\xff'), 3),
        (lambda pixels: with_adobe(jpeg_of(pixels), 1), 3),
    ],
    ids=[*SAMPLINGS, 'gray', 'restarts', 'trailing bytes', 'fill bytes', 'Adobe 1'],
)
def test_usual_jpeg_is_plain(pixels, make, channels):
    header = read_jpeg_header(make(pixels))
    found = header.width, header.height, header.channels, header.is_plain
    assert found == (67, 45, channels, True)


@pytest.mark.parametrize(
    'make',
    [
        lambda pixels: jpeg_of(pixels, PROGRESSIVE=1),
        lambda pixels: jpeg_of(pixels, SAMPLING_FACTOR=sampling('411')),
        lambda pixels: patched(jpeg_of(pixels), 0xC0, 4, b'\x0c'),  # 12 bits.
        lambda pixels: patched(jpeg_of(pixels), 0xC0, 5, b'\0\0'),  # The height comes later.
        lambda pixels: patched(jpeg_of(pixels), 0xC0, 10, b'R\x22\x00G\x11\x01B\x11\x01'),
        lambda pixels: with_adobe(jpeg_of(pixels), 0),
        lambda pixels: with_adobe(jpeg_of(pixels), 2),
    ],
    ids=['progressive', '4:1:1', '12 bits', 'no height', 'components', 'Adobe 0', 'Adobe 2'],
)
def test_unusual_jpeg_is_for_the_cpu(pixels, make):
    assert not read_jpeg_header(make(pixels)).is_plain


def test_other_files_have_no_jpeg_header_and_impossible_ones_are_bad(pixels):
    for data in (cv2.imencode('.png', pixels)[1], np.zeros(0, np.uint8), np.zeros(100, np.uint8)):
        assert read_jpeg_header(data) is None
    jpeg = patched(jpeg_of(pixels), 0xC0, 5, b'\xff\xff\xff\xff')
    with pytest.raises(BadFrameError, match='claims 65535 × 65535 pixels'):
        read_jpeg_header(jpeg)
    jpeg = jpeg_of(pixels)
    with pytest.raises(BadFrameError, match='has an invalid marker'):
        read_jpeg_header(np.concatenate([jpeg[:2], np.zeros(8, np.uint8), jpeg[2:]]))
    with pytest.raises(BadFrameError, match='has no frame header'):
        read_jpeg_header(patched(jpeg, 0xC0, 1, b'\xed'))


@pytest.mark.parametrize('kept', [2, 3, 20, 200, 0.5, -1])
def test_truncated_jpeg_is_bad(pixels, kept):
    jpeg = jpeg_of(pixels)
    part = jpeg[: int(kept * jpeg.size) if isinstance(kept, float) else kept]
    with pytest.raises(BadFrameError, match=r'ends in its header|is truncated') as raised:
        read_jpeg_header(part)
    assert raised.value.kind == 'undecodable image'


def test_single_color_has_few_bytes_and_is_accepted():
    for channels in ((), (3,)):
        pixels = np.full((2160, 3840, *channels), 7, np.uint8)
        assert read_jpeg_header(jpeg_of(pixels, OPTIMIZE=1, QUALITY=1)).is_plain
        assert read_jpeg_header(jpeg_of(pixels, OPTIMIZE=1, PROGRESSIVE=1)).width == 3840


def test_frame_is_decoded_when_its_pixels_are_needed(pixels):
    jpeg, decoded = jpeg_of(pixels), []

    def decode():
        decoded.append(cv2.imdecode(jpeg, cv2.IMREAD_UNCHANGED))
        return decoded[-1]

    frame = JpegFrame(read_jpeg_header(jpeg), 'bgr8', jpeg, decode)
    assert (frame.wh, frame.step, frame.nbytes, frame.encoding) == ((67, 45), 201, 9045, 'bgr8')
    assert not decoded
    assert frame.data.tobytes() == decoded[0].tobytes()
    assert frame.data is frame.data
    assert len(decoded) == 1


def test_frame_of_other_pixels_than_its_header_is_bad(pixels):
    frame = JpegFrame(
        read_jpeg_header(jpeg_of(pixels)), 'bgr8', jpeg_of(pixels), lambda: pixels[:5]
    )
    with pytest.raises(BadFrameError, match='1005 bytes of pixels, its header 9045'):
        _ = frame.data
