"""Headers of JPEG images, and frames that are decoded where their pixels are needed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
import struct
from typing import ClassVar

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.vision.frame import Frame

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
class JpegHeader:
    """
    The header of a JPEG.

    :param channels: 3 for color, 1 for gray.
    :param is_plain: whether it is 8-bit baseline, gray or YCbCr in a usual sampling, with its own
        Huffman tables and at most MAX_GPU_PIXELS, which GPU decoders decode like others.
    """

    codec: ClassVar[str] = 'jpeg'
    width: int
    height: int
    channels: int
    is_plain: bool


class JpegFrame(Frame):
    """
    A JPEG as a frame of its pixels; the GPU decodes it, or else the first access to `data`.

    :param bitstream: 1-D contiguous uint8, the whole file.
    :param decode: decodes the pixels on the CPU: contiguous uint8, in `encoding`.
    :param encoding: one of 8 bits per channel.
    """

    def __init__(
        self,
        header: JpegHeader,
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


def read_jpeg_header(data: np.ndarray, *, is_whole: bool = True) -> JpegHeader | None:
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
        raise _bad(data, 'has no frame header')
    if is_whole and data[-2:].tobytes() != _END and _END not in data[scan:].tobytes():
        raise _bad(data, 'is truncated')
    bits, height, width, channels = _FRAME.unpack_from(frame)
    if width * height > data.size * _MAX_PIXELS_PER_BYTE:
        raise _bad(data, f'claims {width} × {height} pixels, impossible for its size')
    components = frame[_FRAME.size :]
    is_plain = (
        is_plain
        and has_tables
        and bits == 8
        and 0 < width * height <= MAX_GPU_PIXELS
        and tuple(components[1::3]) in _SAMPLINGS
        and components[::3] != b'RGB'  # Such a JPEG is not YCbCr.
    )
    return JpegHeader(width, height, channels, is_plain)


def _segments(data: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """Yield marker and content of each segment up to the first scan."""
    view, at, marker = data.data, 2, 0
    while marker != _SCAN:
        if at + _SEGMENT.size > data.size:
            raise _bad(data, 'ends in its header')
        ff, marker, length = _SEGMENT.unpack_from(view, at)
        if ff != 0xFF or (marker != 0xFF and (length < 2 or marker in _WITHOUT_LENGTH)):
            raise _bad(data, 'has an invalid marker')
        if marker == 0xFF:  # A fill byte.
            at += 1
        else:
            yield marker, bytes(view[at + 4 : at + 2 + length])
            at += 2 + length


def _bad(data: np.ndarray, problem: str) -> BadFrameError:
    return BadFrameError('undecodable image', f'A JPEG of {data.size} bytes {problem}.')
