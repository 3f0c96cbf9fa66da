"""Memory that messages are written into, and used again when nobody looks at them any more."""

from __future__ import annotations

from collections import deque
import mmap

import numpy as np


def whole_pages(nbytes: int) -> np.ndarray:
    """
    Return (N,) uint8, at least `nbytes`, on pages of its own.

    Not the C library's memory: whole pages can be page-locked, and die by reference.
    """
    nbytes += -nbytes % mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


class Pool:
    """
    Owns the memory of messages that are sent: as much as is in use at the same time.

    One thread takes; what it took may be dropped in any.
    """

    def __init__(self) -> None:
        self._free: deque[_Memory] = deque()

    def take(self, nbytes: int) -> np.ndarray:
        """Return (nbytes,) uint8, not cleared; it comes back when no view of it is left."""
        memory = self._free.popleft() if self._free else None
        if memory is None or memory.nbytes < nbytes:
            memory = _Memory(nbytes)
        return np.asarray(_Loan(memory, self._free))[:nbytes]


class _Memory:
    def __init__(self, nbytes: int) -> None:
        self._owner = whole_pages(max(nbytes, 1))
        self.nbytes = self._owner.size
        self.array_interface = self._owner.__array_interface__  # NumPy makes it anew each time.


class _Loan:
    """Memory as an array: it and all views of it keep this alive."""

    def __init__(self, memory: _Memory, free: deque[_Memory]) -> None:
        self._memory, self._free = memory, free
        self.__array_interface__ = memory.array_interface

    def __del__(self) -> None:
        self._free.appendleft(self._memory)  # First: it is the one that caches know.


def read_only(message: np.ndarray) -> np.ndarray:
    """See (N,) uint8 in a way that cannot be made writable again."""
    return np.frombuffer(message.data.toreadonly(), np.uint8)
