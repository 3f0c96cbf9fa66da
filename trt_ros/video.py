"""Decoding of packets and streams of video by PyAV, which only this module imports."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
import re
from typing import Any, Generic, TypeVar

import numpy as np

from trt_ros.errors import BadFrameError, requires
from trt_ros.vision.pixel_limit import MAX_IMAGE_PIXELS, TOO_MANY_PIXELS
from trt_ros.vision.video_frame import VideoFrame, is_nv12_on_gpu

#: Types of messages with packets of videos, and of all with images.
VIDEO_TYPES = ('foxglove_msgs/msg/CompressedVideo', 'ffmpeg_image_transport_msgs/msg/FFMPEGPacket')
IMAGE_TYPES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage', *VIDEO_TYPES)
#: Part of the name of a codec or encoder, and its decoder.
_DECODERS = {
    '264': 'h264',  # Also of libx264 and h264_nvenc.
    '265': 'hevc',
    'hevc': 'hevc',
    'av1': 'libdav1d',
}
WAITING, LOST, DAMAGED = 'waiting for a key frame', 'lost video packets', 'damaged video packet'
REPEATED = 'repeated video packet'
_BEGIN = WAITING, 'The stream did not begin with a key frame.'
_SURFACES = 8  # GPU pictures that wait or are in flight, beside those of the decoder.
_COUNTED = 3  # Packets in a row with consecutive numbers, after which a gap is a loss.
_TOO_LARGE = (12, 34)  # ENOMEM, ERANGE
_STALL_SECONDS = 10.0
_MAX_DELAY = 16  # Pictures that H.264 and H.265 may reorder.
_START_CODE = b'\0\0\1'
#: Types of the NAL units of pictures, and of key frames.
_PICTURES = {'h264': range(1, 6), 'hevc': range(32)}
_KEY_FRAMES = {'h264': (5,), 'hevc': range(16, 24)}

T = TypeVar('T')


@dataclass(frozen=True)
class Cuda:
    """A GPU that decodes, and its CUDA context, made current by entering it."""

    index: int
    context: AbstractContextManager[None]


class VideoDecoder(Generic[T]):
    """
    A decoder of the packets of one stream, in order; not for several threads at the same time.

    Starts at a key frame; after a lost or damaged packet, continues at the next one.

    :param max_pixels: larger pictures are not decoded.
    :param cuda: the GPU that decodes H.264 and H.265; None for the CPU.
    :raises ParameterError: when PyAV is not installed.
    :ivar delay: packets between that of a picture and the one that completes it: 0 without
        B-frames.
    """

    def __init__(self, max_pixels: int = MAX_IMAGE_PIXELS, cuda: Cuda | None = None) -> None:
        self._av = import_av()
        self._max_pixels, self._cuda = max_pixels, cuda
        self._context: Any = None
        self._decoder = ''
        self.delay, self._count = 0, 0
        self._items: dict[int, T] = {}  # Without a picture yet, by count of the packets.
        self._is_synced, self._is_starting = False, False
        self._loss, self._is_nv12 = _BEGIN, True
        self._number, self._run = -1, 0
        self._newest: bytes | None = None

    def decode(
        self, codec: str, data: np.ndarray, number: int | None, item: T
    ) -> list[tuple[T, VideoFrame]]:
        """
        Decode one packet.

        :param codec: name of the codec or encoder: H.264, H.265 or AV1.
        :param data: (N,) uint8; may be reused at once.
        :param number: that of the packet, if the publisher counts them.
        :param item: returned with the picture of this packet.
        :returns: the pictures that are complete now: one, or with B-frames sometimes none.
        :raises BadFrameError: WAITING, LOST, DAMAGED, REPEATED, 'too many pixels' or 'unknown
            codec'.
        """
        self.open(codec)
        packet = data.tobytes()
        self._refuse_repeated(packet)
        self._check(number)
        self._count += 1
        self._items[self._count] = item
        try:
            found = self._decode(packet)
        except self._av.error.FFmpegError as error:
            if error.errno in _TOO_LARGE:
                self._items.clear()
                raise BadFrameError(
                    TOO_MANY_PIXELS,
                    f'The pictures of the video have more pixels than {self._max_pixels}.',
                    remedy='Set max_image_pixels to more, if you trust the source.',
                ) from error
            self._damage(f'The decoder reports: {error.strerror}.')
            found = []
        if self._is_synced and len(self._items) > self.delay:
            self._damage('The decoder has no picture, as after a lost packet.')
        if not (self._is_synced or (self._is_starting and len(self._items) <= _MAX_DELAY)):
            raise self._unsynced(len(packet))
        return found

    def lose(self, count: int) -> None:
        """Take note of packets that were lost before the next one."""
        self._restart(LOST, f'Packets lost before it: {count}.')

    def close(self) -> None:
        """Release the decoder; it begins anew with the next packet. May be called twice."""
        self._context, self._decoder, self._number, self._run = None, '', -1, 0
        self._restart(*_BEGIN)

    def flush(self) -> list[tuple[T, VideoFrame]]:
        """Return the pictures that are complete without further packets; begins anew."""
        if self._context is None:
            return []
        try:
            return self._taken(self._context.decode(None))
        except self._av.error.FFmpegError:
            return []
        finally:
            self._restart(*_BEGIN)

    def open(self, codec: str) -> None:
        """Open the decoder of a codec, unless it is open; see decode()."""
        name = codec.split(';')[0].lower()
        decoder = next((found for part, found in _DECODERS.items() if part in name), None)
        if decoder is None:
            raise BadFrameError(
                'unknown codec',
                f'Unsupported video codec {codec!r}.',
                remedy='Publish H.264, H.265 or AV1.',
            )
        if decoder == self._decoder:
            return
        self._decoder, create = decoder, self._av.CodecContext.create
        if self._cuda is None or decoder == 'libdav1d':
            self._context = create(decoder, 'r')
        else:
            hardware = self._av.codec.hwaccel.HWAccel(
                'cuda',
                self._cuda.index,
                allow_software_fallback=True,
                options={'primary_ctx': '0', 'current_ctx': '1'},
                is_hw_owned=True,
            )
            with self._cuda.context:
                self._context = create(decoder, 'r', hwaccel=hardware)
        # Threads by frame would delay pictures, and threads by slice hide damage of H.264.
        self._context.thread_count = 0 if decoder == 'libdav1d' else 1
        self._context.flags |= self._av.codec.context.Flags.low_delay
        self._context.options = {
            'max_pixels': str(self._max_pixels),
            'extra_hw_frames': str(_SURFACES),
        }
        self._items.clear()
        self._is_synced, self._is_starting, self.delay = False, False, 0

    def _refuse_repeated(self, packet: bytes) -> None:
        """Raise BadFrameError for the packet before: it would be added to its own picture."""
        is_same, self._newest = packet == self._newest, packet
        # Consecutive pictures have different numbers, except for key frames of some encoders.
        if is_same and self._decoder in _PICTURES and not has_key_frame(self._decoder, packet):
            raise BadFrameError(
                REPEATED,
                f'A video packet of {len(packet)} bytes is the same as the one before it.',
                remedy='Check that one node publishes the topic, and each packet once.',
            )

    def _decode(self, data: bytes) -> list[tuple[T, VideoFrame]]:
        if not data:  # It would end the stream.
            self._damage('It is empty.')
            return []
        packet = self._av.Packet(data)
        packet.pts = self._count
        if not self._is_synced and has_key_frame(self._decoder, data):
            self._is_starting = True
            self._items = {self._count: self._items[self._count]}
        return self._taken(self._context.decode(packet))

    def _taken(self, pictures: list[Any]) -> list[tuple[T, VideoFrame]]:
        """Return the pictures since the last key frame, with their items."""
        found = []
        for picture in pictures:
            count = picture.pts
            if picture.key_frame:
                self._is_nv12 = is_nv12_on_gpu(picture)
            if picture.key_frame and not self._is_synced:
                self._is_synced, self.delay = True, self._count - count
            if count not in self._items:
                continue
            item = self._items.pop(count)
            if picture.is_corrupt:
                self._damage('The decoder reports a damaged picture.')
            elif self._is_synced:
                found.append((item, VideoFrame(picture, self._is_nv12)))
        return found

    def _check(self, number: int | None) -> None:
        """Find a loss by the numbers of the packets, where they are consecutive otherwise."""
        if number is None:
            return
        step, self._number = number - self._number, number
        if step == 1:
            self._run += 1
        elif step < 1:  # Another publisher, or B-frames.
            self._run = 0
        elif self._run >= _COUNTED and not self.delay:
            self.lose(step - 1)

    def _damage(self, cause: str) -> None:
        if self._is_synced or self._is_starting:
            self._restart(DAMAGED, cause)

    def _restart(self, kind: str, cause: str) -> None:
        self._is_synced, self._is_starting, self._loss = False, False, (kind, cause)
        self._items.clear()
        if self._context is not None and self._context.is_open:
            self._context.flush_buffers()

    def _unsynced(self, nbytes: int) -> BadFrameError:
        kind, cause = self._loss
        self._loss, self._is_starting = (WAITING, cause), False
        self._items.clear()
        return BadFrameError(
            kind,
            f'A video packet of {nbytes} bytes cannot be decoded before the next key frame.',
            cause=cause,
            remedy='Shorten the interval between the key frames of the encoder. Pictures of more '
            f'than max_image_pixels = {self._max_pixels} are not decoded.',
        )


def is_address(source: str) -> bool:
    """Return whether a source is the address of a stream, as in rtsp://camera/main."""
    return '://' in source


def read_stream(
    address: str, max_pixels: int = MAX_IMAGE_PIXELS, options: Mapping[str, str] | None = None
) -> Iterator[VideoFrame]:
    """
    Yield the pictures of a stream by its address, from a key frame on, and behind damage again.

    :param address: of RTSP (over TCP), or another that FFmpeg opens.
    :param options: those of FFmpeg, beside ours.
    :raises BadFrameError: 'no image', when the stream cannot be opened, stalls or breaks off.
    """
    av = import_av()
    chosen = {'rtsp_transport': 'tcp', 'max_pixels': str(max_pixels), **(options or {})}
    try:
        with av.open(address, options=chosen, timeout=_STALL_SECONDS) as container:
            context = container.streams.video[0].codec_context
            context.thread_count, is_synced = 1, False
            context.flags |= av.codec.context.Flags.low_delay
            for packet in container.demux(container.streams.video[0]):
                try:
                    pictures = packet.decode()
                except av.error.InvalidDataError:
                    context.flush_buffers()
                    pictures, is_synced = [], False
                for picture in pictures:
                    is_synced = not picture.is_corrupt and (is_synced or picture.key_frame)
                    if is_synced:
                        yield VideoFrame(picture)
    except (av.error.FFmpegError, IndexError) as error:
        raise BadFrameError(
            'no image',
            f'Stream {without_password(address)} cannot be read.',
            cause=getattr(error, 'strerror', '') or 'It has no video.',
            remedy='Check its address, user and password, as with `ffplay ADDRESS`.',
        ) from error


def without_password(address: str) -> str:
    """Return an address without user and password."""
    return re.sub('//[^/]*@', '//', address)


def has_key_frame(decoder: str, packet: bytes) -> bool:
    """Return whether a packet of H.264 or H.265 in Annex B format begins a key frame."""
    if decoder not in ('h264', 'hevc'):
        return False
    at = packet.find(_START_CODE) + len(_START_CODE)
    while len(_START_CODE) <= at < len(packet):
        kind = packet[at] & 31 if decoder == 'h264' else packet[at] >> 1 & 63
        if kind in _PICTURES[decoder]:
            return kind in _KEY_FRAMES[decoder]
        at = packet.find(_START_CODE, at) + len(_START_CODE)
    return False


def why_not_on_gpu(gpu: Cuda | None) -> str:
    """Return why the GPU of a network cannot decode H.264; '' when it can."""
    if gpu is None:
        return 'the network does not run on a GPU'
    try:
        [(_, frame)] = VideoDecoder[None](cuda=gpu).decode('h264', example_packet(), None, None)
    except Exception as error:  # Of PyAV, by the cause.
        return f'{type(error).__name__}: {error}'
    return '' if frame.is_on_gpu else 'no libnvcuvid of the driver, or no decoder of H.264'


def example_packet() -> np.ndarray:
    """Return a key frame of H.264, (N,) uint8."""
    from fractions import Fraction

    av = import_av()
    encoder = av.CodecContext.create('libx264', 'w')
    encoder.width, encoder.height, encoder.pix_fmt = 256, 256, 'yuv420p'
    encoder.time_base, encoder.options = Fraction(1, 30), {'tune': 'zerolatency'}
    (packet,) = encoder.encode(av.VideoFrame(256, 256, 'yuv420p'))
    return np.frombuffer(bytes(packet), np.uint8)


def import_av() -> Any:
    """Return PyAV; raise ParameterError when it is not installed."""
    with requires('the Python package av', 'Decoding of videos', "pip install 'av>=17'"):
        import av
        import av.codec.hwaccel
    return av
