"""CDR serialization of images, read and written in place."""

from collections.abc import Sequence
import struct
from typing import Any, NamedTuple

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.memory import Pool

#: Plain CDR, little endian; each field is aligned to its size, counted from the
#: end of these four bytes.
ENCAPSULATION = b'\0\1\0\0'
_EMPTY = np.empty(0, np.uint8)
_STAMP_AND_NUMBER = {
    order: (struct.Struct(f'{order}iI'), struct.Struct(f'{order}I')) for order in '<>'
}
STAMP = _STAMP_AND_NUMBER['<'][0]
_NBYTES = {kind: struct.calcsize(kind) for kind in 'HIQqd'}

#: Seconds, nanoseconds.
Stamp = tuple[int, int]


class Content(NamedTuple):
    """The content of a message: a frame, arrays by name or a message, maybe as a view."""

    value: Any
    frame_id: str
    stamp: Stamp


class ImageView(NamedTuple):
    """The fields of a sensor_msgs/Image; `data` is a view into the message, (N,) uint8."""

    stamp: Stamp
    frame_id: str
    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: np.ndarray

    @property
    def size(self) -> int:
        """Number of bytes of `data`."""
        return self.data.size


class EncodedView(NamedTuple):
    """
    The fields of a sensor_msgs/CompressedImage or of a packet of a video, as in ImageView.

    :param format: of a video, the codec as published, such as 'h265' or 'hevc;yuv420p;bgr8;bgr8'.
    :param number: counts the packets of most publishers of videos; None without.
    """

    stamp: Stamp
    frame_id: str
    format: str
    data: np.ndarray
    number: int | None = None


def read_image(message: np.ndarray | ImageView) -> ImageView:
    """
    Read a serialized sensor_msgs/Image; return an ImageView as it is.

    :param message: (N,) uint8, contiguous; borrowed by the result.
    :raises BadFrameError: 'bad CDR'; no byte outside of the message is read.
    """
    if isinstance(message, ImageView):
        return message
    fields = Fields(message)
    return ImageView(
        fields.stamp(),
        fields.text('frame_id'),
        fields.number('height'),
        fields.number('width'),
        fields.text('encoding'),
        fields.byte('is_bigendian'),
        fields.number('step'),
        fields.bytes('data'),
    )


def read_compressed_image(message: np.ndarray) -> EncodedView:
    """Read a serialized sensor_msgs/CompressedImage, like read_image()."""
    fields = Fields(message)
    return EncodedView(
        fields.stamp(), fields.text('frame_id'), fields.text('format'), fields.bytes('data')
    )


def read_compressed_video(message: np.ndarray) -> EncodedView:
    """Read a serialized foxglove_msgs/CompressedVideo, like read_image()."""
    fields = Fields(message)
    stamp, frame_id, data = fields.stamp(), fields.text('frame_id'), fields.bytes('data')
    return EncodedView(stamp, frame_id, fields.text('format'), data)


def read_ffmpeg_packet(message: np.ndarray) -> EncodedView:
    """Read a serialized ffmpeg_image_transport_msgs/FFMPEGPacket, like read_image()."""
    fields = Fields(message)
    stamp, frame_id = fields.stamp(), fields.text('frame_id')
    fields.numbers('size', 'i', 2)
    codec, [number] = fields.text('encoding'), fields.numbers('pts', 'Q', 1)
    fields.byte('flags')
    fields.byte('is_bigendian')
    return EncodedView(stamp, frame_id, codec, fields.bytes('data'), number)


def read_stamp(message: np.ndarray | ImageView) -> Stamp:
    """Read seconds and nanoseconds of a message that begins with a Header; see read_image()."""
    return message.stamp if isinstance(message, ImageView) else Fields(message).stamp()


class Fields:
    """A sequential reader of the fields of a serialized message, whose `order` is '<' or '>'."""

    def __init__(self, message: np.ndarray) -> None:
        self._message, self._view = message, message.data
        self._end = len(self._view)
        head = bytes(self._view[:4])
        # The last two bytes are options, which plain CDR does not have; DDS puts padding there.
        if len(head) < 4 or head[0] != 0 or head[1] > 1:
            raise BadFrameError(
                'bad CDR',
                f'Unsupported message encoding: header {head.hex(" ") or "missing"}, '
                'not plain CDR.',
                remedy='Publish with a standard ROS 2 middleware.',
            )
        self.order = '<' if head[1] else '>'
        self._stamp, self._number, self._at = *_STAMP_AND_NUMBER[self.order], 4

    def stamp(self) -> Stamp:
        """Read a time stamp: seconds, nanoseconds."""
        return self._stamp.unpack_from(self._view, self._advance(8, 'stamp'))

    def number(self, name: str) -> int:
        """Read an aligned uint32."""
        self._at += -self._at % 4
        return int(self._number.unpack_from(self._view, self._advance(4, name))[0])

    def byte(self, name: str) -> int:
        """Read a uint8."""
        return self._view[self._advance(1, name)]

    def numbers(self, name: str, kind: str, count: int | None = None) -> tuple[int, ...]:
        """Read a sequence of numbers of a format of `struct`, as many as stated if None."""
        if count is None:
            count = self.number(name)
        size = struct.calcsize(kind)
        if count:
            self._at += -(self._at - 4) % size
        return struct.unpack_from(
            f'{self.order}{count}{kind}', self._view, self._advance(count * size, name)
        )

    def array(self, name: str, dtype: np.dtype, count: int | None = None) -> np.ndarray:
        """Return (N,) of `dtype` as a view into the message, which holds N if `count` is None."""
        dtype = np.dtype(self.order + dtype.str[1:])
        if count is None:
            count = self.number(name)
        if count:
            self._at += -(self._at - 4) % dtype.itemsize
        start = self._advance(count * dtype.itemsize, name)
        return np.ndarray((count,), dtype, self._message, start if count else 0)

    def bytes(self, name: str) -> np.ndarray:
        """Return a byte sequence as a view into the message, (N,) uint8."""
        size = self.number(name)
        start = self._advance(size, name)
        return self._message[start : start + size]

    def text(self, name: str) -> str:
        """Read a string as rclpy does: up to its NUL, with invalid UTF-8 replaced."""
        size = self.number(name)
        start = self._advance(size, name)
        text = bytes(self._view[start : start + size])
        return text.split(b'\0', 1)[0].decode('utf-8', 'replace')

    def texts(
        self, name: str, count: int | None, last: tuple[np.ndarray, tuple[str, ...]]
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """
        Read strings.

        :param count: number of strings; None reads it from the message.
        :param last: what the last call returned, which is returned again if they are the same.
        :returns: a copy of their part of the message, (N,) uint8, and the strings.
        """
        self._at += -self._at % 4
        start = self._at
        raw, _ = last
        if len(raw) and self._view[start : start + len(raw)] == raw.data:
            self._at += len(raw)
            return last
        texts = [self.text(name) for _ in range(self.number(name) if count is None else count)]
        return self._message[start : self._at].copy(), tuple(texts)

    def _advance(self, size: int, name: str) -> int:
        start = self._at
        self._at = start + size
        if self._at > self._end:
            raise BadFrameError(
                'bad CDR',
                f'The message is truncated in field {name}.',
                cause=f'It has {self._end} bytes, {name} would end at {self._at}.',
            )
        return start


class ImageWriter:
    """
    A writer of serialized sensor_msgs/Image messages.

    Each message reuses the memory of the previous one, unless that is still referenced.

    >>> writer = ImageWriter()
    >>> pixels = writer.begin((0, 0), 'camera', (640, 480), 'bgr8')
    >>> pixels[:] = 0
    >>> writer.message.size
    921656
    """

    def __init__(self) -> None:
        self._pool = Pool()
        self._head, self._head_of = bytearray(), ('', (0, 0), '', 0)
        self._next: tuple[np.ndarray, memoryview, np.ndarray] | None = None
        self.message: np.ndarray = _EMPTY

    def begin(
        self,
        stamp: Stamp,
        frame_id: str,
        image_wh: tuple[int, int],
        encoding: str,
        *,
        channels: int = 3,
    ) -> np.ndarray:
        """Write all fields but the pixels; return these, (height, width, channels), to fill."""
        head_of = frame_id, image_wh, encoding, channels
        if head_of != self._head_of:
            self._head, self._head_of, self._next = _image_head(*head_of), head_of, None
        (self.message, written, pixels), self._next = self._next or self._taken(), None
        STAMP.pack_into(written, len(ENCAPSULATION), *stamp)
        return pixels

    def prepare(self) -> None:
        """Take memory for a message like the last one, so that the next `begin` is fast."""
        self._next = self._taken()

    def _taken(self) -> tuple[np.ndarray, memoryview, np.ndarray]:
        """Return a message with its head, its bytes and its pixels."""
        head, (_, (width, height), _, channels) = self._head, self._head_of
        self.message = (
            _EMPTY  # Frees the memory of the last one, unless it is referenced elsewhere.
        )
        message = self._pool.take(len(head) + channels * width * height)
        message.data[: len(head)] = head
        pixels: np.ndarray = np.ndarray((height, width, channels), np.uint8, message, len(head))
        return message, message.data, pixels


def _image_head(
    frame_id: str, image_wh: tuple[int, int], encoding: str, channels: int
) -> bytearray:
    width, height = image_wh
    step = width * channels
    head = begin_message((0, 0), frame_id)
    append_aligned(head, 'I', height, width)
    append_text(head, encoding)
    head.append(0)  # is_bigendian
    append_aligned(head, 'I', step, step * height)
    return head


def begin_message(stamp: Stamp, frame_id: str) -> bytearray:
    """Return the beginning of a message: a Header."""
    message = bytearray(ENCAPSULATION) + STAMP.pack(*stamp)
    append_text(message, frame_id)
    return message


def append_aligned(message: bytearray, kind: str, *numbers: float) -> None:
    """Append numbers of a format of `struct`, and the padding before them."""
    if numbers:
        message += bytes((4 - len(message)) % _NBYTES[kind])  # After the encapsulation.
        message += struct.pack(f'<{len(numbers)}{kind}', *numbers)


def append_numbers(message: bytearray, kind: str, numbers: Sequence[int]) -> None:
    """Append a sequence of numbers of a format of `struct`."""
    append_aligned(message, 'I', len(numbers))
    append_aligned(message, kind, *numbers)


def append_data(
    message: bytearray, values: np.ndarray, inserted: list[tuple[int, np.ndarray]]
) -> None:
    """Append the bytes of a contiguous array as a sequence, most of them by `with_data`."""
    append_aligned(message, 'I', values.nbytes)
    data = values.reshape(-1).view(np.uint8)
    whole = data.size // 8 * 8  # What follows stays aligned without them.
    inserted.append((len(message), data[:whole]))
    message += data[whole:].data


def with_data(message: bytearray, inserted: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return a message, (N,) uint8, with arrays inserted at positions: each is copied once."""
    whole = np.empty(len(message) + sum(data.size for _, data in inserted), np.uint8)
    small, at, begin = np.frombuffer(message, np.uint8), 0, 0
    for end, data in (*inserted, (small.size, small[:0])):
        for part in (small[begin:end], data):
            whole[at : at + part.size] = part
            at += part.size
        begin = end
    return whole


def append_text(message: bytearray, text: str) -> None:
    """Append a string: its size with the NUL, then its bytes."""
    encoded = text.encode()
    append_aligned(message, 'I', len(encoded) + 1)
    message += encoded
    message.append(0)
