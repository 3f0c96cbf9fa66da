"""Results that are still being computed."""

import asyncio
import threading

import pytest

from trt_ros.errors import GpuFailedError, ParameterError
from trt_ros.runtime.future import Future


class Run:
    """A run that ends when the test says so."""

    def __init__(self, error=None):
        self.ended, self.collected, self._error = threading.Event(), 0, error

    def collect(self):
        assert self.ended.wait(30)
        self.collected += 1
        if self._error:
            raise self._error
        return 5

    def future(self):
        return Future(self.collect, self.ended.is_set)


def test_a_result_is_collected_once_and_a_failure_is_raised_again():
    run = Run()
    run.ended.set()
    future = run.future()
    assert (future.result(), future.result(), run.collected) == (5, 5, 1)
    failed = Run(GpuFailedError('lost'))
    failed.ended.set()
    future = failed.future()
    for _ in range(2):
        with pytest.raises(GpuFailedError, match='lost'):
            future.result()
    assert failed.collected == 1


def test_a_future_is_done_when_the_run_has_ended():
    run = Run()
    future = run.future()
    twice = future.map(lambda value: 2 * value)
    assert not future.done() and not twice.done()
    run.ended.set()
    assert future.done() and twice.done()
    assert (twice.result(), future.result()) == (10, 5)
    run.ended.clear()
    assert future.done() and twice.done()


def test_a_future_is_not_done_while_another_thread_waits_for_its_result():
    run, begun = Run(), threading.Event()

    def collect():
        begun.set()
        return run.collect()

    future = Future(collect, run.ended.is_set)
    thread = threading.Thread(target=future.result)
    thread.start()
    assert begun.wait(30) and not future.done()
    run.ended.set()
    thread.join(30)
    run.ended.clear()
    assert future.done()


@pytest.mark.parametrize('error', [None, GpuFailedError('lost')], ids=['result', 'failure'])
def test_a_callback_is_called_with_the_future_on_another_thread(error):
    run, called, seen = Run(error), threading.Event(), []

    def callback(future):
        seen.extend((future, threading.get_ident()))
        called.set()
        future.result()

    future = run.future()
    future.add_done_callback(callback)
    assert not called.is_set()
    run.ended.set()
    assert called.wait(30)
    assert seen[0] is future and seen[1] != threading.get_ident()
    with pytest.raises(ParameterError, match=r'callback is None\.'):
        future.add_done_callback(None)


def test_several_threads_get_one_result():
    run = Run()
    future, found = run.future(), []
    threads = [threading.Thread(target=lambda: found.append(future.result())) for _ in range(4)]
    for thread in threads:
        thread.start()
    run.ended.set()
    for thread in threads:
        thread.join(30)
    assert (found, run.collected) == ([5] * 4, 1)


def test_a_future_is_awaited_while_the_event_loop_runs():
    run = Run()

    async def main():
        waiting = asyncio.ensure_future(asyncio.gather(run.future(), run.future()))
        await asyncio.sleep(0)
        assert not waiting.done()
        run.ended.set()
        return await waiting

    assert asyncio.run(main()) == [5, 5]
