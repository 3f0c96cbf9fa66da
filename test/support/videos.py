"""Streams of video, encoded by PyAV."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
import os
from typing import Any, NamedTuple

import av
import cv2
import numpy as np

KEY_INTERVAL = 5
ENCODERS = {'h264': 'libx264', 'h265': 'libx265', 'av1': 'libsvtav1'}
_OPTIONS = {
    'h264': {'preset': 'ultrafast'},
    'h265': {
        'preset': 'ultrafast',
        'x265-params': f'log-level=none:repeat-headers=1:scenecut=0:min-keyint={KEY_INTERVAL}:'
        f'keyint={KEY_INTERVAL}',
    },
    'av1': {'preset': '11', 'svtav1-params': 'pred-struct=1:lookahead=0'},
}


class Encoded(NamedTuple):
    """A packet; `number` is that of its picture."""

    number: int
    data: np.ndarray


def moving_disc(count: int, wh: tuple[int, int] = (128, 96)) -> list[np.ndarray]:
    """Return pictures, (H, W, 3) uint8 BGR, of a disc that moves before a background."""
    width, height = wh
    y, x = np.mgrid[:height, :width]
    background = np.stack([x * 255 // width, y * 255 // height, (x + y) % 97], axis=2)
    pictures = []
    for index in range(count):
        pixels = background.astype(np.uint8)
        cv2.circle(pixels, (20 + 4 * index % (width - 40), height // 2), 15, (30, 60, 250), -1)
        pictures.append(pixels)
    return pictures


def encode(
    codec: str,
    pictures: Iterable[np.ndarray],
    b_frames: int = 0,
    pix_fmt: str = 'yuv420p',
    **options: str,
) -> list[Encoded]:
    """Encode pictures, with a key frame every KEY_INTERVAL; packets are in decoding order."""
    context: Any = None
    packets: list[Any] = []
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    for number, pixels in enumerate(pictures):
        if context is None:
            context = av.CodecContext.create(ENCODERS[codec], 'w')
            context.height, context.width = pixels.shape[:2]
            context.pix_fmt, context.time_base = pix_fmt, Fraction(1, 30)
            context.framerate, context.gop_size = 30, KEY_INTERVAL
            context.max_b_frames = b_frames
            latency = {} if b_frames or codec == 'av1' else {'tune': 'zerolatency'}
            context.options = {**_OPTIONS[codec], **latency, **options}
        frame = av.VideoFrame.from_ndarray(pixels, format='bgr24')
        frame.pts = number
        packets += context.encode(frame)
    packets += context.encode(None)
    # For root, SVT-AV1 moves the thread that opens its first encoder to SCHED_FIFO, and thereby
    # all threads that this one starts later: they would starve every other program.
    os.sched_setscheduler(0, policy, priority)
    return [Encoded(each.pts, np.frombuffer(bytes(each), np.uint8)) for each in packets]


def decode(codec: str, packets: Sequence[Encoded], format_: str = 'nv12') -> list[np.ndarray]:
    """Return the pictures as PyAV decodes them from a whole stream."""
    context: Any = av.CodecContext.create(
        {'h265': 'hevc', 'av1': 'libdav1d'}.get(codec, codec), 'r'
    )
    found = [each for packet in packets for each in context.decode(av.Packet(packet.data))]
    return [each.to_ndarray(format=format_) for each in (*found, *context.decode(None))]
