"""Imports of the CUDA packages."""

from importlib import import_module
import threading

from trt_ros.cuda import calls


def test_two_threads_import_one_after_the_other(monkeypatch):
    """Python gives one of two threads a half loaded module where packages import each other."""
    both_import = threading.Barrier(2)

    def slow_import(name):
        try:
            both_import.wait(0.3)
        except threading.BrokenBarrierError:  # Alone, as it should be.
            return import_module('math')
        raise AssertionError(f'{name} is imported beside another')

    monkeypatch.setattr(calls, 'import_module', slow_import)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(calls._binding('cuda.core')))
        for _ in range(2)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [import_module('math')] * 2
