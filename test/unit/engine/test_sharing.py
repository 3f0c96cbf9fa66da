"""Engines of one plan in one process: loaded once per GPU, destroyed with the last of them."""

import gc
import threading

import pytest

from support.waiting import DEADLINE_SECONDS
from trt_ros.engine.engine import engines_on, load_engine
from trt_ros.errors import BackendError, ClosedError, ModelError


def test_engines_of_a_plan_share_it_until_the_last_is_closed(library, plan):
    first, second = load_engine(plan, metadata={'a': '1'}), load_engine(plan)
    assert first.handle is second.handle
    assert (library.loaded, first.users, second.users) == (1, 2, 2)
    for engine in (first, second):  # Each reports the memory, which exists once.
        assert engine.account.report()['device'] == {'engine': 700}
    assert (dict(first.metadata), dict(second.metadata)) == ({'a': '1'}, {})
    for _ in range(2):  # Closing twice does not close the other's.
        first.close()
    assert (first.users, second.users, library.destroyed) == (0, 1, [])
    assert first.account.report()['device'] == {}
    with pytest.raises(ClosedError, match='The engine is closed'):
        _ = first.handle
    assert second.handle is not None
    second.close()
    assert library.destroyed == ['engine', 'runtime']
    load_engine(plan).close()
    assert library.loaded == 2


def test_another_content_gpu_or_permission_is_another_engine(library, plan):
    one, other = 60, 61  # No other engines of this process are there.
    options = ({}, {'trusted_code': True}, {'dla_core': 0}, {'shared': False})
    opened = [load_engine(plan, device=one, **each) for each in options]
    opened.append(load_engine(plan, device=other))
    plan.write_bytes(plan.read_bytes() + b'new')
    opened.append(load_engine(plan, device=one))
    assert [engine.users for engine in opened] == [1] * 6
    assert library.loaded == 6
    assert (engines_on(one), engines_on(other)) == (5, 1)
    for engine in opened:
        engine.close()
    assert (engines_on(one), engines_on(other)) == (0, 0)


def test_a_budget_for_weights_is_set_once_per_engine_and_may_be_rejected(library, plan):
    library.errors.clear()
    budgets = (None, 1 << 20, 1 << 20, 2 << 20)
    opened = [load_engine(plan, weight_budget_nbytes=budget) for budget in budgets]
    assert [engine.users for engine in opened] == [1, 2, 2, 1]
    assert [getattr(engine.handle, 'weight_streaming_budget_v2', None) for engine in opened] == [
        *budgets
    ]
    library.errors[:] = ['not built with weight streaming support']
    with pytest.raises(BackendError, match=r'weight_streaming_budget_mib = 3\.\nCause: not'):
        load_engine(plan, weight_budget_nbytes=3 << 20)
    load_engine(plan).close()


def test_the_same_bytes_in_memory_and_in_another_file_are_one_engine(library, plan):
    copy = plan.with_name('copy.engine')
    copy.write_bytes(plan.read_bytes())
    opened = [load_engine(each) for each in (plan, copy, plan.read_bytes())]
    assert (library.loaded, opened[0].users) == (1, 3)
    assert [engine.path for engine in opened] == [plan, copy, None]


def test_a_failed_engine_is_not_given_to_others(library, plan):
    first, second = load_engine(plan), load_engine(plan)
    second.retire()
    third = load_engine(plan)
    assert first.handle is second.handle is not third.handle
    assert (first.users, third.users, library.loaded) == (2, 1, 2)
    first.retire()  # A late report leaves the new engine alone.
    fourth = load_engine(plan)
    assert (third.users, library.loaded) == (2, 2)
    for engine in (first, second):
        engine.close()
    assert library.destroyed == ['engine', 'runtime']
    assert fourth.handle is third.handle


def test_a_forgotten_engine_is_destroyed(library, plan):
    load_engine(plan)
    gc.collect()
    assert library.destroyed == ['engine', 'runtime']


def in_threads(count, work) -> list:
    found = []

    def run() -> None:
        try:
            found.append(work())
        except ModelError as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    return found


def test_threads_that_open_a_plan_at_once_load_it_once(library, plan):
    barrier = threading.Barrier(4)

    def open_one():
        barrier.wait(DEADLINE_SECONDS)
        return load_engine(plan)

    opened = in_threads(4, open_one)
    assert (library.loaded, [engine.users for engine in opened]) == (1, [4] * 4)


def test_each_thread_gets_the_error_of_an_engine_that_cannot_be_loaded(library, plan):
    library.is_refusing = True
    errors = in_threads(3, lambda: load_engine(plan))
    assert [error.cause for error in errors] == ['Magic tag does not match'] * 3
    assert all(error.remedy.startswith('Rebuild it on this machine') for error in errors)
    errors.clear()
    library.is_refusing = False
    opened = load_engine(plan)
    assert (library.loaded, opened.users) == (1, 1)
