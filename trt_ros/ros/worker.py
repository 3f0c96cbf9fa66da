"""One thread that handles the newest item; an item that waits is replaced by a newer one."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time
from typing import Generic, TypeVar

T = TypeVar('T')

#: Why an item is given up.
REPLACED = 'replaced by a newer frame'
STOPPED = 'the node stopped'
UNWANTED = 'nobody subscribes'


class NewestWorker(Generic[T]):
    """
    Owns its thread until close().

    :param handle: called in the thread with one item at a time; must not raise.
    :param on_drop: called with the cause when an item is given up, in whichever thread finds out.
    :param on_taken: called before `handle` with the seconds that the item has waited.
    :param max_rate_hz: asked before each item; 0.0 is no limit. What comes faster is replaced.
    """

    def __init__(
            self, handle: Callable[[T], None], on_drop: Callable[[str], None], *,
            on_taken: Callable[[float], None] = lambda seconds: None,
            max_rate_hz: Callable[[], float] = lambda: 0.0, name: str = 'frames') -> None:
        self._handle, self._on_drop, self._on_taken = handle, on_drop, on_taken
        self._max_rate_hz = max_rate_hz
        self._waiting: list[tuple[float, T]] = []  # With the time of its coming.
        self._condition = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def put(self, item: T) -> None:
        """Hand over an item; never waits for the handling of another."""
        with self._condition:
            is_closed, was_waiting = self._is_closed, bool(self._waiting)
            if not is_closed:
                self._waiting = [(time.monotonic(), item)]
                self._condition.notify()
        if is_closed:
            self._on_drop(STOPPED)
        elif was_waiting:
            self._on_drop(REPLACED)

    def close(self) -> None:
        """Give up the waiting item, wait for the one in hand; may be called twice."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        self._thread.join()
        if self._waiting:
            self._waiting = []
            self._on_drop(STOPPED)

    def _run(self) -> None:
        due = time.monotonic()
        while self._await_item(due):
            with self._condition:
                came, item = self._waiting.pop()
            rate = self._max_rate_hz()
            now = time.monotonic()
            # From `due`, not from now: a rate just below the camera's would else be halved.
            due = max(due, now - 1 / rate) + 1 / rate if rate > 0 else now
            self._on_taken(now - came)
            self._handle(item)
            del item  # A borrowed message must not live until the next one comes.

    def _await_item(self, due: float) -> bool:
        """Wait until there is an item and it may be handled; False when closed."""
        with self._condition:
            while not self._is_closed:
                delay = due - time.monotonic()
                if self._waiting and delay <= 0:
                    return True
                self._condition.wait(delay if self._waiting else None)
            return False
