"""Slot pool and LRU cache of frames in flight; without CUDA."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
import threading
from typing import Generic, Protocol, TypeVar

from trt_ros.errors import ClosedError, GpuFailedError


class Closeable(Protocol):
    """Any object with close()."""

    def close(self) -> None:
        """Release the object."""
        ...


Kept = TypeVar('Kept', bound=Closeable)
Slot = TypeVar('Slot', bound=Closeable)


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
    """A pool of slots, which it owns; the one that has been free for longest is taken."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.all = tuple(slots)
        self._free = list(self.all)
        self._lock = threading.Lock()  # Entered directly, which takes less time than a condition.
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._is_closed = False

    def take_free(self) -> Slot | None:
        """Take a slot if one is free now."""
        with self._lock:
            return None if self._is_closed or not self._free else self._free.pop(0)

    def take(self, timeout_seconds: float) -> Slot:
        """Take a free slot; raises ClosedError once closed, GpuFailedError after the timeout."""
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
