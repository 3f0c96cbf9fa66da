"""Reusable memory for outgoing messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
import fcntl
from itertools import count
import mmap
import os
import threading
from typing import Any

import numpy as np

#: Nobody can resize the memory, so no process gets SIGBUS when it reads it.
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_numbers = count(1)


def whole_pages(nbytes: int) -> np.ndarray:
    """
    Allocate (N,) uint8 of at least `nbytes` on memory pages of its own.

    Unlike the C library's memory, whole pages can be page-locked, and are freed with the last
    reference.
    """
    nbytes += -nbytes % mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


class Memory:
    """
    Memory of messages, which may be shared with other processes.

    :param pages: (N,) uint8 on pages of its own.
    :param fd: file descriptor of shared memory, owned by this object; -1 for memory of this
        process.
    :param share_next: set it to have the pool take shared memory from now on.
    :ivar number: unique in this process.
    :ivar is_retired: whether it must not be reused: a process that left may still read it.
    """

    def __init__(
        self, pages: np.ndarray, fd: int = -1, share_next: threading.Event | None = None
    ) -> None:
        self.pages, self.fd, self.share_next = pages, fd, share_next
        self.number, self.is_retired = next(_numbers), False

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def allocate_shared(nbytes: int) -> tuple[np.ndarray, int]:
    """
    Allocate (N,) uint8 of at least `nbytes` that other processes can map, and its descriptor.

    The kernel frees it with the last descriptor and mapping, however their processes end.
    """
    fd = os.memfd_create('trt_ros', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes + -nbytes % mmap.PAGESIZE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return map_shared(fd), fd
    except OSError:
        os.close(fd)
        raise


def map_shared(fd: int) -> np.ndarray:
    """
    Map shared memory of allocate_shared() as (N,) uint8.

    :raises OSError: when that fails, or the size of the memory could change.
    """
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise OSError('The size of the shared memory could change')
    # Populated: the first message in it is not late.
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    return np.frombuffer(mmap.mmap(fd, os.fstat(fd).st_size, flags), np.uint8)


class Pool:
    """A growing pool of memory for outgoing messages; one thread takes, any thread drops it."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self._free: deque[Memory] = deque()
        self._share_next = threading.Event()
        if is_shared:
            self._share_next.set()

    def take(self, nbytes: int) -> np.ndarray:
        """Return (nbytes,) uint8, not cleared; reused once no view of it is left."""
        memory = self._free.popleft() if self._free else None
        is_shared = self._share_next.is_set()
        if memory is None or memory.pages.size < nbytes or (is_shared and memory.fd < 0):
            memory = self._allocate(max(nbytes, 1))
        loan = memory.pages[:nbytes].view(Lendable).view(MemoryLoan)
        loan.memory, loan.give_back = memory, self._give_back
        return loan.view(np.ndarray)

    def _allocate(self, nbytes: int) -> Memory:
        if self._share_next.is_set():
            with suppress(OSError):
                return Memory(*allocate_shared(nbytes), self._share_next)
            self._share_next.clear()  # The publisher notices that it is not shared.
        return Memory(whole_pages(nbytes), share_next=self._share_next)

    def _give_back(self, loan: Any) -> None:
        if not loan.memory.is_retired:
            self._free.appendleft(loan.memory)  # First: it is the one still in the CPU caches.


class Lendable(np.ndarray):
    """
    (N,) uint8 in memory that is lent: between it and messages is a MemoryLoan.

    A class of its own, as NumPy skips bases of an array's class; messages would lose their loans.
    """


class MemoryLoan(np.ndarray):
    """
    Lent memory, which the views of it keep alive.

    :ivar memory: that of a publisher; None for a receive buffer.
    :ivar give_back: called in any thread when none is left.
    """

    memory: Memory | None = None
    give_back: Callable[[MemoryLoan], None]
    number: int

    def __del__(self) -> None:
        self.give_back(self)


def pool_memory_of(message: Any) -> Memory | None:
    """Return the memory of the loan that `message`, an array, lies in; None without."""
    while message is not None:
        if isinstance(message, MemoryLoan):
            return message.memory
        message = (
            message.obj if isinstance(message, memoryview) else getattr(message, 'base', None)
        )
    return None


def read_only(message: np.ndarray) -> np.ndarray:
    """Return a view of (N,) uint8 that cannot be made writable again."""
    return np.frombuffer(message.data.toreadonly(), np.uint8)
