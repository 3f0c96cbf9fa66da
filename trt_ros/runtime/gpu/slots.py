"""Bookkeeping of frames under way: who has which slot, what is kept, what is late. No CUDA."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
import queue
import threading
import time
from typing import Generic, Protocol, TypeVar

from trt_ros.errors import ClosedError, GpuFailedError


class Closeable(Protocol):
    def close(self) -> None: ...


Kept = TypeVar('Kept', bound=Closeable)
Slot = TypeVar('Slot', bound=Closeable)
Piece = TypeVar('Piece')


def chunks(nbytes: int, chunk_nbytes: int) -> tuple[tuple[int, int], ...]:
    """
    Cut a copy into pieces whose transfers can overlap the copy of the next.

    >>> chunks(10, 4)
    ((0, 4), (4, 8), (8, 10))

    :returns: (start, stop) in bytes, in order, without gaps; at least one, also for 0 bytes.
    """
    starts = range(0, max(nbytes, 1), chunk_nbytes)
    return tuple((start, min(start + chunk_nbytes, nbytes)) for start in starts)


class LruCache(Generic[Kept]):
    """
    Keeps the `capacity` most recently used of what is dear to make; owns and closes them.

    >>> recent = Recent(capacity=4)
    >>> recent.get((1080, 1920, 'bgr8'), make=capture)   # Captured now, found from then on.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.made = 0  # How often something had to be made.
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable) -> Kept | None:
        """Return what is kept under `key`, now the most recently used; None where nothing is."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def get(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """Return what is kept under `key`, made by `make` if need be; may close the oldest."""
        kept = self.find(key)
        if kept is not None:
            return kept
        while len(self._kept) >= self.capacity:
            self._kept.popitem(last=False)[1].close()
        made = make()
        self._kept[key] = made
        self.made += 1
        return made

    def values(self) -> tuple[Kept, ...]:
        return tuple(self._kept.values())

    def clear(self) -> None:
        """Close all, the newest first."""
        while self._kept:
            self._kept.popitem()[1].close()


class Slots(Generic[Slot]):
    """
    Hands out slots, each to one frame at a time, in turn; owns and closes them.

    In turn, so that a frame's slot has had the longest time to come to rest.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.all = tuple(slots)
        self._free = list(self.all)
        self._changed = threading.Condition()
        self._is_closed = False

    def take(self, timeout_seconds: float) -> Slot:
        """
        Wait for a free slot and take it.

        :raises ClosedError: when the slots are closed, also while waiting.
        :raises GpuFailedError: when none comes free in time.
        """
        with self._changed:
            free = (
                self._free
                or self._is_closed
                or self._changed.wait_for(lambda: self._free or self._is_closed, timeout_seconds)
            )
            if self._is_closed:
                raise ClosedError('The pipeline')
            if not free:
                raise GpuFailedError(
                    f'No frame in flight has finished in {timeout_seconds} s.',
                    cause='the GPU does not answer, or the results of submitted frames were never '
                    'taken',
                    remedy='Look at nvidia-smi and for "NVRM: Xid" in the kernel log; take the '
                    'results of each submitted frame before the next but one.',
                )
            return self._free.pop(0)

    def give_back(self, slot: Slot) -> None:
        with self._changed:
            self._free.append(slot)
            self._changed.notify()

    def close(self, timeout_seconds: float = 0.0) -> None:
        """Wait for the frames under way, at most so long, then close every slot."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._free) == len(self.all), timeout_seconds)
        for slot in reversed(self.all):
            slot.close()


class Watchdog:
    """
    Sees a GPU that does not answer: a thread stuck in a CUDA wait cannot tell by itself.

    :param timeout_seconds: a frame may take this long; 0 watches nothing and starts no thread.
    :param on_late: told once, on the watchdog's thread, with the seconds waited so far.
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
        self._told = False
        self._thread: threading.Thread | None = None
        if timeout_seconds > 0:
            self._thread = threading.Thread(target=self._watch, name='gpu watchdog', daemon=True)
            self._thread.start()

    def begin(self, frame: int) -> None:
        self._started[frame] = self._clock()

    def end(self, frame: int) -> None:
        self._started.pop(frame, None)

    def late_seconds(self) -> float:
        """Return how long the oldest frame under way has taken, where that is too long; or 0."""
        oldest = min(list(self._started.values()), default=None)
        waited = 0.0 if oldest is None else self._clock() - oldest
        return waited if waited > self.timeout_seconds else 0.0

    def check(self) -> bool:
        """Tell `on_late` when a frame is late and it was not told yet."""
        late = self.late_seconds()
        if late and not self._told:
            self._told = True
            self._on_late(late)
        return self._told

    def _watch(self) -> None:
        while not self._stop.wait(self.timeout_seconds / 4):
            if self.check():
                return

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


class CopyThreadPool:
    """
    A few threads that share a large copy; NumPy frees the GIL while it copies.

    :param helpers: threads beside the calling one; 0 starts none.
    :param context: entered by a helper for each copy: the GPU's, which is per thread.
    """

    def __init__(self, helpers: int, context: AbstractContextManager[None]) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._busy = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, args=(context,), name=f'copy {index}', daemon=True)
            for index in range(helpers)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, do: Callable[[Piece], None], pieces: Sequence[Piece]) -> None:
        """
        Do every piece; whoever is free takes the next. Returns when all are done.

        :raises: what a piece raised, after all have ended.
        """
        rest = iter(pieces)  # Taking from it is one step under the GIL.

        def share() -> None:
            for piece in rest:
                do(piece)

        helpers = min(len(self._threads), len(pieces) - 1)
        if helpers <= 0:
            share()
            return
        with self._busy:  # Two frames at once would mix up each other's answers.
            for _ in range(helpers):
                self._jobs.put(share)
            try:
                share()
            finally:
                errors = [self._done.get() for _ in range(helpers)]
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
            job = None  # It holds the frame, whose memory its lender waits for.
            self._done.put(failed)
            failed = None

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
