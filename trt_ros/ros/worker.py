"""Worker threads that process the newest item of each queue and replace older ones."""

from __future__ import annotations

from collections.abc import Callable
import math
import threading
import time
from typing import Generic, TypeVar

T = TypeVar('T')

LOWEST_RATE_HZ = 1e-6  # Keeps all times finite.
#: Maximum delay until a changed rate or waiting time takes effect.
MAX_WAIT_SECONDS = 0.5

#: Causes of dropped items.
REPLACED = 'replaced by a newer frame'
STOPPED = 'node stopped'
UNWANTED = 'no subscribers'


class Lane(Generic[T]):
    """The queue of one source; keeps only the newest item."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.items: list[T] = []
        self.arrived = 0.0  # Time when the item arrived.
        self.since = 0.0  # Time since which the queue has not been empty.
        self._taken = -math.inf  # Time when the last item was taken or due.

    def due(self, period: float) -> float:
        """Return the earliest time at which the next item may be processed."""
        return self._taken + period

    def put(self, item: T) -> bool:
        """Store an item; return whether it replaced another one."""
        is_replaced = bool(self.items)
        self.arrived = time.monotonic()
        if not is_replaced:
            self.since = self.arrived
        self.items = [item]
        return is_replaced

    def take(self, now: float, period: float) -> T:
        """Remove and return the item; the next one is due a period later."""
        # Counted from the due time, not from now: otherwise a limit just below the camera's rate
        # would halve it. After a pause counted from now: otherwise the next item would follow at
        # once.
        due = self.due(period)
        self._taken = due if due > now - period else now
        return self.items.pop()


class FairWorker(Generic[T]):
    """
    A thread that processes the newest items of several lanes, up to `max_batch` together.

    The lanes that were served longest ago come first. The thread runs until close().

    :param handle: called in the thread with [(lane, item), ..] in lane order, at most one item per
        lane; must not raise.
    :param on_drop: called with lane and cause when an item is dropped, in any thread.
    :param on_taken: called before `handle` with the waiting time of each item in seconds.
    :param max_batch: maximum number of items per call of `handle`.
    :param max_rate_hz: returns the maximum rate of a lane; evaluated before each item; 0.0 is no
        limit. Items that arrive faster are replaced.
    :param wait_seconds: returns the maximum time that an item waits for those of the other lanes
        while there are fewer than `max_batch`.
    """

    def __init__(
        self,
        handle: Callable[[list[tuple[int, T]]], None],
        on_drop: Callable[[int, str], object],
        *,
        lanes: int,
        max_batch: int = 1,
        on_taken: Callable[[float], None] = lambda seconds: None,
        max_rate_hz: Callable[[], float] = lambda: 0.0,
        wait_seconds: Callable[[], float] = lambda: 0.0,
        name: str = 'frames',
    ) -> None:
        self._handle, self._on_drop, self._on_taken = handle, on_drop, on_taken
        self._max_rate_hz, self._wait_seconds = max_rate_hz, wait_seconds
        self._max_batch = min(lanes, max_batch)
        self._lanes = [Lane[T](number) for number in range(lanes)]
        self._order = list(self._lanes)  # The lane served longest ago is first.
        self._condition = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def put(self, item: T, lane: int = 0) -> None:
        """Add an item; never waits for the processing of another one."""
        with self._condition:
            is_closed = self._is_closed
            is_replaced = not is_closed and self._lanes[lane].put(item)
            self._condition.notify()
        if is_closed:
            self._on_drop(lane, STOPPED)
        elif is_replaced:
            self._on_drop(lane, REPLACED)

    def close(self) -> None:
        """Drop the waiting items and wait for those in progress; may be called twice."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        self._thread.join()
        for lane in self._lanes:
            if lane.items:
                lane.items = []
                self._on_drop(lane.number, STOPPED)

    def _run(self) -> None:
        while lanes := self._await_lanes():
            now = time.monotonic()
            with self._condition:
                waited = [now - lane.arrived for lane in lanes]
                items = [(lane.number, lane.take(now, self._period())) for lane in lanes]
            for seconds in waited:
                self._on_taken(seconds)
            self._handle(items)
            del items  # Otherwise a borrowed message would live until the next one arrives.

    def _await_lanes(self) -> list[Lane[T]]:
        """Wait until items may be processed; return their lanes, none when closed."""
        with self._condition:
            while not self._is_closed:
                now = time.monotonic()
                period = self._period()
                waiting = [lane for lane in self._order if lane.items]
                ready = [lane for lane in waiting if lane.due(period) <= now]
                # Times of the next events without a notification.
                times = [lane.due(period) for lane in waiting if lane.due(period) > now]
                if ready:
                    first = min(max(lane.since, lane.due(period)) for lane in ready)
                    times.append(first + self._wait_seconds())
                    if len(ready) >= self._max_batch or times[-1] <= now:
                        return self._serve(ready[: self._max_batch])
                self._condition.wait(min(min(times) - now, MAX_WAIT_SECONDS) if times else None)
            return []

    def _period(self) -> float:
        """Return the minimum time between two items of a lane, in seconds."""
        rate_hz = self._max_rate_hz()
        return 1 / max(rate_hz, LOWEST_RATE_HZ) if rate_hz > 0 else 0.0

    def _serve(self, lanes: list[Lane[T]]) -> list[Lane[T]]:
        """Move lanes to the end of the order; return them by number."""
        for lane in lanes:
            self._order.remove(lane)
        self._order += lanes
        return sorted(lanes, key=lambda lane: lane.number)


class NewestWorker(FairWorker[T]):
    """A FairWorker with one lane, whose callbacks get the item or cause alone."""

    def __init__(
        self,
        handle: Callable[[T], None],
        on_drop: Callable[[str], object],
        *,
        on_taken: Callable[[float], None] = lambda seconds: None,
        max_rate_hz: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(
            lambda items: handle(items[0][1]),
            lambda _, cause: on_drop(cause),
            lanes=1,
            on_taken=on_taken,
            max_rate_hz=max_rate_hz,
        )
