"""Slot pool, LRU cache, watchdog and copy threads of frames in flight; without CUDA."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
import queue
import threading
import time
from typing import Generic, Protocol, TypeVar

from trt_ros.errors import ClosedError, GpuFailedError


class Closeable(Protocol):
    """Any object with close()."""

    def close(self) -> None:
        """Release the object."""
        ...


Kept = TypeVar('Kept', bound=Closeable)
Slot = TypeVar('Slot', bound=Closeable)
Piece = TypeVar('Piece')


def chunks(nbytes: int, chunk_nbytes: int) -> tuple[tuple[int, int], ...]:
    """
    Cut a copy into pieces, so that the transfer of one overlaps the copy of the next.

    >>> chunks(10, 4)
    ((0, 4), (4, 8), (8, 10))

    :returns: (start, stop) in bytes, in order, without gaps; at least one, also for 0 bytes.
    """
    starts = range(0, max(nbytes, 1), chunk_nbytes)
    return tuple((start, min(start + chunk_nbytes, nbytes)) for start in starts)


class LruCache(Generic[Kept]):
    """
    The `capacity` most recently used of some expensive objects. Owns and closes them.

    >>> graphs = LruCache(capacity=4)
    >>> graphs.get((1080, 1920, 'bgr8'), make=capture)   # Captured now, found from then on.

    :ivar made: number of objects made so far.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.made = 0
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept.values())

    def find(self, key: Hashable) -> Kept | None:
        """Return the object of `key`, now the most recently used; None if there is none."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def get(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """Return the object of `key`, made by `make` if needed; may close the oldest object."""
        kept = self.find(key)
        if kept is not None:
            return kept
        while len(self._kept) >= self.capacity:
            self._kept.popitem(last=False)[1].close()
        made = make()
        self._kept[key] = made
        self.made += 1
        return made

    def clear(self) -> None:
        """Close all objects, the newest first."""
        while self._kept:
            self._kept.popitem()[1].close()


class Slots(Generic[Slot]):
    """
    A pool of slots, each taken by one frame at a time, in turn. Owns and closes them.

    In turn, so that the slot taken is the one that has been free for longest.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.all = tuple(slots)
        self._free = list(self.all)
        self._lock = threading.Lock()  # Entered directly, which takes less time than a condition.
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._is_closed = False

    def take(self, timeout_seconds: float) -> Slot:
        """
        Wait for a free slot and take it.

        :raises ClosedError: when the slots are closed, also while waiting.
        :raises GpuFailedError: when no slot becomes free in time.
        """
        with self._lock:
            if not self._free and not self._is_closed:
                self._wait_for(lambda: bool(self._free or self._is_closed), timeout_seconds)
            if self._is_closed:
                raise ClosedError('The pipeline')
            if not self._free:
                raise GpuFailedError(
                    f'No frame in flight has finished in {timeout_seconds} s.',
                    cause='the GPU does not respond, or results of submitted frames were never '
                    'read',
                    remedy='Check nvidia-smi, and the kernel log for "NVRM: Xid"; read the '
                    'results of submitted frames before submitting more than frames_in_flight.',
                )
            return self._free.pop(0)

    def give_back(self, slot: Slot) -> None:
        """Return a taken slot to the pool."""
        with self._lock:
            self._free.append(slot)
            if self._waiting:
                self._changed.notify()

    def _wait_for(self, is_true: Callable[[], bool], timeout_seconds: float) -> None:
        self._waiting += 1
        try:
            self._changed.wait_for(is_true, timeout_seconds)
        finally:
            self._waiting -= 1

    def close(self, timeout_seconds: float = 0.0) -> None:
        """Wait for the frames in flight, with a timeout, then close every slot."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
            self._wait_for(lambda: len(self._free) == len(self.all), timeout_seconds)
        for slot in reversed(self.all):
            slot.close()


class Watchdog:
    """
    A thread that detects frames that take too long: a CUDA wait itself has no timeout.

    :param timeout_seconds: maximum time per frame; 0 starts no thread, else the first frame does.
    :param on_late: called once, on the watchdog's thread, with the seconds waited so far.
    """

    def __init__(
        self,
        timeout_seconds: float,
        on_late: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout_seconds, self._on_late, self._clock = timeout_seconds, on_late, clock
        self._started: dict[int, float] = {}
        self._stop = threading.Event()
        self._has_reported, self._starting = False, threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_idle = timeout_seconds > 0

    def begin(self, frame: int) -> None:
        """Start the time of a frame."""
        self._started[frame] = self._clock()
        if self._is_idle:
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._is_idle:
                self._is_idle = False
                self._stop.clear()
                self._thread = threading.Thread(
                    target=self._watch, name='gpu watchdog', daemon=True
                )
                self._thread.start()

    def end(self, frame: int) -> None:
        """Stop the time of a frame."""
        self._started.pop(frame, None)

    def late_seconds(self) -> float:
        """Return the time of the oldest frame in flight if it exceeds the timeout, else 0."""
        oldest = min(list(self._started.values()), default=None)
        waited = 0.0 if oldest is None else self._clock() - oldest
        return waited if waited > self.timeout_seconds else 0.0

    def check(self) -> bool:
        """Call `on_late` if a frame is late for the first time; return whether one ever was."""
        late = self.late_seconds()
        if late and not self._has_reported:
            self._has_reported = True
            self._on_late(late)
        return self._has_reported

    def _watch(self) -> None:
        while not self._stop.wait(self.timeout_seconds / 4):
            if self.check():
                return

    def close(self) -> None:
        """Stop the thread, which the next frame would start again; may be called twice."""
        with self._starting:
            self._stop.set()
            thread, self._thread, self._is_idle = self._thread, None, self.timeout_seconds > 0
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class CopyThreadPool:
    """
    Threads that share a large copy; NumPy releases the GIL while it copies.

    :param threads: number of threads beside the calling one; 0 starts none.
    :param context: CUDA context of the GPU, which is per thread: entered for each copy.
    """

    def __init__(self, threads: int, context: AbstractContextManager[None]) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._busy = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, args=(context,), name=f'copy {index}', daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, do: Callable[[Piece], None], pieces: Sequence[Piece]) -> None:
        """
        Call `do` with every piece, on all threads; returns when all pieces are done.

        :raises: the exception of a piece, after all threads have finished.
        """
        rest = iter(pieces)  # Threads may share it: next() is atomic under the GIL.

        def share() -> None:
            for piece in rest:
                do(piece)

        threads = min(len(self._threads), len(pieces) - 1)
        if threads <= 0:
            share()
            return
        with self._busy:  # Two frames at once would take each other's results.
            for _ in range(threads):
                self._jobs.put(share)
            try:
                share()
            finally:
                errors = [self._done.get() for _ in range(threads)]
            for error in errors:
                if error is not None:
                    raise error

    def _work(self, context: AbstractContextManager[None]) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                with context:
                    job()
                failed: BaseException | None = None
            except BaseException as error:
                failed = error
            job = None  # It references the frame, whose memory its owner waits to reuse.
            self._done.put(failed)
            failed = None

    def close(self) -> None:
        """Stop the threads; may be called twice."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
