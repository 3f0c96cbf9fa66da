"""Anticipation of items that come regularly: their code is in the caches of the CPU by then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
import ctypes
import math
import os
import threading
import time
from typing import Any

#: Time before an item at which its preparation begins; intervals below five times this are short.
LEAD_SECONDS = 1e-3
#: Part by which an interval of regular items may differ from the one before.
TOLERANCE = 0.05

_core_of_thread = ctypes.PyDLL(None).sched_getcpu
_open: set[Anticipation] = set()


class Anticipation:
    """
    A thread that prepares for each item shortly before it is expected, until close().

    It does so on the core on which the last one came, whose caches are those that count. It sleeps
    while items come irregularly, and with others in the process: they would delay each other's.

    :param prepare: called with the last item; must not raise.
    """

    def __init__(self, prepare: Callable[[Any], None]) -> None:
        self._prepare, self._item = prepare, None
        self._core = self._own_core = -1
        self._last, self._interval, self._expected = -math.inf, math.inf, math.inf
        self._sleeps_until, self._woken, self._is_closed = -math.inf, threading.Event(), False
        _open.add(self)
        self._thread = threading.Thread(target=self._run, name='anticipation')
        self._thread.start()

    def came(self, when: float, item: Any) -> None:
        """Add an item by its time.monotonic(), in the thread in which it came."""
        before, interval = self._interval, when - self._last
        is_regular = interval > 5 * LEAD_SECONDS and abs(interval - before) < TOLERANCE * interval
        is_expected = is_regular and len(_open) == 1
        self._last, self._interval, self._core = when, interval, _core_of_thread()
        self._item = item if is_expected else None
        self._expected = when + interval if is_expected else math.inf
        if self._expected < self._sleeps_until:
            self._woken.set()

    def close(self) -> None:
        """Stop, and wait for a preparation in progress; may be called twice."""
        _open.discard(self)
        self._is_closed = True
        self._woken.set()
        self._thread.join()
        self._item = None

    def _run(self) -> None:
        allowed, prepared = os.sched_getaffinity(0), -math.inf
        while not self._is_closed:
            expected, now = self._expected, time.monotonic()
            due = expected - LEAD_SECONDS
            if expected == prepared:
                due += self._interval
                due = due if due > now else math.inf  # It has not come.
            elif due <= now:
                prepared = expected
                if now < expected:  # Otherwise it may have come.
                    self._prepare_last(allowed)
                continue
            self._sleeps_until = due
            self._woken.wait(None if due == math.inf else due - now)
            self._woken.clear()

    def _prepare_last(self, allowed: set[int]) -> None:
        core, item = self._core, self._item
        if core != self._own_core:
            self._own_core = core
            with suppress(OSError):  # The cores that the process may use have changed.
                os.sched_setaffinity(0, {core} & allowed or allowed)
        if item is not None:
            self._prepare(item)
