"""Imports of the CUDA packages."""

import sys
import threading

from trt_ros.cuda import calls


def test_two_threads_import_one_after_the_other(monkeypatch, tmp_path):
    """Python gives one of two threads a half loaded module where packages import each other."""
    (tmp_path / 'barrier.py').write_text('import threading\nboth = threading.Barrier(2)')
    for name in ('cuda_one', 'cuda_other'):
        (tmp_path / f'{name}.py').write_text(
            'import barrier\ntry:\n    is_alone = not barrier.both.wait(0.3) + 1\n'
            'except barrier.threading.BrokenBarrierError:\n    is_alone = True'
        )
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    threads = [
        threading.Thread(target=lambda name=name: found.append(calls._binding(name)))
        for name in ('cuda_one', 'cuda_other')
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [each.is_alone for each in found] == [True, True]
    for name in ('barrier', 'cuda_one', 'cuda_other'):
        del sys.modules[name]
