"""Format and size of encoded images, read before a decoder allocates memory for their pixels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import re
import struct

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.vision.jpeg import JpegHeader, read_jpeg_header
from trt_ros.vision.pixel_limit import check_pixels

_PNM = re.compile(rb'P[1-6]\s(?:\s|#[^\r\n]*[\r\n])*(\d{1,9})\s(?:\s|#[^\r\n]*[\r\n])*(\d{1,9})\s')
_MAX_PNM_HEADER = 1 << 16  # Its comments have any length.
_TIFF_WIDTHS, _TIFF_HEIGHTS = (256, 322), (257, 323)  # Tags of the image, and of a tile.
_TIFF_TYPES = {1: 'B', 3: 'H', 4: 'I'}


@dataclass(frozen=True)
class PictureHeader:
    """An image's header; `codec` as in CompressedImage; a TIFF is at least a tile."""

    codec: str
    width: int
    height: int


def picture_codec(start: bytes) -> str:
    """Return the codec of an encoded image, of its first 16 bytes; '' for an unsupported one."""
    if start[:2] == b'\xff\xd8':
        return JpegHeader.codec
    return next((codec for codec, (found, _) in _CODECS.items() if found(start)), '')


def read_picture_header(
    data: np.ndarray, max_pixels: int, *, is_whole: bool = True
) -> JpegHeader | PictureHeader:
    """Read the header of a JPEG, PNG, TIFF, WebP, BMP or PNM without pixels, or raise."""
    header = read_jpeg_header(data, is_whole=is_whole) or _read_header(data, is_whole)
    check_pixels(header.width, header.height, max_pixels)
    return header


def _read_header(data: np.ndarray, is_whole: bool) -> PictureHeader:
    codec = picture_codec(data[:16].tobytes())
    if not codec:
        raise BadFrameError(
            'undecodable image',
            f'The {data.size} bytes of the image are no JPEG, PNG, TIFF, WebP, BMP or PNM.',
        )
    _, size_of = _CODECS[codec]
    try:
        width, height = size_of(data.data)
    except (struct.error, KeyError, ValueError) as error:
        raise _bad(codec, data, 'has an invalid header') from error
    if not width * height:
        raise _bad(codec, data, f'has {width} × {height} pixels')
    if codec == 'png' and is_whole and not _has_png_end(data.data):
        raise _bad(codec, data, 'is truncated')
    return PictureHeader(codec, width, height)


def _has_png_end(data: memoryview) -> bool:
    """Walk over the chunks: OpenCV allocates the length that one states, up to 4 GB."""
    at = 8
    while at + 12 <= len(data):
        length, name = struct.unpack_from('>I4s', data, at)
        at += 12 + length
        if name == b'IEND':
            return bool(at <= len(data))
    return False


def _png_size(data: memoryview) -> tuple[int, int]:
    name, width, height = struct.unpack_from('>4sII', data, 12)
    if name != b'IHDR':
        raise ValueError(name)
    return width, height


def _tiff_size(data: memoryview) -> tuple[int, int]:
    order = '<' if data[0] == ord('I') else '>'
    (at,) = struct.unpack_from(f'{order}I', data, 4)
    (count,) = struct.unpack_from(f'{order}H', data, at)
    widths, heights = [0], [0]
    for entry in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind = struct.unpack_from(f'{order}HH', data, entry)
        if tag in _TIFF_WIDTHS + _TIFF_HEIGHTS:
            (value,) = struct.unpack_from(order + _TIFF_TYPES[kind], data, entry + 8)
            (widths if tag in _TIFF_WIDTHS else heights).append(value)
    return max(widths), max(heights)


def _webp_size(data: memoryview) -> tuple[int, int]:
    chunk = bytes(data[12:16])
    if chunk == b'VP8X':
        (canvas,) = struct.unpack('<Q', bytes(data[24:30]) + b'\0\0')
        return (canvas & 0xFFFFFF) + 1, (canvas >> 24) + 1
    if chunk == b'VP8L':
        (packed,) = struct.unpack_from('<I', data, 21)
        return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
    if chunk != b'VP8 ':
        raise ValueError(chunk)
    width, height = struct.unpack_from('<HH', data, 26)
    return width & 0x3FFF, height & 0x3FFF


def _bmp_size(data: memoryview) -> tuple[int, int]:
    (nbytes,) = struct.unpack_from('<I', data, 14)
    width, height = struct.unpack_from('<HH' if nbytes == 12 else '<ii', data, 18)
    return abs(width), abs(height)


def _pnm_size(data: memoryview) -> tuple[int, int]:
    found = _PNM.match(bytes(data[:_MAX_PNM_HEADER]))
    if found is None:
        raise ValueError
    return int(found[1]), int(found[2])


_CODECS: Mapping[
    str, tuple[Callable[[bytes], object], Callable[[memoryview], tuple[int, int]]]
] = {
    'png': (re.compile(rb'\x89PNG\r\n\x1a\n').match, _png_size),
    'tiff': (re.compile(rb'II\*\0|MM\0\*').match, _tiff_size),
    'webp': (re.compile(rb'RIFF....WEBP', re.DOTALL).match, _webp_size),
    'bmp': (re.compile(rb'BM').match, _bmp_size),
    'pnm': (re.compile(rb'P[1-6]\s').match, _pnm_size),
}


def _bad(codec: str, data: np.ndarray, problem: str) -> BadFrameError:
    return BadFrameError('undecodable image', f'A {codec.upper()} of {data.size} bytes {problem}.')
