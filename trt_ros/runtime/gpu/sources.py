"""Choice of the sources of a run, and those that write on the GPU."""

from collections.abc import Hashable

import numpy as np

from trt_ros.cuda.arrays import copy_array, refuse_elsewhere
from trt_ros.cuda.copies import Blocks, RowsCopy
from trt_ros.cuda.device import Gpu, wait_for_library
from trt_ros.cuda.jpeg import JpegDecoder
from trt_ros.cuda.memory import copy_async
from trt_ros.device_array import DeviceArray
from trt_ros.model.feeds.padding import Padding
from trt_ros.runtime.gpu.staging import Source, TensorSource
from trt_ros.tensors import TensorSpec
from trt_ros.vision.device_frame import DeviceFrame
from trt_ros.vision.frame import Frame
from trt_ros.vision.picture_header import JpegFrame
from trt_ros.vision.video_frame import VideoFrame


class JpegSource(Source):
    """The pixels of a JPEG, decoded on the GPU, or on the CPU where the library refuses it."""

    __slots__ = ('_decoder', '_frame')
    is_on_gpu = True

    def __init__(self, frame: JpegFrame, decoder: JpegDecoder) -> None:
        self.key = (*frame.layout, 'jpeg')
        self.nbytes, self.data, self._address = frame.nbytes, None, None
        self._frame, self._decoder = frame, decoder

    def send(self, target: int, stream: int) -> None:
        """Decode into a GPU address; raises BadFrameError when the CPU cannot, either."""
        frame = self._frame
        shape = frame.height, frame.width, frame.channels
        if not self._decoder.decode(frame.bitstream, shape, target, stream):
            copy_async(target, int(frame.data.ctypes.data), self.nbytes, stream)


class VideoSource(Source):
    """A decoded picture of a video in GPU memory, in the memory of the frame from `send` on."""

    __slots__ = ('_frame',)
    is_on_gpu = True

    def __init__(self, frame: VideoFrame) -> None:
        self.key = (*frame.layout, 'video')
        self.nbytes, self.data, self._address = frame.nbytes, None, None
        self._frame = frame

    def send(self, target: int, stream: int) -> None:
        frame, count = self._frame, self._frame.height
        wait_for_library(stream)
        for address, step in frame.planes:
            RowsCopy.of(target, Blocks(0, step, frame.step, count)).enqueue(address, stream)
            target, count = target + frame.step * count, count // 2


class DeviceSource(Source):
    """
    An array of another library in GPU memory, where it stays unchanged until the run ends.

    :raises BadFrameError: where it is not in the memory of this GPU, which is current.
    """

    __slots__ = ('_array', '_gpu')
    is_on_gpu = True

    def __init__(self, array: DeviceArray, nbytes: int, gpu: Gpu, *layout: Hashable) -> None:
        refuse_elsewhere(array, nbytes, gpu)
        self.key = (*layout, 'on the GPU')
        self.nbytes, self.data, self._address = nbytes, None, None
        self._array, self._gpu = array, gpu

    def send(self, target: int, stream: int) -> None:
        copy_array(target, self._array, self.nbytes, self._gpu, stream)


def image_source(frame: Frame, jpegs: JpegDecoder, gpu: Gpu) -> Source:
    """Return the source of an image."""
    if type(frame) is Frame:
        return Source(frame)
    if isinstance(frame, JpegFrame) and jpegs.is_open:
        return JpegSource(frame, jpegs)
    if isinstance(frame, VideoFrame) and frame.is_on_gpu:
        return VideoSource(frame)
    if isinstance(frame, DeviceFrame):
        return DeviceSource(frame.array, frame.nbytes, gpu, *frame.layout)
    return Source(frame)


def tensor_source(
    spec: TensorSpec, value: np.ndarray | DeviceArray, padding: Padding | None, gpu: Gpu
) -> Source:
    """Return the source of a tensor, as split_inputs() returns it."""
    if isinstance(value, DeviceArray):
        return DeviceSource(value, value.nbytes, gpu)
    return TensorSource(spec, value, padding)
