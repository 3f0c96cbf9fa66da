"""Receive buffers registered with CUDA, which the GPU reads without a copy on the host."""

from __future__ import annotations

import threading

import numpy as np

from trt_ros.cuda.device import Gpu
from trt_ros.cuda.memory import Account, RegisteredMemory


class ReceiveBuffers:
    """
    The registered receive buffers of one pipeline. Owns the registrations, borrows the memory.

    :ivar blocks: replaced, never changed, so that a frame may search it while another thread
        registers memory.
    """

    def __init__(self, gpu: Gpu, account: Account) -> None:
        self.blocks: tuple[RegisteredMemory, ...] = ()
        self._gpu, self._account = gpu, account
        self._changes = threading.Lock()

    def add(self, memory: np.ndarray) -> None:
        """
        Page-lock a receive buffer, whose owner keeps it in place until `remove` or close().

        :raises CudaError: when CUDA cannot register the memory.
        """
        with self._changes, self._gpu.context:
            block = RegisteredMemory(memory, 'receive buffers', self._account)
            self.blocks = (*self.blocks, block)

    def remove(self, memory: np.ndarray) -> None:
        """Unlock a receive buffer, after all work of the GPU that may read it."""
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

    def close(self) -> None:
        """Unlock all receive buffers; may be called twice."""
        with self._changes:
            removed, self.blocks = self.blocks, ()
        for block in reversed(removed):
            block.close()
