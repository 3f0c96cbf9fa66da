"""Worker threads that process the newest item of each queue and replace older ones."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
import math
import threading
import time
from typing import Generic, TypeVar

T = TypeVar('T')
ResultT = TypeVar('ResultT')

LOWEST_RATE_HZ = 1e-6  # Keeps all times finite.
#: Maximum delay until a changed rate or waiting time takes effect.
MAX_WAIT_SECONDS = 0.5

#: Causes of dropped items.
REPLACED = 'replaced by a newer frame'
STOPPED = 'node stopped'
UNWANTED = 'no subscribers'
RESET = 'reset'


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

    def put(self, item: T, now: float) -> bool:
        """Store an item; return whether it replaced another one."""
        is_replaced = bool(self.items)
        self.arrived = now
        if not is_replaced:
            self.since = now
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


@dataclass
class _Batch(Generic[T]):
    number: int
    waited: list[float]  # Seconds for each item.
    items: list[tuple[int, T]]


class FairWorker(Generic[T, ResultT]):
    """
    Threads that process the newest items of several lanes, up to `max_batch` together.

    The lanes that were served longest ago come first. The threads run until close().

    :param start: called with [(lane, item), ..] in lane order, at most one item per lane; returns
        the function that waits for the result; neither may raise. Up to `in_flight` runs overlap.
    :param on_drop: called with lane and cause when an item is dropped, in any thread.
    :param deliver: called with each result, one at a time and in the order in which the items
        were taken; must not raise.
    :param max_batch: maximum number of items per call of `start`.
    :param in_flight: number of threads. While one of them is busy, another starts a full batch
        only: a partial one would split the items that arrive together.
    :param on_taken: called after `deliver` with the waiting time of each item in seconds.
    :param max_rate_hz: returns the maximum rate of a lane; evaluated before each item; 0.0 is no
        limit. Items that arrive faster are replaced.
    :param wait_seconds: returns the maximum time that an item waits for those of the other lanes
        while there are fewer than `max_batch`.
    """

    def __init__(
        self,
        start: Callable[[list[tuple[int, T]]], Callable[[], ResultT]],
        on_drop: Callable[[int, str], object],
        *,
        lanes: int,
        deliver: Callable[[ResultT], object] = lambda result: None,
        max_batch: int = 1,
        in_flight: int = 1,
        on_taken: Callable[[float], None] = lambda seconds: None,
        max_rate_hz: Callable[[], float] = lambda: 0.0,
        wait_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._start, self._deliver = start, deliver
        self._on_drop, self._on_taken = on_drop, on_taken
        self._max_rate_hz, self._wait_seconds = max_rate_hz, wait_seconds
        self._max_batch = min(lanes, max_batch)
        self._lanes = [Lane[T](number) for number in range(lanes)]
        self._order = list(self._lanes)  # The lane served longest ago is first.
        self._lock = threading.Lock()  # Entered directly, which takes less time than a condition.
        self._condition = threading.Condition(self._lock)
        self._started: deque[tuple[_Batch[T], Callable[[], ResultT]]] = deque()
        self._is_closed = False
        self._taken = self._delivered = 0  # Numbers of batches.
        self._began = self._ended = 0.0  # Of the last batch.
        self._turn = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, name='frames') for _ in range(in_flight)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, item: T, lane: int = 0, here: bool = False) -> None:
        """Add an item as `offer` does, and process what that returns."""
        process = self.offer(item, lane, here)
        if process is not None:
            process()

    def start(self, item: T, lane: int = 0, here: bool = True) -> None:
        """Add an item; if `here`, start its batch in this thread, and await it in another one."""
        batch = self._add(item, lane, here)
        if batch is None:
            return
        self._began = time.monotonic()
        collect = self._start(batch.items)
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._started.append((batch, collect))
                self._condition.notify()
        if is_closed:
            self._process(batch, collect)

    def offer(self, item: T, lane: int = 0, here: bool = False) -> Callable[[], None] | None:
        """
        Add an item; never waits for the processing of another one.

        :param here: whether this thread may process the item at once, which saves waking another
            one. It does where the last batch ended longer ago than it took; else the items come
            so fast that one had better be received while another is in progress.
        :returns: what this thread has to call then, without locks of its own.
        """
        batch = self._add(item, lane, here and len(self._threads) == 1)
        return None if batch is None else partial(self._process_here, batch)

    def _add(self, item: T, lane: int, here: bool) -> _Batch[T] | None:
        """Add an item; return the batch that this thread has to start, if any."""
        batch = None
        with self._lock:
            is_closed, now = self._is_closed, time.monotonic()
            is_replaced = not is_closed and self._lanes[lane].put(item, now)
            here = here and now - self._ended > self._ended - self._began
            if here and not is_closed and self._taken == self._delivered:
                period = self._period()
                batch = self._take(self._ready_lanes(now, period)[0], now, period)
            if batch is None:
                self._condition.notify()
        if is_closed:
            self._on_drop(lane, STOPPED)
        elif is_replaced:
            self._on_drop(lane, REPLACED)
        return batch

    def _process_here(self, batch: _Batch[T]) -> None:
        self._process(batch)
        with self._lock:
            if any(each.items for each in self._lanes):
                self._condition.notify()

    def close(self) -> None:
        """Drop the waiting items and wait for those in progress; may be called twice."""
        with self._lock:
            self._is_closed = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()
        with self._turn:
            self._turn.wait_for(lambda: self._delivered == self._taken)
        for lane in self._lanes:
            if lane.items:
                lane.items = []
                self._on_drop(lane.number, STOPPED)

    def _run(self) -> None:
        while self._process_next():
            pass

    def _process_next(self) -> bool:
        """Process the next batch, whose messages are released on return; False when closed."""
        with self._lock:
            work = self._await_work()
        if work is not None:
            self._process(*work)
        return work is not None

    def _process(self, batch: _Batch[T], collect: Callable[[], ResultT] | None = None) -> None:
        try:
            if collect is None:
                self._began = time.monotonic()
                collect = self._start(batch.items)
            result = collect()
            self._await_turn(batch.number)
            self._deliver(result)
            for seconds in batch.waited:
                self._on_taken(seconds)
        finally:
            self._await_turn(batch.number)
            with self._turn:
                self._ended = time.monotonic()
                self._delivered += 1
                self._turn.notify_all()

    def _await_turn(self, number: int) -> None:
        if self._delivered != number:  # Once equal, it stays so until this batch is delivered.
            with self._turn:
                self._turn.wait_for(lambda: self._delivered == number)

    def _await_work(self) -> tuple[_Batch[T], Callable[[], ResultT] | None] | None:
        """Wait for a started batch, or items that may be processed; None when closed."""
        while not self._started:
            if self._is_closed:
                return None
            now, period = time.monotonic(), self._period()
            lanes, seconds = self._ready_lanes(now, period)
            batch = self._take(lanes, now, period)
            if batch is not None:
                return batch, None
            self._condition.wait(seconds)
        return self._started.popleft()

    def _ready_lanes(self, now: float, period: float) -> tuple[list[Lane[T]], float | None]:
        """Return the lanes to serve now; if none, the seconds after which to ask again."""
        waiting = [lane for lane in self._order if lane.items]
        ready = [lane for lane in waiting if lane.due(period) <= now]
        running = self._taken - self._delivered
        if len(ready) >= self._max_batch and running < len(self._threads):
            return ready[: self._max_batch], None
        # Times of the next events without a notification.
        times = [lane.due(period) for lane in waiting if lane.due(period) > now]
        if ready and not running:
            first = min(max(lane.since, lane.due(period)) for lane in ready)
            times.append(first + self._wait_seconds())
            if times[-1] <= now:
                return ready, None
        return [], min(min(times) - now, MAX_WAIT_SECONDS) if times else None

    def _take(self, lanes: list[Lane[T]], now: float, period: float) -> _Batch[T] | None:
        """Take the items of lanes, in lane order; the lanes are served last from now on."""
        if not lanes:
            return None
        for lane in lanes:
            self._order.remove(lane)
        self._order += lanes
        lanes = [lane for lane in self._lanes if lane in lanes]
        self._taken += 1
        return _Batch(
            self._taken - 1,
            [now - lane.arrived for lane in lanes],
            [(lane.number, lane.take(now, period)) for lane in lanes],
        )

    def _period(self) -> float:
        """Return the minimum time between two items of a lane, in seconds."""
        rate_hz = self._max_rate_hz()
        return 1 / max(rate_hz, LOWEST_RATE_HZ) if rate_hz > 0 else 0.0
