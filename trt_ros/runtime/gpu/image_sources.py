"""Sources of images that are decoded on the GPU."""

from trt_ros.cuda.device import wait_for_default_stream
from trt_ros.cuda.jpeg import JpegDecoder
from trt_ros.cuda.memory import copy_async, copy_rows_async
from trt_ros.runtime.gpu.staging import Source
from trt_ros.vision.frame import Frame
from trt_ros.vision.picture_header import JpegFrame
from trt_ros.vision.video_frame import VideoFrame


class JpegSource(Source):
    """The pixels of a JPEG, decoded on the GPU, or on the CPU where the library refuses it."""

    __slots__ = ('_decoder', '_frame')
    is_decoded_on_gpu = True

    def __init__(self, frame: JpegFrame, decoder: JpegDecoder) -> None:
        layout = frame.width, frame.height, frame.step, frame.encoding
        self.key = (*layout, frame.lens, 'jpeg')
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
    is_decoded_on_gpu = True

    def __init__(self, frame: VideoFrame) -> None:
        layout = frame.width, frame.height, frame.step, frame.encoding
        self.key = (*layout, frame.lens, 'video')
        self.nbytes, self.data, self._address = frame.nbytes, None, None
        self._frame = frame

    def send(self, target: int, stream: int) -> None:
        """Enqueue the copy to a GPU address, after the work of the decoder."""
        frame, rows = self._frame, self._frame.height
        wait_for_default_stream(stream)
        for address, step in frame.planes:
            copy_rows_async(target, frame.step, address, step, (frame.step, rows), stream)
            target, rows = target + frame.step * rows, rows // 2


def image_source(frame: Frame, jpegs: JpegDecoder) -> Source:
    """Return the source of an image."""
    if isinstance(frame, JpegFrame) and jpegs.is_open:
        return JpegSource(frame, jpegs)
    if isinstance(frame, VideoFrame) and frame.is_on_gpu:
        return VideoSource(frame)
    return Source(frame)
