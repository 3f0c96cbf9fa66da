"""Format and size of encoded images, and frames of JPEG that are decoded where they are needed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
import re
import struct

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.vision.frame import Frame
from trt_ros.vision.pixel_limit import check_pixels

#: Larger images are decoded on the CPU.
MAX_GPU_PIXELS = 1 << 26
#: More pixels per byte than any Huffman-coded JPEG has: a block of 64 takes at least two bits,
#: in a progressive one about one.
_MAX_PIXELS_PER_BYTE = 1024
_SEGMENT = struct.Struct('>BBH')  # 0xff, marker, length of the segment.
_FRAME = struct.Struct('>BHHB')  # Bits per sample, height, width, number of components.
_BASELINE, _SCAN, _HUFFMAN_TABLES, _ADOBE = 0xC0, 0xDA, 0xC4, 0xEE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
#: Decoders skip some of these without a length, and would find another size behind them.
_WITHOUT_LENGTH = frozenset((*range(0xC0), *range(0xD0, 0xDA)))
#: Sampling factors (horizontal << 4 | vertical) of 4:4:4, 4:4:0, 4:2:2, 4:2:0 and gray.
_SAMPLINGS = {
    (0x11, 0x11, 0x11),
    (0x12, 0x11, 0x11),
    (0x21, 0x11, 0x11),
    (0x22, 0x11, 0x11),
    (0x11,),
}
_END = b'\xff\xd9'


def example_jpeg() -> np.ndarray:
    """Return the bytes of a JPEG of 64x64 pixels, as uint8."""
    import cv2  # Imported here: networks are opened without it.

    return np.asarray(cv2.imencode('.jpg', np.zeros((64, 64, 3), np.uint8))[1])


@dataclass(frozen=True)
class PictureHeader:
    """
    The header of an encoded image.

    :param codec: as in CompressedImage.
    :param width, height: of a TIFF, at least those of a tile.
    :param channels: of a JPEG: 3 for color, 1 for gray; else 0.
    :param is_plain: whether it is a JPEG of 8-bit baseline, gray or YCbCr in a usual sampling,
        with its own Huffman tables and at most MAX_GPU_PIXELS, which GPU decoders decode like
        others.
    :param orientation: of a WebP: that of its EXIF data, 1 to 8; else 1.
    """

    codec: str
    width: int
    height: int
    channels: int = 0
    is_plain: bool = False
    orientation: int = 1


class JpegFrame(Frame):
    """
    A JPEG as a frame of its pixels; the GPU decodes it, or else the first access to `data`.

    :param bitstream: 1-D contiguous uint8, the whole file.
    :param decode: decodes the pixels on the CPU: contiguous uint8, in `encoding`.
    :param encoding: one of 8 bits per channel.
    """

    def __init__(
        self,
        header: PictureHeader,
        encoding: str,
        bitstream: np.ndarray,
        decode: Callable[[], np.ndarray],
    ) -> None:
        self.__dict__.update(
            width=header.width,
            height=header.height,
            step=header.width * header.channels,
            encoding=encoding,
            is_bigendian=False,
            channels=header.channels,
            bitstream=bitstream,
            _decode=decode,
        )

    channels: int
    bitstream: np.ndarray
    _decode: Callable[[], np.ndarray]

    @cached_property
    def data(self) -> np.ndarray:
        """The pixels, 1-D uint8, decoded on the CPU, or BadFrameError 'undecodable image'."""
        pixels = self._decode().reshape(-1)
        if pixels.size != self.nbytes:
            raise BadFrameError(
                'undecodable image',
                f'The JPEG has {pixels.size} bytes of pixels, its header {self.nbytes}.',
            )
        return pixels


def read_jpeg_header(data: np.ndarray, *, is_whole: bool = True) -> PictureHeader | None:
    """Read the header of a JPEG without its pixels; None for others; or raise BadFrameError."""
    if data[:2].tobytes() != b'\xff\xd8':
        return None
    frame, is_plain, has_tables, scan = b'', True, False, 2
    for marker, content in _segments(data):
        scan += 4 + len(content)
        if marker in _FRAMES:
            frame, is_plain = content, is_plain and marker == _BASELINE
        elif marker == _ADOBE and content[:5] == b'Adobe':
            is_plain = is_plain and content[11:12] == b'\x01'  # YCbCr
        has_tables |= marker == _HUFFMAN_TABLES
    if len(frame) < _FRAME.size:
        raise _bad('jpeg', data, 'has no frame header')
    if is_whole and data[-2:].tobytes() != _END and _END not in data[scan:].tobytes():
        raise _bad('jpeg', data, 'is truncated')
    bits, height, width, channels = _FRAME.unpack_from(frame)
    if width * height > data.size * _MAX_PIXELS_PER_BYTE:
        raise _bad('jpeg', data, f'claims {width} × {height} pixels, impossible for its size')
    components = frame[_FRAME.size :]
    is_plain = (
        is_plain
        and has_tables
        and bits == 8
        and 0 < width * height <= MAX_GPU_PIXELS
        and tuple(components[1::3]) in _SAMPLINGS
        and components[::3] != b'RGB'  # Such a JPEG is not YCbCr.
    )
    return PictureHeader('jpeg', width, height, channels, is_plain)


def _segments(data: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """Yield marker and content of each segment up to the first scan."""
    view, at, marker = data.data, 2, 0
    while marker != _SCAN:
        if at + _SEGMENT.size > data.size:
            raise _bad('jpeg', data, 'ends in its header')
        ff, marker, length = _SEGMENT.unpack_from(view, at)
        if ff != 0xFF or (marker != 0xFF and (length < 2 or marker in _WITHOUT_LENGTH)):
            raise _bad('jpeg', data, 'has an invalid marker')
        if marker == 0xFF:  # A fill byte.
            at += 1
        else:
            yield marker, bytes(view[at + 4 : at + 2 + length])
            at += 2 + length


_PNM = re.compile(rb'P[1-6]\s(?:\s|#[^\r\n]*[\r\n])*(\d{1,9})\s(?:\s|#[^\r\n]*[\r\n])*(\d{1,9})\s')
_MAX_PNM_HEADER = 1 << 16  # Its comments have any length.
_TIFF_WIDTHS, _TIFF_HEIGHTS = (256, 322), (257, 323)  # Tags of the image, and of a tile.
_ORIENTATION = 274
_TIFF_TYPES = {1: 'B', 3: 'H', 4: 'I'}


def picture_codec(start: bytes) -> str:
    """Return the codec of an encoded image, of its first 16 bytes; '' for an unsupported one."""
    if start[:2] == b'\xff\xd8':
        return 'jpeg'
    return next((codec for codec, (found, _) in _CODECS.items() if found(start)), '')


def read_picture_header(
    data: np.ndarray, max_pixels: int, *, is_whole: bool = True
) -> PictureHeader:
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
    return PictureHeader(
        codec, width, height, orientation=_webp_orientation(data.data) if codec == 'webp' else 1
    )


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
    widths, heights = ([0, *_tiff_values(data, tags)] for tags in (_TIFF_WIDTHS, _TIFF_HEIGHTS))
    return max(widths), max(heights)


def _tiff_values(data: memoryview, tags: tuple[int, ...]) -> Iterator[int]:
    """Yield the values of tags of the first directory."""
    order = '<' if data[0] == ord('I') else '>'
    (at,) = struct.unpack_from(f'{order}I', data, 4)
    (count,) = struct.unpack_from(f'{order}H', data, at)
    for entry in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind = struct.unpack_from(f'{order}HH', data, entry)
        if tag in tags:
            yield from struct.unpack_from(order + _TIFF_TYPES[kind], data, entry + 8)


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


def _webp_orientation(data: memoryview) -> int:
    """Return the EXIF orientation, 1 without a valid one."""
    at = 12
    with suppress(struct.error, KeyError, IndexError):
        while True:
            name, nbytes = struct.unpack_from('<4sI', data, at)
            at += 8
            if name == b'EXIF':
                at += 6 * (bytes(data[at : at + 6]) == b'Exif\0\0')
                found = next(_tiff_values(data[at:], (_ORIENTATION,)), 1)
                return found if 1 <= found <= 8 else 1
            at += nbytes + nbytes % 2
    return 1


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
