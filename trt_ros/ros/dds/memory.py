"""Reusable memory for outgoing messages."""

from collections import deque
import mmap
from typing import Any

import numpy as np


def whole_pages(nbytes: int) -> np.ndarray:
    """
    Allocate (N,) uint8 of at least `nbytes` on memory pages of its own.

    Unlike the C library's memory, whole pages can be page-locked, and are freed with the last
    reference.
    """
    nbytes += -nbytes % mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


class Pool:
    """A growing pool of memory for outgoing messages; one thread takes, any thread drops it."""

    def __init__(self) -> None:
        self._free: deque[_Memory] = deque()

    def take(self, nbytes: int) -> np.ndarray:
        """Return (nbytes,) uint8, not cleared; reused once no view of it is left."""
        memory = self._free.popleft() if self._free else None
        if memory is None or memory.nbytes < nbytes:
            memory = _Memory(nbytes)
        return np.asarray(_MemoryLoan(memory, self._free))[:nbytes]


class _Memory:
    def __init__(self, nbytes: int) -> None:
        self.pages = whole_pages(max(nbytes, 1))
        self.nbytes = self.pages.size
        self.array_interface = self.pages.__array_interface__  # NumPy computes it on each access.


class _MemoryLoan:
    """Memory of a pool as an array, which is kept alive by its views."""

    def __init__(self, memory: _Memory, free: deque[_Memory]) -> None:
        self.memory, self._free = memory, free
        self.__array_interface__ = memory.array_interface

    def __del__(self) -> None:
        self._free.appendleft(self.memory)  # First: it is the one still in the CPU caches.


def pool_memory_of(message: Any) -> _Memory | None:
    """Return the memory of a Pool that `message`, an array, lies in; None elsewhere."""
    while message is not None and not isinstance(message, _MemoryLoan):
        message = (
            message.obj if isinstance(message, memoryview) else getattr(message, 'base', None)
        )
    return message.memory if message is not None else None


def read_only(message: np.ndarray) -> np.ndarray:
    """Return a view of (N,) uint8 that cannot be made writable again."""
    return np.frombuffer(message.data.toreadonly(), np.uint8)
