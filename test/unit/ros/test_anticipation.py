"""Items that come regularly are prepared for, each once, where the last one came."""

from contextlib import closing
import math
import os
import threading
import time
from types import SimpleNamespace

import pytest

from support.waiting import DEADLINE_SECONDS
from trt_ros.ros import anticipation
from trt_ros.ros.anticipation import Anticipation

DAYS = 86400.0
#: Item 3 comes so long ago that the next is expected in two days.
LEAD, INTERVAL = 5 * DAYS, 100 * DAYS


class Prepared:
    """Keeps the items that were prepared for, and the cores on which that was."""

    def __init__(self):
        self.items, self.cores, self._count = [], [], threading.Semaphore(0)

    def __call__(self, item):
        self.items.append(item)
        self.cores.append(os.sched_getaffinity(0))
        self._count.release()

    def wait(self):
        assert self._count.acquire(timeout=DEADLINE_SECONDS)


@pytest.fixture
def start(monkeypatch):
    """Return a function that starts an anticipation of items that are days apart."""
    monkeypatch.setattr(anticipation, 'LEAD_SECONDS', LEAD)
    return lambda prepared=None: closing(Anticipation(prepared or Prepared()))


def come(anticipated, *intervals, last=-98 * DAYS):
    """Let items 0, 1, .. come, after intervals in days; the last one at a time from now."""
    when = time.monotonic() + last - sum(intervals) * DAYS
    for number, interval in enumerate((0, *intervals)):
        when += interval * DAYS
        anticipated.came(when, number)


def next_look(anticipated):
    """Wait until the thread has looked a few times; return after how many days it looks again."""
    wait, looks, days = anticipated._woken.wait, threading.Semaphore(0), []

    def look(seconds):
        days.append(math.inf if seconds is None else seconds / DAYS)
        looks.release()
        return wait(1e-3)

    anticipated._woken.wait = look
    anticipated._woken.set()
    for _ in range(4):
        assert looks.acquire(timeout=DEADLINE_SECONDS)
    return days[-1]


def test_an_item_is_prepared_for_once_with_the_last_one(start):
    prepared = Prepared()
    with start(prepared) as anticipated:
        for count in (1, 2):
            come(anticipated, 100, 100)
            prepared.wait()
            assert next_look(anticipated) == pytest.approx(2 + 100 - 5)
            assert prepared.items == [2] * count
    anticipated.close()


def test_after_an_item_that_does_not_come_the_thread_sleeps(start, monkeypatch):
    prepared, now = Prepared(), time.monotonic()
    with start(prepared) as anticipated:
        come(anticipated, 100, 100)
        prepared.wait()
        clock = SimpleNamespace(monotonic=lambda: now + 98 * DAYS)
        monkeypatch.setattr(anticipation, 'time', clock)
        assert next_look(anticipated) == math.inf


@pytest.mark.parametrize(
    ('intervals', 'days'),
    [
        ([], math.inf),
        ([100], math.inf),
        ([100, 100], 100),
        ([96, 100], 100),
        ([94, 100], math.inf),
        ([106, 100], math.inf),
        ([100, 100, 200], math.inf),  # One was lost.
        ([100, 200, 100], math.inf),
        ([100, 200, 100, 100], 100),
        ([24, 24], math.inf),  # Five times the lead are longer.
        ([26, 26], 26),
    ],
)
def test_an_item_is_expected_after_two_intervals_of_about_the_same_length(start, intervals, days):
    with start() as anticipated:
        come(anticipated, *intervals, last=0.0)
        left, is_kept = anticipated._expected - time.monotonic(), anticipated._item is not None
    assert left == days * DAYS or left == pytest.approx(days * DAYS)
    assert is_kept == (days < math.inf) and anticipated._item is None


@pytest.mark.parametrize(('last', 'days'), [(-100, 95), (-90, 5)])
def test_nothing_is_prepared_for_too_late_or_too_early(start, last, days):
    prepared = Prepared()
    with start(prepared) as anticipated:
        come(anticipated, 100, 100, last=last * DAYS)
        assert next_look(anticipated) == pytest.approx(days)
    assert not prepared.items


def test_an_item_is_prepared_for_on_the_core_on_which_the_last_one_came(start, monkeypatch):
    allowed, prepared = os.sched_getaffinity(0), Prepared()
    with start(prepared) as anticipated:
        for core in (*allowed, 100_000):  # The last one is not of this process.
            monkeypatch.setattr(anticipation, '_core_of_thread', lambda core=core: core)
            come(anticipated, 100, 100)
            prepared.wait()
    assert prepared.cores == [*({core} for core in allowed), allowed]
    assert os.sched_getaffinity(0) == allowed


def test_nothing_is_expected_while_there_are_several(start):
    with start() as anticipated:
        with start():
            come(anticipated, 100, 100, 100)
            assert anticipated._expected == math.inf
        come(anticipated, 100, 100)
        assert anticipated._expected < math.inf
