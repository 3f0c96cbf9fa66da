"""Decoded pictures of videos as frames, which are converted where their pixels are needed."""

from functools import cached_property
from typing import Any

import numpy as np

from trt_ros.vision.frame import Frame

_IN_GPU_MEMORY = 'cuda'  # The format of such pictures in PyAV.
#: Formats of PyAV whose pixels nv12 holds without a change.
_LIKE_NV12 = ('yuv420p', 'nv12', _IN_GPU_MEMORY)
#: FFmpeg's AVColorSpace of nv12 here: unspecified, and the two of BT.601.
_BT601 = (2, 5, 6)
_FULL_RANGE = 2  # FFmpeg's AVColorRange.


def is_nv12_on_gpu(picture: Any) -> bool:
    """Return whether a picture in GPU memory is nv12; True for one in host memory."""
    if picture.format.name != _IN_GPU_MEMORY:
        return True
    try:  # Other pictures have more planes or bits, or no array.
        return len(picture.planes) == 2 and picture.to_ndarray().dtype == np.uint8
    except ValueError:
        return False


class VideoFrame(Frame):
    """A decoded picture (av.VideoFrame) as a frame: nv12, or bgr8 where that cannot hold it."""

    def __init__(self, picture: Any, is_nv12: bool = True) -> None:
        width, height = picture.width, picture.height
        is_nv12 = (
            is_nv12
            and picture.format.name in _LIKE_NV12
            and not (width % 2 or height % 2)
            and picture.colorspace in _BT601
            and picture.color_range != _FULL_RANGE
        )
        self.__dict__.update(
            width=width,
            height=height,
            step=width if is_nv12 else 3 * width,
            encoding='nv12' if is_nv12 else 'bgr8',
            is_bigendian=False,
            is_on_gpu=is_nv12 and picture.format.name == _IN_GPU_MEMORY,
            picture=picture,
        )

    is_on_gpu: bool
    picture: Any

    @cached_property
    def data(self) -> np.ndarray:
        """The pixels, 1-D uint8, converted on the CPU."""
        name = 'nv12' if self.encoding == 'nv12' else 'bgr24'
        # With several threads, FFmpeg 8.1 leaves out rows of nv12 from GPU memory.
        return np.asarray(self.picture.to_ndarray(format=name, threads=1)).reshape(-1)

    @property
    def planes(self) -> list[tuple[int, int]]:
        """Address and bytes per row of Y, and of the pairs of chroma bytes, in GPU memory."""
        return [(plane.buffer_ptr, plane.line_size) for plane in self.picture.planes]
