"""The newest item wins, and each one is handled or accounted for."""

from functools import partial
import queue
import threading
import time
import weakref

import pytest

from support.waiting import DEADLINE_SECONDS
from trt_ros.ros.worker import REPLACED, STOPPED, FairWorker, Lane


def one_lane(handle, on_drop, **options):
    """Return a worker with one lane, whose callbacks get the item or cause alone."""
    return FairWorker(
        lambda items: partial(handle, items[0][1]),
        lambda _, cause: on_drop(cause),
        lanes=1,
        **options,
    )


def after(handle):
    """Return a function that starts a batch, which `handle` awaits and ends."""
    return lambda items: partial(handle, items)


class Handler:
    """Holds each item in hand until it is let go."""

    def __init__(self):
        self.handled, self.dropped = [], []
        self.started, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, item):
        self.started.release()
        assert self.go_on.acquire(timeout=DEADLINE_SECONDS)
        self.handled.append(item)


def test_items_report_queue_age_after_handling():
    handler, ages = Handler(), []
    worker = one_lane(handler, handler.dropped.append, on_taken=ages.append)
    worker.put(1)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    assert len(ages) == 0
    worker.put(2)
    waits = time.monotonic()
    worker.put(3)  # It counts from its own coming, not from that of the one it replaces.
    handler.go_on.release(2)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    after = time.monotonic()
    worker.close()
    assert handler.handled == [1, 3]
    assert 0 < ages[1] <= after - waits


def test_thread_that_puts_an_item_may_process_it_unless_another_one_is_in_progress():
    threads, handler = [], Handler()
    worker = one_lane(
        lambda item: (threads.append(threading.current_thread()), handler(item)),
        lambda cause: None,
    )
    putting = threading.Thread(target=worker.put, args=(1, 0, True))
    putting.start()
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    worker.put(2, here=True)  # Returns at once.
    handler.go_on.release()
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    handler.go_on.release()
    putting.join(DEADLINE_SECONDS)
    worker.close()
    assert handler.handled == [1, 2]
    assert threads[0] is putting and threads[1] not in (putting, threading.current_thread())


def test_thread_that_puts_an_item_leaves_it_where_the_rate_is_limited():
    handled = queue.Queue()
    worker = one_lane(
        lambda item: handled.put((item, threading.current_thread())),
        lambda cause: None,
        max_rate_hz=lambda: 20.0,
    )
    for item in (1, 2):
        worker.put(item, here=True)
    (first, here), (second, there) = (handled.get(timeout=DEADLINE_SECONDS) for _ in range(2))
    worker.close()
    assert (first, here, second) == (1, threading.current_thread(), 2)
    assert there is not here


def test_thread_that_starts_an_item_does_not_await_it():
    handler, threads = Handler(), []

    def start(items):
        threads.append(threading.current_thread())
        return partial(await_item, items[0][1])

    def await_item(item):
        threads.append(threading.current_thread())
        handler(item)

    worker = FairWorker(start, lambda *dropped: handler.dropped.append(dropped), lanes=1)
    worker.start(1)  # Returns although the item is not handled.
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    for item in (2, 3):  # One is in progress.
        worker.start(item)
    handler.go_on.release(2)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    worker.close()
    here = threading.current_thread()
    assert (threads[0], *(each is here for each in threads[1:])) == (here, False, False, False)
    assert (handler.handled, handler.dropped) == ([1, 3], [(0, REPLACED)])


def test_close_meanwhile_leaves_a_started_item_to_its_thread():
    delivered, closing = [], []

    def start(items):
        closing.append(threading.Thread(target=worker.close))
        closing[0].start()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while any(thread.name == 'frames' for thread in threading.enumerate()):
            assert time.monotonic() < deadline
        return lambda: items

    worker = FairWorker(start, lambda *dropped: None, lanes=1, deliver=delivered.append)
    worker.start(1)
    closing[0].join(DEADLINE_SECONDS)
    assert delivered == [[(0, 1)]] and not closing[0].is_alive()


def test_close_waits_for_the_item_of_a_thread_that_put_it():
    handler = Handler()
    worker = one_lane(handler, handler.dropped.append)
    putting = threading.Thread(target=worker.put, args=(1, 0, True))
    putting.start()
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    closing = threading.Thread(target=worker.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    handler.go_on.release()
    closing.join(DEADLINE_SECONDS)
    assert handler.handled == [1]
    putting.join()


@pytest.mark.parametrize('slow', [0.001, 1e-11, 5e-324])
@pytest.mark.parametrize('fast', [0.0, 1000.0])
def test_lifting_rate_limit_releases_waiting_item(slow, fast):
    handled, rates = queue.SimpleQueue(), [slow]
    worker = one_lane(handled.put, lambda cause: None, max_rate_hz=lambda: rates[0])
    worker.put(1)
    assert handled.get(timeout=DEADLINE_SECONDS) == 1
    worker.put(2)  # The next is due in a thousand seconds, or never.
    rates[0] = fast
    assert handled.get(timeout=DEADLINE_SECONDS) == 2
    worker.close()


def fair_worker(handler, **settings):
    """A FairWorker that tells of its drops as (lane, cause)."""
    return FairWorker(after(handler), lambda *dropped: handler.dropped.append(dropped), **settings)


def test_no_lane_starves_under_load():
    handler = Handler()
    worker = fair_worker(handler, lanes=3)
    worker.put('first', 2)
    for turn in range(12):
        assert handler.started.acquire(timeout=DEADLINE_SECONDS)
        for lane in (0, 1, 0, 2, 0):  # The first is fastest, and always there before the others.
            worker.put(turn, lane)
        handler.go_on.release()
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    handler.go_on.release()
    worker.close()
    served = [lane for ((lane, _),) in handler.handled]
    assert served[:13] == [2] + [0, 1, 2] * 4
    assert all(item == turn for turn, ((_, item),) in enumerate(handler.handled[1:13]))


def test_waiting_items_are_handled_together_once_per_lane():
    handler = Handler()
    worker = fair_worker(handler, lanes=3, max_batch=3)
    worker.put('a', 1)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    for lane, item in ((2, 'b'), (0, 'c'), (2, 'd')):
        worker.put(item, lane)
    handler.go_on.release(2)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    worker.close()
    assert handler.handled == [[(1, 'a')], [(0, 'c'), (2, 'd')]]
    assert handler.dropped == [(2, REPLACED)]


def test_batch_starts_when_every_lane_has_an_item():
    handler = Handler()
    handler.go_on.release(2)
    worker = fair_worker(handler, lanes=2, max_batch=2, wait_seconds=lambda: 1000.0)
    worker.put('a', 1)
    worker.put('b', 1)
    assert not handler.handled
    worker.put('c', 0)
    assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    worker.put('d', 0)
    worker.close()
    assert handler.handled == [[(0, 'c'), (1, 'b')]]
    assert handler.dropped == [(1, REPLACED), (0, STOPPED)]


def test_silent_lane_delays_batch_by_maximum_wait_only():
    handler = Handler()
    worker = fair_worker(handler, lanes=2, max_batch=2, wait_seconds=lambda: 0.2)
    handler.go_on.release(1000)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not handler.started.acquire(timeout=0.01):
        worker.put('newer', 0)
        assert time.monotonic() < deadline
    worker.close()
    assert handler.handled[0] == [(0, 'newer')]


def test_rate_limit_neither_drifts_nor_bursts_after_a_pause():
    lane, handled, period = Lane(0), [], 1 / 24
    times = [index / 25 for index in range(250)]
    for now in (*times, *(60 + each for each in times)):
        lane.put(now, now)
        if lane.due(period) <= now:
            handled.append(lane.take(now, period) < 60)
    assert [handled.count(True), handled.count(False)] == pytest.approx([240, 240], abs=2)


def test_the_rate_limit_is_each_lanes_own():
    handler = Handler()
    worker = fair_worker(handler, lanes=3, max_batch=3, max_rate_hz=lambda: 0.001)
    for item, lanes in (('a', [0]), ('b', [0, 1]), ('c', [0, 1, 2])):
        for lane in lanes:  # The next of each is due in a thousand seconds.
            worker.put(item, lane)
        handler.go_on.release()
        assert handler.started.acquire(timeout=DEADLINE_SECONDS)
    worker.close()
    assert handler.handled == [[(0, 'a')], [(1, 'b')], [(2, 'c')]]
    assert handler.dropped == [(0, REPLACED), (0, STOPPED), (1, STOPPED)]


class Overlapping:
    """Handles batches in several threads; `finish` ends each, in any order."""

    def __init__(self):
        self.started = queue.SimpleQueue()
        self.delivered, self.dropped = [], []
        self._ends = {}

    def handle(self, items):
        ends = self._ends[items[0][1]] = threading.Event()
        self.started.put(items)
        assert ends.wait(DEADLINE_SECONDS)
        return [item for _, item in items]

    def deliver(self, result):
        self.delivered += result

    def worker(self, **settings):
        return FairWorker(
            after(self.handle),
            lambda *dropped: self.dropped.append(dropped),
            deliver=self.deliver,
            **{'lanes': 1, 'in_flight': 2, **settings},
        )

    def next(self):
        return self.started.get(timeout=DEADLINE_SECONDS)

    def finish(self, item):
        self._ends[item].set()


def test_third_item_waits_while_two_are_in_flight_and_is_replaced_by_newest():
    frames = Overlapping()
    worker = frames.worker()
    for item in (1, 2):
        worker.put(item)
        assert frames.next() == [(0, item)]
    for item in (3, 4):
        worker.put(item)
    assert frames.started.empty()
    frames.finish(1)
    assert frames.next() == [(0, 4)]
    frames.finish(2)
    frames.finish(4)
    worker.close()
    assert frames.delivered == [1, 2, 4]
    assert frames.dropped == [(0, REPLACED)]


def test_results_are_delivered_in_order_of_arrival():
    frames = Overlapping()
    worker = frames.worker(in_flight=3)
    for item in (1, 2, 3):
        worker.put(item)
        frames.next()
    for item in (3, 2):
        frames.finish(item)
    assert frames.delivered == []
    frames.finish(1)
    worker.close()
    assert frames.delivered == [1, 2, 3]


def test_close_finishes_all_items_in_flight_and_drops_others():
    frames = Overlapping()
    worker = frames.worker()
    for item in (1, 2):
        worker.put(item)
        frames.next()
    worker.put(3)
    closing = threading.Thread(target=worker.close)
    closing.start()
    for item in (2, 1):
        frames.finish(item)
    closing.join(DEADLINE_SECONDS)
    assert (frames.delivered, frames.dropped) == ([1, 2], [(0, STOPPED)])
    worker.put(4)
    worker.close()
    assert (frames.delivered, frames.dropped) == ([1, 2], [(0, STOPPED)] * 2)


def test_only_full_batch_starts_beside_batch_in_flight():
    frames = Overlapping()
    worker = frames.worker(lanes=2, max_batch=2)
    worker.put('a', 0)
    assert frames.next() == [(0, 'a')]
    worker.put('b', 0)
    assert frames.started.empty()
    worker.put('c', 1)
    assert frames.next() == [(0, 'b'), (1, 'c')]
    worker.put('d', 1)
    for item in ('a', 'b'):
        frames.finish(item)
    assert frames.next() == [(1, 'd')]
    frames.finish('d')
    worker.close()
    assert frames.delivered == ['a', 'b', 'c', 'd']


def test_items_are_released_after_delivery():
    class Message:
        pass

    worker = FairWorker(
        after(lambda items: [item for _, item in items]),
        lambda *dropped: None,
        lanes=1,
        in_flight=2,
    )
    message = Message()
    released = threading.Event()
    weakref.finalize(message, released.set)
    worker.put(message)
    del message
    assert released.wait(DEADLINE_SECONDS)
    worker.close()
