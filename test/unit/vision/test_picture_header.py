"""Headers of encoded images: sizes, bombs that are refused before decoding, and damage."""

import struct

import cv2
import numpy as np
import pytest

from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr import EncodedView
from trt_ros.ros.frames import to_frame
from trt_ros.vision.picture_header import read_picture_header
from trt_ros.vision.pixel_limit import MAX_IMAGE_PIXELS

Y, X = np.mgrid[:45, :67]
PIXELS = np.stack([3 * X, 5 * Y, X + Y], -1).astype(np.uint8)


def encoded(suffix, pixels=PIXELS, *flags):
    return cv2.imencode(suffix, pixels, flags)[1]


WITH_ALPHA = np.dstack([PIXELS, PIXELS[..., :1]])
PICTURES = {
    'jpeg': encoded('.jpg'),
    'png': encoded('.png'),
    'tiff': encoded('.tiff'),
    'webp': encoded('.webp', PIXELS, cv2.IMWRITE_WEBP_QUALITY, 80),
    'lossless webp': encoded('.webp', PIXELS, cv2.IMWRITE_WEBP_QUALITY, 101),
    'webp with alpha': encoded('.webp', WITH_ALPHA, cv2.IMWRITE_WEBP_QUALITY, 80),
    'bmp': encoded('.bmp'),
    'pnm': encoded('.ppm'),
    'gray pnm': encoded('.pgm', PIXELS[..., 0]),
}


def codec_in(name):
    return next(each for each in ('jpeg', 'png', 'tiff', 'webp', 'bmp', 'pnm') if each in name)


def patched(data, at, value):
    data = data.copy()
    data[at : at + len(value)] = list(value)
    return data


def tiff(order, *fields):
    """Return the header of a TIFF: (tag, type, value) in the four bytes of each value."""
    mark = {'<': b'II', '>': b'MM'}[order]
    entries = (struct.pack(f'{order}HHII', tag, kind, 1, value) for tag, kind, value in fields)
    header = struct.pack(f'{order}2sHIH', mark, 42, 8, len(fields)) + b''.join(entries)
    return np.frombuffer(header, np.uint8)


SIDE = 30_000
BOMBS = {
    'png': patched(PICTURES['png'], 16, struct.pack('>II', SIDE, SIDE)),
    'jpeg': np.concatenate(
        [
            patched(
                PICTURES['jpeg'],
                PICTURES['jpeg'].tobytes().index(b'\xff\xc0') + 5,
                struct.pack('>HH', SIDE, SIDE),
            ),
            np.zeros(SIDE * SIDE // 1024, np.uint8),  # As many as the size needs.
        ]
    ),
    'tiff': tiff('<', (256, 3, SIDE), (257, 3, SIDE)),
    'big-endian tiff': tiff('>', (256, 3, SIDE << 16), (257, 4, SIDE)),
    'tiff with tiles': tiff('<', (256, 4, 10), (257, 4, 10), (322, 4, SIDE), (323, 4, SIDE)),
    'webp': patched(PICTURES['webp'], 26, struct.pack('<HH', 16_000, 16_000)),
    'lossless webp': patched(PICTURES['lossless webp'], 21, struct.pack('<I', 0x0FFFFFFF)),
    'webp with alpha': patched(
        PICTURES['webp with alpha'], 24, struct.pack('<I', SIDE)[:3] + struct.pack('<I', SIDE)[:3]
    ),
    'bmp': patched(PICTURES['bmp'], 18, struct.pack('<ii', SIDE, -SIDE)),
    'pnm': np.frombuffer(b'P6 # a comment\n30000 # another\n 30000 255\n', np.uint8),
}


@pytest.mark.parametrize('name', PICTURES)
def test_the_size_of_a_picture_is_in_its_header_and_limited_and_a_part_of_one_is_an_error(name):
    header = read_picture_header(PICTURES[name], 67 * 45)
    assert (header.codec, header.width, header.height) == (codec_in(name), 67, 45)
    with pytest.raises(BadFrameError, match='67 × 45 pixels, more than max_image_pixels = 3014'):
        read_picture_header(PICTURES[name], 67 * 45 - 1)
    for size in range(60):
        with pytest.raises(BadFrameError):
            read_picture_header(PICTURES[name][:size], 67 * 45 - 1)


@pytest.mark.parametrize('name', BOMBS)
def test_a_bomb_is_refused_before_it_is_decoded(name):
    with pytest.raises(BadFrameError) as caught:
        to_frame(EncodedView((0, 0), '', codec_in(name), BOMBS[name]))
    assert caught.value.kind == 'too many pixels'


def test_a_truncated_png_does_not_reach_the_decoder_and_bytes_behind_one_do():
    for size in (100, PICTURES['png'].size - 12):
        with pytest.raises(BadFrameError, match=r'A PNG of .* bytes is truncated') as caught:
            to_frame(EncodedView((0, 0), '', 'png', PICTURES['png'][:size]))
        assert caught.value.kind == 'undecodable image'
    data = np.concatenate([PICTURES['png'], np.zeros(20, np.uint8)])
    assert read_picture_header(data, MAX_IMAGE_PIXELS).width == 67


def with_size_behind(standalone):
    """Hide a size behind a marker without length: some decoders skip two bytes, some a segment."""
    hidden = standalone + b'\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03' + bytes(300)
    jpeg = PICTURES['jpeg']
    return np.concatenate([jpeg[:2], np.frombuffer(hidden, np.uint8), jpeg[2:]])


@pytest.mark.parametrize(
    ('data', 'problem'),
    [
        (with_size_behind(b'\xff\x00'), 'has an invalid marker'),
        (with_size_behind(b'\xff\x01'), 'has an invalid marker'),
        (with_size_behind(b'\xff\xd0'), 'has an invalid marker'),
        (with_size_behind(b'\xff\xd9'), 'has an invalid marker'),
        # OpenCV takes the character behind a number for its end, whatever it is.
        (np.frombuffer(b'P5 30000#30000\n1 255\n', np.uint8), 'has an invalid header'),
        # The second chunk is longer than the file; OpenCV allocates 2.6 GB.
        (patched(PICTURES['png'], 33, b'\x99'), 'is truncated'),
    ],
    ids=['jpeg 00', 'jpeg 01', 'jpeg d0', 'jpeg d9', 'pnm', 'png'],
)
def test_a_size_cannot_be_hidden(data, problem):
    with pytest.raises(BadFrameError, match=problem):
        read_picture_header(data, MAX_IMAGE_PIXELS)


@pytest.mark.parametrize('name', PICTURES)
def test_no_damaged_picture_has_more_pixels_than_its_header_says(name):
    data, numbers = PICTURES[name], np.random.default_rng(3)
    header = 640 if name == 'jpeg' else 60
    zone = np.r_[:8, data.size - 200 : data.size] if name == 'tiff' else np.r_[:header]
    decoded = 0
    for _ in range(100):
        damaged = data.copy()
        damaged[numbers.choice(zone, 3)] = numbers.integers(0, 256, 3)
        try:
            found = read_picture_header(damaged, 1 << 14)
            pixels = cv2.imdecode(damaged, cv2.IMREAD_UNCHANGED)
        except (BadFrameError, cv2.error):
            continue
        if pixels is not None:
            decoded += 1
            assert pixels.shape[0] * pixels.shape[1] <= found.width * found.height
    assert decoded or 'png' in name or 'webp' in name  # PNG has checksums.


@pytest.mark.parametrize('codec', ['tiff', 'webp', 'bmp'])
def test_other_codecs_are_decoded_only_where_the_format_names_them(codec):
    named = EncodedView((0, 0), '', f'bgr8; {codec} compressed bgr8', PICTURES[codec])
    assert to_frame(named).wh == (67, 45)
    for format_ in ('jpeg', '', 'bgr8; png compressed bgr8'):
        with pytest.raises(BadFrameError, match=f'is a {codec.upper()}') as caught:
            to_frame(EncodedView((0, 0), '', format_, PICTURES[codec]))
        assert caught.value.kind == 'unknown compression'


@pytest.mark.parametrize('format_', ['jpeg', 'png', '', 'image/jpeg', 'bgr8; jpg compressed'])
@pytest.mark.parametrize('codec', ['jpeg', 'png'])
def test_jpeg_and_png_are_decoded_whatever_the_format_says(codec, format_):
    assert to_frame(EncodedView((0, 0), '', format_, PICTURES[codec])).wh == (67, 45)


@pytest.mark.parametrize(
    'data',
    [b'GIF89a\x43\0\x2d\0\x80\0\0', b'\0\0\0\x1cftypavif\0\0\0\0', b'#?RADIANCE\n', b'', b'\xff'],
)
def test_unsupported_formats_do_not_reach_the_decoder(data):
    with pytest.raises(BadFrameError, match='are no JPEG, PNG') as caught:
        to_frame(EncodedView((0, 0), '', 'jpeg', np.frombuffer(data, np.uint8)))
    assert caught.value.kind == 'undecodable image'
