"""The end of builds: cancels, timeouts, crashes and killed processes."""

import os
from pathlib import Path
import resource
import signal
import subprocess
import sys
import threading

import pytest

from support.waiting import wait_until
from trt_ros.engine.builder.parent import build
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.files import LOCK
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import BackendError, TimeLimitError
from trt_ros.progress import CancelledError, Reporter

pytestmark = pytest.mark.slow  # A second each.


@pytest.fixture
def signal_child(children):
    def send(number):
        (pid,) = children()
        os.kill(int(pid), number)

    return send


def when(phase, action):
    """Make a Reporter's callback that acts once TensorRT is in mid-build."""
    done = []

    def told(progress):
        if not done and progress.phase.startswith(phase):
            done.append(progress)
            action()

    return told


@pytest.fixture
def slow_model(models):
    """Takes TensorRT several seconds."""
    return models.conv(layers=400, size=(64, 64), name='slow')


def test_timeout_kills_build_and_names_phase(slow_model, rtx, children):
    with pytest.raises(TimeLimitError, match=r'slow\.onnx timed out after \d\.\d s, during: \w+'):
        build(slow_model, BuildOptions(), rtx, timeout_seconds=0.5)
    assert children() == []


def test_a_callback_that_raises_ends_the_build(slow_model, rtx, children):
    def broken(_):
        raise RuntimeError('the listener broke')

    with pytest.raises(RuntimeError, match='listener'):
        build(slow_model, BuildOptions(), rtx, report=Reporter(broken))
    assert children() == []


def test_parent_memory_stays_small(models, rtx):
    build(models.conv(), BuildOptions(), rtx).plan.close()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    build(models.conv(layers=40, size=(256, 256)), BuildOptions(), rtx).plan.close()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 * 1024  # KiB; the child's peak is 200 MiB and more.


@pytest.mark.nightly
def test_ten_kills_in_mid_build_leave_nothing_and_the_next_build_works(
    slow_model, models, rtx, tmp_path, monkeypatch, children, signal_child
):
    temporary = tmp_path / 'tmp'
    temporary.mkdir()
    monkeypatch.setenv('TMPDIR', str(temporary))
    cache = EngineCache(models.folder / 'cache')
    descriptors = len(os.listdir('/proc/self/fd'))
    phases = ['starting', 'checking', 'parsing', 'Building engine', 'Cloning', 'Preparing']
    phases += ['Building engine from', 'Optimizing', 'Computing profile', 'Timing']
    for phase in phases:
        reporter = Reporter(when(phase, lambda: signal_child(signal.SIGKILL)))
        with pytest.raises(BackendError, match='was killed'):
            cache.get_or_build(slow_model, BuildOptions(), rtx, report=reporter)
    assert children() == []
    assert len(os.listdir('/proc/self/fd')) == descriptors
    assert list(temporary.iterdir()) == []
    assert [path for path in cache.root.rglob('*') if path.is_file() and path.name != LOCK] == []
    build(models.conv(), BuildOptions(), rtx).plan.close()


def test_a_cancel_kills_a_child_that_does_not_end_by_itself(slow_model, rtx, children):
    cancelled, child, ended = threading.Event(), [], []

    def stop_and_cancel():
        child.extend(map(int, children()))
        os.kill(child[0], signal.SIGSTOP)  # As one that hangs, and hears of no closed pipe.
        cancelled.set()

    def work():
        try:
            report = Reporter(when('Cloning', stop_and_cancel), cancelled)
            build(slow_model, BuildOptions(), rtx, report=report)
        except CancelledError:
            ended.append('cancelled')

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    if is_stuck := thread.is_alive():
        os.kill(child[0], signal.SIGKILL)
        thread.join()
    assert not is_stuck
    assert ended == ['cancelled']
    assert not Path(f'/proc/{child[0]}').exists()


def is_gone(pid):
    """Return whether a process has ended; a zombie has, though nobody has reaped it yet."""
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] in 'ZX'
    except OSError:
        return True


def test_a_parent_that_is_killed_takes_its_child_with_it(slow_model, rtx):
    script = (
        'import sys\n'
        'from pathlib import Path\n'
        'from trt_ros.trt import load_trt\n'
        'from trt_ros.engine.builder.parent import build\n'
        'from trt_ros.engine.options import BuildOptions\n'
        'from trt_ros.progress import Reporter\n'
        'build(Path(sys.argv[1]), BuildOptions(), load_trt("tensorrt_rtx"),\n'
        '      report=Reporter(lambda one: print(one.phase, flush=True)))\n'
    )
    parent = subprocess.Popen(
        [sys.executable, '-c', script, str(slow_model)], stdout=subprocess.PIPE, text=True
    )
    for line in parent.stdout:
        if line.startswith('Cloning'):
            break
    (child,) = map(int, Path(f'/proc/{parent.pid}/task/{parent.pid}/children').read_text().split())
    # A stopped child writes to no broken pipe: only the kernel can end it.
    os.kill(child, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    try:
        wait_until(lambda: is_gone(child), 'the child to end')
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        raise
