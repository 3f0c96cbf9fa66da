"""A child process that ends well, badly, or not at all."""

from contextlib import closing
import os
import threading
import time

import pytest

from trt_ros.child import Child
from trt_ros.errors import (
    BackendError,
    MemoryLimitError,
    ModelError,
    ParameterError,
    TimeLimitError,
)
from trt_ros.progress import CancelledError, Reporter

WORK = """
import os, signal, sys, threading
from trt_ros.child import limit_memory
from trt_ros.errors import ParameterError

def echo(request, events):
    events.phase('echoing', 50.0)
    return request['value']

def refuse(request, events):
    raise ParameterError('the problem', cause='the cause', remedy='the remedy')

def crash(request, events):
    print('last words', file=sys.stderr, flush=True)
    os.kill(os.getpid(), getattr(signal, request['signal']))

def fail(request, events):
    raise RuntimeError('a bug')

def leave(request, events):
    sys.exit(7)

def write_long(request, events):
    return 'x' * request['nbytes']

def write_file(request, events):
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    with open(os.memfd_create('plan'), 'wb') as file:
        file.write(bytes(2 << 20))

def hang(request, events):
    events.phase('hanging')
    threading.Event().wait()

def wait(request, events):
    threading.Event().wait(1.2)
    return 'done'

def spin(request, events):
    while True:
        pass

def grow(request, events):
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)) * 64)

def grow_within_limit(request, events):
    limit_memory(256 << 20)
    grow(request, events)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a child that runs a function of WORK."""
    (tmp_path / 'work_of_test.py').write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(function, memory_nbytes=1 << 30):
        return closing(
            Child(
                f'work_of_test:{function}',
                title='The work',
                remedy='Do less.',
                memory_nbytes=memory_nbytes,
            )
        )

    return make


def call(child, report=None, timeout_seconds=60.0, busy_factor=1.0, **request):
    return child.call(
        request,
        report=report or Reporter(),
        phase='starting',
        timeout_seconds=timeout_seconds,
        busy_factor=busy_factor,
    )


def test_several_calls_are_answered_in_one_process_with_their_phases(start, children):
    seen = []
    with start('echo') as child:
        report = Reporter(seen.append)
        assert call(child, report, value=[]) == []
        assert call(child, report, value={'é\udcff': 1}) == {'é\udcff': 1}
        assert child.is_usable
    assert seen[0].phase == 'starting'
    assert ('echoing', 50.0) in [(one.phase, one.percent) for one in seen]
    assert children() == []


def test_an_error_for_the_user_comes_back_as_it_was(start):
    with start('refuse') as child, pytest.raises(ParameterError, match='the problem') as caught:
        call(child)
    assert (caught.value.cause, caught.value.remedy) == ('the cause', 'the remedy')


@pytest.mark.parametrize('signal', ['SIGSEGV', 'SIGFPE', 'SIGABRT', 'SIGBUS'])
def test_crash_reports_last_output(start, signal):
    with start('crash') as child:
        with pytest.raises(ModelError, match=f'The work crashed with {signal}') as caught:
            call(child, signal=signal)
        assert not child.is_usable
    assert 'last words' in caught.value.cause and caught.value.remedy == 'Do less.'


@pytest.mark.parametrize(
    ('function', 'error', 'text'),
    [
        ('crash', BackendError, r'was killed.*Remedy: .*Free memory'),
        ('fail', ModelError, 'exit code 1.*Cause: .*RuntimeError: a bug'),
        ('leave', ModelError, 'exit code 7'),
        ('write_file', BackendError, r'Cause: .*ulimit -f\) is 1.0 MiB.*Remedy: .*ulimit -f'),
    ],
)
def test_another_end_is_an_error_with_its_cause_and_remedy(start, function, error, text):
    with start(function) as child, pytest.raises(error, match=f'(?s){text}'):
        call(child, signal='SIGKILL')


@pytest.mark.slow
def test_a_timeout_that_a_busy_machine_extends_up_to_a_limit_kills_the_child(start, children):
    with start('wait') as child:
        assert call(child, timeout_seconds=1.0, busy_factor=1000.0) == 'done'
    with start('spin') as child, pytest.raises(TimeLimitError):
        call(child, timeout_seconds=0.3, busy_factor=1000.0)
    said = r'after \d+\.\d s, during: \w+'
    with start('hang') as child, pytest.raises(TimeLimitError, match=said):
        call(child, timeout_seconds=0.1, busy_factor=3.0)
    assert children() == []


def test_cancel_kills_the_child(start, children):
    cancelled = threading.Event()

    def cancel_when_hanging(progress):
        if progress.phase == 'hanging':
            cancelled.set()

    with start('hang') as child, pytest.raises(CancelledError):
        call(child, Reporter(cancel_when_hanging, cancelled))
    assert children() == []


@pytest.mark.slow
@pytest.mark.parametrize('function', ['grow', 'grow_within_limit'])
def test_memory_limit_ends_the_child(start, function, children):
    limit = (256 << 20) if function == 'grow' else 8 << 30
    with (
        start(function, limit) as child,
        pytest.raises(MemoryLimitError, match=r'The work needs more than \d\.\d GiB of memory'),
    ):
        call(child)
    assert children() == []


def test_no_file_stays_open(start):
    def descriptors():
        return sorted(os.listdir('/proc/self/fd'))

    before = descriptors()
    for function in ('echo', 'fail', 'leave'):
        with start(function) as child, pytest.raises((ModelError, KeyError)):
            call(child, value=1)
            raise KeyError  # Of the one that ends well.
        child.close()
    assert descriptors() == before


@pytest.mark.slow
def test_reading_a_long_result_takes_time_in_proportion_to_its_length(start):
    def seconds(nbytes):
        times = []
        for _ in range(3):  # Other processes empty the caches of the CPU now and then.
            began = time.thread_time()
            assert len(call(child, nbytes=nbytes)) == nbytes
            times.append(time.thread_time() - began)
        return min(times)

    with start('write_long', memory_nbytes=2 << 30) as child:
        call(child, nbytes=1)
        assert seconds(32 << 20) < 24 * seconds(4 << 20)  # Was 64 times as long.


def test_result_of_unlimited_length_is_refused(start, set_constants):
    set_constants(MAX_RESULT_NBYTES=1 << 20)
    with start('write_long') as child:
        assert len(call(child, nbytes=1 << 19)) == 1 << 19
        with pytest.raises(MemoryLimitError, match='more than 1 MiB') as caught:
            call(child, nbytes=1 << 21)
    assert 'metadata' in caught.value.cause and caught.value.remedy
