"""Ranges for Nsight Systems, recorded by a stand-in for the package nvtx."""

from contextlib import ExitStack
import sys
import threading

import pytest

from support.fake_nvtx import nvtx
from trt_ros.errors import ParameterError
from trt_ros.profiling import mark, marked, recording


@pytest.fixture(autouse=True)
def log(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, 'nvtx', nvtx)
    monkeypatch.setenv('NVTX_LOG', str(tmp_path / 'ranges.txt'))


def test_ranges_nest_and_end_with_an_exception():
    with recording() as line:
        with mark('frame'), mark('copy'):
            pass
        with pytest.raises(ValueError, match='bad frame'), mark('decode'):
            raise ValueError('bad frame')
    with mark('later'):
        pass
    assert line == 'profiling: NVTX ranges of the domain trt_ros'
    (ranges,) = nvtx.read_ranges().values()
    assert ranges == [(0, 'trt_ros: frame'), (1, 'trt_ros: copy'), (0, 'trt_ros: decode')]


def test_calls_of_a_marked_method_are_ranges():
    class Network:
        @marked('network')
        def infer(self, number):
            """Infer."""
            return 10 // number

    with recording():
        assert Network().infer(2) == Network().infer(number=2) == 5
        with pytest.raises(ZeroDivisionError):
            Network().infer(0)
    assert Network().infer(5) == 2
    assert Network.infer.__doc__ == 'Infer.'
    assert list(nvtx.read_ranges().values()) == [[(0, 'trt_ros: network')] * 3]


def test_each_thread_has_its_own_ranges():
    def work():
        with mark('network'):
            pass

    with recording(), mark('frame'):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert sorted(nvtx.read_ranges().values()) == [
        [(0, 'trt_ros: frame')],
        [(0, 'trt_ros: network')],
    ]


def test_ranges_are_recorded_until_the_last_of_two_nodes_ends():
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(recording())
        second.enter_context(recording())
        first.close()
        with mark('network'):
            pass
        second.close()
        with mark('decode'):
            pass
    assert list(nvtx.read_ranges().values()) == [[(0, 'trt_ros: network')]]


def test_missing_package_is_named_with_its_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, 'nvtx', None)
    with (
        pytest.raises(
            ParameterError, match=r'needs the Python package nvtx.*\n.*\n.*pip install nvtx'
        ),
        recording(),
    ):
        pass


def test_real_package_without_a_profiler(monkeypatch):
    monkeypatch.delitem(sys.modules, 'nvtx')
    pytest.importorskip('nvtx')
    with recording() as line, mark('copy'):
        pass
    assert line.startswith('profiling: no profiler is attached to this process; start it with')
