"""One thread that handles the newest items; one that waits is replaced by a newer one."""

from __future__ import annotations

from collections.abc import Callable
import math
import threading
import time
from typing import Generic, TypeVar

T = TypeVar('T')

LOWEST_RATE_HZ = 1e-6  # So that all times stay finite.
#: A rate or a waiting time that changes meanwhile takes effect after so long.
LONGEST_WAIT_SECONDS = 0.5

#: Why an item is given up.
REPLACED = 'replaced by a newer frame'
STOPPED = 'node stopped'
UNWANTED = 'no subscribers'


class Lane(Generic[T]):
    """Where the items of one source wait: no more than the newest."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.items: list[T] = []
        self.came = 0.0  # When the item came,
        self.since = 0.0  # and since when there has always been one.
        self._taken = -math.inf  # When the last item was taken, or should have been.

    def due(self, period: float) -> float:
        """Return the time before which no item is to be handled, for the period in force."""
        return self._taken + period

    def put(self, item: T) -> bool:
        """Keep an item; tell whether another had to go for it."""
        is_replaced = bool(self.items)
        self.came = time.monotonic()
        if not is_replaced:
            self.since = self.came
        self.items = [item]
        return is_replaced

    def take(self, now: float, period: float) -> T:
        # From when it was due, not from now: a rate just below the camera's would else be halved.
        # After a pause from now: the next item would else follow at once.
        due = self.due(period)
        self._taken = due if due > now - period else now
        return self.items.pop()


class FairWorker(Generic[T]):
    """
    A thread that handles the newest items of several lanes, up to `max_batch` together.

    Where there are more, the lanes that were served longest ago come first.

    :param handle: called in the thread with [(lane, item), ..] by lane, each lane once; must not
        raise.
    :param on_drop: called with lane and cause when an item is given up, in whichever thread finds
        out.
    :param on_taken: called before `handle` with the seconds that an item has waited.
    :param max_batch: how many items are handled together.
    :param max_rate_hz: of a lane, asked before each item; 0.0 is no limit. What comes faster is
        replaced.
    :param wait_seconds: how long an item waits for those of the other lanes, as long as fewer
        than `max_batch` are there.
    """

    def __init__(
        self,
        handle: Callable[[list[tuple[int, T]]], None],
        on_drop: Callable[[int, str], None],
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
        self._order = list(self._lanes)  # Served longest ago first.
        self._condition = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def put(self, item: T, lane: int = 0) -> None:
        """Hand over an item; never waits for the handling of another."""
        with self._condition:
            is_closed = self._is_closed
            is_replaced = not is_closed and self._lanes[lane].put(item)
            self._condition.notify()
        if is_closed:
            self._on_drop(lane, STOPPED)
        elif is_replaced:
            self._on_drop(lane, REPLACED)

    def close(self) -> None:
        """Give up the waiting items, wait for those in hand; may be called twice."""
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
                waited = [now - lane.came for lane in lanes]
                items = [(lane.number, lane.take(now, self._period())) for lane in lanes]
            for seconds in waited:
                self._on_taken(seconds)
            self._handle(items)
            del items  # A borrowed message must not live until the next one comes.

    def _await_lanes(self) -> list[Lane[T]]:
        """Wait until there are items that may be handled; of no lane when closed."""
        with self._condition:
            while not self._is_closed:
                now = time.monotonic()
                period = self._period()
                waiting = [lane for lane in self._order if lane.items]
                ready = [lane for lane in waiting if lane.due(period) <= now]
                # When there is something to do that nobody notifies of.
                times = [lane.due(period) for lane in waiting if lane.due(period) > now]
                if ready:
                    first = min(max(lane.since, lane.due(period)) for lane in ready)
                    times.append(first + self._wait_seconds())
                    if len(ready) >= self._max_batch or times[-1] <= now:
                        return self._serve(ready[: self._max_batch])
                self._condition.wait(
                    min(min(times) - now, LONGEST_WAIT_SECONDS) if times else None
                )
            return []

    def _period(self) -> float:
        """Return the shortest time between two items of a lane, in seconds."""
        rate_hz = self._max_rate_hz()
        return 1 / max(rate_hz, LOWEST_RATE_HZ) if rate_hz > 0 else 0.0

    def _serve(self, lanes: list[Lane[T]]) -> list[Lane[T]]:
        """Move lanes to the end of the order; return them by number."""
        for lane in lanes:
            self._order.remove(lane)
        self._order += lanes
        return sorted(lanes, key=lambda lane: lane.number)


class NewestWorker(FairWorker[T]):
    """A FairWorker of one lane, whose item, and cause of dropping it, come by themselves."""

    def __init__(
        self,
        handle: Callable[[T], None],
        on_drop: Callable[[str], None],
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
