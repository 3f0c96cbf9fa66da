"""Base class of the device of a pipeline: memory to receive into, JPEG decoder, faults."""

from collections.abc import Callable

import numpy as np

from trt_ros.errors import GpuFailedError
from trt_ros.video import Cuda


class Device:
    """The device that a pipeline runs on; without a GPU, nothing of this has an effect."""

    @property
    def cuda(self) -> Cuda | None:
        """The GPU on which decoders leave pictures in its memory; None without one."""
        return None

    def register(self, memory: np.ndarray) -> None:
        """
        Prepare `memory`, (N,) uint8, for a GPU to read frames in place.

        Best effort: falls back to copying. The caller keeps the memory in place until
        `unregister` or the pipeline's close().
        """

    def unregister(self, memory: np.ndarray) -> None:
        """Stop using registered memory, in which no submitted frame lies any more."""

    def open_jpeg_decoder(self) -> str:
        """Decode JpegFrames on the GPU from now on; return why not, or '' when it does."""
        return 'the network does not run on a GPU'

    def on_fault(self, callback: Callable[[GpuFailedError], None]) -> None:
        """Call `callback` once, on any thread, when the GPU has failed or does not answer."""
