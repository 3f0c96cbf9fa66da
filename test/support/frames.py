"""Frames of noise, and files of pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trt_ros.media import VideoWriter
from trt_ros.vision.frame import ENCODINGS, Frame


def noise_frame(
    encoding: str, width: int, height: int, *, padding: int = 6, is_bigendian: bool = False
) -> Frame:
    """Return noise of an encoding, in rows that end with `padding` bytes."""
    step = width * ENCODINGS[encoding] + padding
    rows = height * 3 // 2 if encoding in ('nv12', 'nv21') else height
    data = np.random.default_rng(width).integers(0, 256, step * rows, dtype=np.uint8)
    return Frame(data, width, height, step, encoding, is_bigendian)


def write_video(path: Path, pictures: Sequence[np.ndarray], rate_hz: float = 10.0) -> None:
    """Write pictures of one size, (H, W, 3) uint8 BGR."""
    writer = VideoWriter(path, rate_hz, pictures[0].shape[1::-1])
    for pixels in pictures:
        writer.write(pixels)
    writer.release()
