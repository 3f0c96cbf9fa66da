"""Receive buffers that the GPU reads in place, its JPEG decoder and its faults, for nodes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import logging
import threading

import numpy as np

from trt_ros.cuda.memory import RegisteredMemory
from trt_ros.errors import GpuFailedError, TrtRosError
from trt_ros.runtime.device import Device
from trt_ros.runtime.gpu.shared_resources import SharedResources
from trt_ros.runtime.gpu.waiting import Faults
from trt_ros.video import Cuda
from trt_ros.vision.picture_header import example_jpeg

log = logging.getLogger('trt_ros.runtime')


class GpuDevice(Device):
    """
    The GPU of one pipeline. Owns the registrations of receive buffers, borrows their memory.

    :param launching: held while images are brought to the GPU, and while graphs are captured.
    :ivar blocks: replaced, never changed, so that a frame may search it while another thread
        registers memory.
    """

    def __init__(
        self, shared: SharedResources, faults: Faults, launching: threading.RLock
    ) -> None:
        self.blocks: tuple[RegisteredMemory, ...] = ()
        self._shared, self._faults, self._launching = shared, faults, launching
        self._gpu, self._changes, self._is_closed = shared.gpu, threading.Lock(), False

    @property
    def cuda(self) -> Cuda:
        return Cuda(self._gpu.index, self._gpu.context)

    def register(self, memory: np.ndarray) -> None:
        with (
            _logged('page-lock the receive buffers: the CPU copies images from them'),
            self._changes,
            self._gpu.context,
        ):
            if not self._is_closed:
                block = RegisteredMemory(memory, 'receive buffers', self._shared.account)
                self.blocks = (*self.blocks, block)

    def unregister(self, memory: np.ndarray) -> None:
        """Unlock a registered receive buffer, after all work of the GPU that may read it."""
        with _logged('unlock the receive buffers'):
            with self._launching:  # CUDA refuses to synchronize during a capture.
                self._gpu.synchronize()
            with self._changes:
                # A subscription may register the same memory as another one before it.
                removed = [block for block in self.blocks if block.ptr == memory.ctypes.data][:1]
                self.blocks = tuple(block for block in self.blocks if block not in removed)
            for block in removed:
                block.close()

    def device_address(self, ptr: int, nbytes: int) -> int:
        """Return the GPU's address of `nbytes` bytes at host address `ptr`; 0 if unregistered."""
        for block in self.blocks:
            if block.holds(ptr, nbytes):
                return block.device_ptr + ptr - block.ptr
        return 0

    def open_jpeg_decoder(self) -> str:
        with self._launching, self._gpu.launch_context:
            return self._shared.jpegs.open(example_jpeg())

    def on_fault(self, callback: Callable[[GpuFailedError], None]) -> None:
        self._faults.report_to(callback)

    def close(self) -> None:
        """Unlock all receive buffers; may be called twice."""
        with self._changes:
            self._is_closed = True
            removed, self.blocks = self.blocks, ()
        for block in reversed(removed):
            block.close()


@contextmanager
def _logged(action: str) -> Iterator[None]:
    """Log an error of an action that can be left undone."""
    try:
        yield
    except TrtRosError as error:
        log.warning('Could not %s. %s', action, error)
