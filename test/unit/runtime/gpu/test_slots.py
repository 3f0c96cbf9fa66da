"""The bookkeeping of frames under way, without a GPU."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
import threading

import numpy as np
import pytest

from support.waiting import DEADLINE_SECONDS
from trt_ros.errors import ClosedError, GpuFailedError
from trt_ros.runtime.gpu.slots import LruCache, Slots
from trt_ros.runtime.gpu.staging import CopyThreadPool, chunks
from trt_ros.runtime.gpu.waiting import Faults


class Thing:
    """Something that is closed once; says so in a list."""

    def __init__(self, name, closed: list) -> None:
        self.name, self._closed = name, closed

    def close(self) -> None:
        assert self.name not in self._closed
        self._closed.append(self.name)


def test_least_recently_used_is_evicted_first_and_a_failed_creation_is_not_kept():
    closed: list = []
    recent = LruCache(capacity=2)
    with pytest.raises(ZeroDivisionError):
        recent.get('a', make=lambda: Thing(1 // 0, closed))
    assert (len(recent), recent.made) == (0, 0)
    for name in 'abac':
        recent.get(name, make=lambda name=name: Thing(name, closed))
    assert (closed, recent.made) == (['b'], 3)
    recent.clear()
    assert (closed, len(recent)) == (['b', 'c', 'a'], 0)


def test_slot_timeout_reports_cause():
    slots = Slots([Thing(0, [])])
    slots.take(0)
    with pytest.raises(GpuFailedError, match=r'(?s)No frame in flight.*never read'):
        slots.take(0.01)


def test_waiting_caller_gets_released_slot():
    slots = Slots([Thing(0, [])])
    held = slots.take(0)
    with ThreadPoolExecutor(1) as thread:
        taken = thread.submit(slots.take, 60)
        slots.give_back(held)
        assert taken.result() is held


def test_closing_closes_every_slot_once_and_refuses_more():
    closed: list = []
    slots = Slots([Thing(0, closed), Thing(1, closed)])
    slots.close()
    slots.close()
    assert closed == [1, 0]
    with pytest.raises(ClosedError):
        slots.take(0)


def test_close_wakes_waiting_callers():
    slots = Slots([Thing(0, [])])
    slots.take(0)
    with ThreadPoolExecutor(1) as thread:
        taken = thread.submit(slots.take, 60)
        slots.close()
        with pytest.raises(ClosedError):
            taken.result()


def test_close_waits_for_frame_in_flight():
    closed: list = []
    slots = Slots([Thing(0, closed)])
    held = slots.take(0)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(slots.close, 60)
        assert closed == []
        slots.give_back(held)
    assert closed == [0]


@pytest.fixture
def clock():
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    return Clock()


def watched(clock, timeout: float = 2.0) -> tuple[Faults, list]:
    """Faults whose thread never comes to look: the test does; and what they report."""
    faults, reported = Faults(0, lambda: None, clock), []
    faults.timeout_seconds = timeout
    faults.report_to(lambda error: reported.append(error.problem))
    return faults, reported


def test_late_run_is_reported_once(clock):
    faults, reported = watched(clock)
    faults.check_time()
    faults.begin(1)
    for now, count in ((2.0, 0), (2.5, 1), (9.0, 1)):
        clock.now = now
        faults.check_time()
        assert reported == ['The GPU has not responded for 2.5 s.'] * count
    with pytest.raises(GpuFailedError, match=r'for 2\.5 s'):
        faults.check()


def test_watchdog_checks_periodically():
    late = threading.Event()
    faults = Faults(0.01, late.set)
    faults.begin(1)
    assert late.wait(DEADLINE_SECONDS)
    faults.close()


def test_runs_that_ended_are_forgotten_and_the_oldest_counts(clock):
    faults, reported = watched(clock)
    faults.begin(1)
    clock.now = 1.0
    faults.begin(2)
    faults.end(1)
    clock.now = 2.5
    faults.check_time()
    assert reported == []
    clock.now = 3.5
    faults.check_time()
    assert reported == ['The GPU has not responded for 2.5 s.']


@pytest.mark.parametrize('helpers', [0, 1, 3])
def test_all_threads_copy_every_piece(helpers):
    source = np.random.default_rng(0).integers(0, 256, 10_000, dtype=np.uint8)
    target = np.zeros_like(source)
    entered: list[int] = []

    class Context:
        def __enter__(self) -> None:
            entered.append(threading.get_ident())

        def __exit__(self, *_) -> None:
            left.append(threading.get_ident())

    left: list[int] = []
    copy_threads = CopyThreadPool(helpers, Context())

    def copy(part: tuple[int, int]) -> None:
        target[slice(*part)] = source[slice(*part)]

    for count in (1, 2, 7):
        target[:] = 0
        copy_threads.run(copy, chunks(len(source), -(-len(source) // count)))
        assert (target == source).all()
    copy_threads.close()
    assert sorted(entered) == sorted(left)
    assert bool(entered) == bool(helpers)
    assert threading.get_ident() not in entered


def test_copy_thread_without_gpu_fails_instead_of_hanging():
    class Lost:
        def __enter__(self) -> None:
            raise ValueError('the GPU is lost')

        def __exit__(self, *_) -> None:
            pass

    copy_threads = CopyThreadPool(1, Lost())
    with pytest.raises(ValueError, match='the GPU is lost'):
        copy_threads.run(lambda _: None, range(2))
    copy_threads.close()


@pytest.mark.parametrize('bad', [0, 1, 2])
def test_error_in_any_chunk_reaches_caller_and_threads_continue(bad):
    copy_threads = CopyThreadPool(1, nullcontext())

    def work(number: int) -> None:
        if number == bad:
            raise ValueError(f'piece {number}')

    with pytest.raises(ValueError, match=f'piece {bad}'):
        copy_threads.run(work, range(3))
    done: list = []
    copy_threads.run(done.append, range(4))
    assert len(done) == 4
    copy_threads.close()


def test_concurrent_copies_get_their_own_results():
    copy_threads = CopyThreadPool(1, nullcontext())
    answers: dict[str, list] = {'left': [], 'right': []}

    def copy(frame: str, order: np.random.Generator) -> None:
        caller = threading.current_thread()
        for _ in range(100):
            helped, delay = threading.Event(), range(int(order.integers(0, 20_000)))

            def work(number: int, helped=helped, delay=delay) -> None:
                if threading.current_thread() is not caller:
                    helped.set()
                    raise ValueError(frame)
                assert helped.wait(DEADLINE_SECONDS)  # Each frame has one piece that it fails.
                for _ in delay:
                    pass

            try:
                copy_threads.run(work, range(2))
                answers[frame].append('no error')
            except ValueError as error:
                answers[frame].append(str(error))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(copy, answers, map(np.random.default_rng, range(2))))
    assert answers == {frame: [frame] * 100 for frame in answers}
    copy_threads.close()
