"""The newest item wins, and each one is handled or accounted for."""

import threading
import time

from trt_ros.ros.worker import REPLACED, STOPPED, NewestWorker

DEADLINE_SECONDS = 60.0


class Handler:
    """Holds each item in hand until it is let go."""

    def __init__(self):
        self.handled, self.dropped = [], []
        self.started, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, item):
        self.started.release()
        assert self.go_on.acquire(timeout=DEADLINE_SECONDS)
        self.handled.append(item)


def test_what_waits_is_replaced_by_the_newest():
    handler = Handler()
    worker = NewestWorker(handler, handler.dropped.append)
    worker.put(1)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    for item in (2, 3, 4):
        worker.put(item)
    handler.go_on.release(2)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    worker.close()
    assert handler.handled == [1, 4]
    assert handler.dropped == [REPLACED, REPLACED]


def test_close_waits_for_the_item_in_hand_and_gives_up_the_waiting_one():
    handler = Handler()
    worker = NewestWorker(handler, handler.dropped.append)
    worker.put(1)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    worker.put(2)
    closing = threading.Thread(target=worker.close)
    closing.start()
    handler.go_on.release(2)
    closing.join(DEADLINE_SECONDS)
    assert (handler.handled, handler.dropped) == ([1], [STOPPED])
    worker.put(3)
    worker.close()
    assert (handler.handled, handler.dropped) == ([1], [STOPPED, STOPPED])


def test_each_item_is_told_how_long_it_has_waited_before_it_is_handled():
    handler, ages = Handler(), []
    worker = NewestWorker(handler, handler.dropped.append, on_taken=ages.append)
    worker.put(1)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    assert len(ages) == 1
    before = time.monotonic()
    worker.put(2)
    waits = time.monotonic()
    worker.put(3)  # It counts from its own coming, not from that of the one it replaces.
    replaced = time.monotonic()
    assert len(ages) == 1
    released = time.monotonic()
    handler.go_on.release(2)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    after = time.monotonic()
    worker.close()
    assert handler.handled == [1, 3]
    assert before <= waits and released - replaced <= ages[1] <= after - waits


def test_no_thread_is_left_behind():
    before = threading.active_count()
    NewestWorker(lambda item: None, lambda cause: None).close()
    assert threading.active_count() == before


def test_a_rate_limit_replaces_what_comes_faster():
    handled, dropped, done = [], [], threading.Event()
    rates = iter([0.001, 0.001])
    worker = NewestWorker(
        lambda item: (handled.append(item), done.set()), dropped.append,
        max_rate_hz=lambda: next(rates))
    worker.put(1)
    assert done.wait(DEADLINE_SECONDS)
    for item in (2, 3):  # The next is due in a thousand seconds.
        worker.put(item)
    worker.close()
    assert (handled, dropped) == ([1], [REPLACED, STOPPED])
