"""Labelling of many recordings by several processes, of which some die."""

from argparse import Namespace
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
import multiprocessing
import os
from pathlib import Path
import pickle
import signal
import subprocess
import threading

import pytest

from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.cli import main
from trt_ros.cli._label import _worker_options
from trt_ros.errors import BadFrameError
from trt_ros.labelling.job import LabelReport
from trt_ros.labelling.workers import Labeler, LocalWorker, label_with_workers
from trt_ros.runtime.options import LabeledOptions

pytestmark = pytest.mark.slow
COUNTS = (300, 10, 20, 300)  # Of the fixture `drives`.


def workers_of(pid):
    """Return the worker processes of a process."""
    found = []
    for path in Path('/proc').glob('[0-9]*'):
        try:
            parent = int((path / 'stat').read_text().rpartition(')')[2].split()[1])
            if parent == pid and b'spawn_main' in (path / 'cmdline').read_bytes():
                found.append(int(path.name))
        except (OSError, ValueError):
            continue
    return found


def test_a_worker_that_dies_is_replaced_and_all_but_failed_results_equal_those_of_one_process(
    label, contents, tmp_path
):
    one, two = tmp_path / 'one', tmp_path / 'two'
    assert main(label(one)[3:]) == 0
    two.mkdir()
    (two / 'drive_1.mcap').write_bytes(b'mine')
    with subprocess.Popen(
        label(two, '--workers', '2'), stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until((two / 'drive_0.mcap').exists, 'a worker to begin')
        for pid in workers_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        _, text = process.communicate()
    assert process.returncode == 1, text
    assert 'drive_1.mcap exists already.' in text and text.count('decoder yolov8') == 1
    for number in (0, 2, 3):
        assert f'drive_{number}: {COUNTS[number]} frames; see' in text
    assert contents(two) == {**contents(one), 'drive_1.mcap': b'mine'}


@pytest.mark.nightly
def test_videos_of_a_worker_that_dies_are_redone(label, tmp_path):
    output = tmp_path / 'out'
    with subprocess.Popen(label(output, '--workers', '2', '--video')) as process:
        wait_until((output / 'drive_0.mcap').exists, 'a worker to begin')
        for pid in workers_of(process.pid):
            os.kill(pid, signal.SIGKILL)
    assert process.returncode == 0
    assert len(list(output.glob('*.mp4'))) == 4


@pytest.mark.parametrize('is_here', [True, False])
def test_unforeseen_error_of_one_recording_leaves_the_others(
    options, tasks, assert_two_of_three_are_labeled, is_here
):
    outcomes = {}
    if is_here:
        with closing(Labeler(options)) as labeler:
            labeler.open()
            outcomes = {each.path: labeler.label(each) for each in tasks}
    else:
        label_with_workers(
            partial(LocalWorker, options),
            1,
            tasks,
            lambda task, outcome: outcomes.update({task.path: outcome}),
        )
    assert_two_of_three_are_labeled(outcomes)


class Worker:
    """A thread in place of a process: opens if it is the first, and labels by a function."""

    def __init__(self, opens=True, label=lambda task: LabelReport(frames=3)):
        self.connection, self._theirs = multiprocessing.Pipe()
        self._label, self.is_closed = label, False
        if opens:
            self._theirs.send(('a reason',))
            threading.Thread(target=self._run).start()

    def _run(self):
        with closing(self._theirs), suppress(EOFError, OSError):
            while True:
                self._theirs.send(self._label(self._theirs.recv()))

    def close(self):
        self.connection.close()
        self.is_closed = True


def test_worker_that_still_opens_is_closed_by_an_interrupt(tasks):
    """As Ctrl-C while the engine is built."""
    workers, reasons = [], []

    def make_worker():
        workers.append(Worker(opens=not workers))
        return workers[-1]

    def interrupt(lines):
        reasons.extend(lines)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label_with_workers(make_worker, 2, tasks, lambda *_: None, on_log=interrupt)
    assert reasons == ['a reason']
    assert [each.is_closed for each in workers] == [True, True]


def test_recording_that_cannot_be_started_over_leaves_the_others(tasks, tmp_path):
    """Its worker died, and its first results cannot be deleted."""

    def label(task):
        if task.video:
            task.output.mkdir()
            raise EOFError  # The worker dies.
        return LabelReport(frames=3)

    outcomes = {}
    first, second = replace(tasks[1], video=True), tasks[2]
    label_with_workers(
        partial(Worker, label=label),
        1,
        [first, second],
        lambda task, outcome: outcomes.update({task.path: outcome}),
    )
    assert 'was not labeled' in str(outcomes[first.path])
    assert outcomes[second.path].frames == 3


def test_model_that_cannot_be_opened_ends_all(label, tmp_path, capsys):
    command = label(tmp_path / 'out', '--workers', '2')[3:]
    command[command.index('--model') + 1] = str(tmp_path / 'none.onnx')
    assert main(command) == 1
    assert 'none.onnx' in capsys.readouterr().err


def test_interrupt_ends_the_workers(label, tmp_path):
    output = tmp_path / 'out'
    with subprocess.Popen(label(output, '--workers', '2'), stderr=subprocess.PIPE) as process:
        wait_until((output / 'drive_0.mcap').exists, 'a worker to begin')
        workers = workers_of(process.pid)
        process.send_signal(signal.SIGINT)
        text = process.communicate()[1].decode()
    assert process.returncode == 130, text
    assert 'Traceback' not in text
    assert workers and not any(Path(f'/proc/{pid}').exists() for pid in workers)


@pytest.mark.nightly
def test_closed_output_ends_the_workers(label, tmp_path):
    """As in `trt-ros label .. 2>&1 | head`."""
    output = tmp_path / 'out'
    with subprocess.Popen(label(output, '--workers', '2'), stderr=subprocess.PIPE) as process:
        process.stderr.readline()
        process.stderr.close()
        assert process.wait(DEADLINE_SECONDS) != 0


def test_workers_take_the_gpus_in_turn_with_device_auto(set_driver):
    set_driver('one', 'other')
    args = Namespace(workers=3, ray=None)
    options = LabeledOptions(backend='onnxruntime', device='auto')
    next_options, count = _worker_options(options, args, 5)
    assert [next_options().device for _ in range(count)] == [0, 1, 0]


def test_errors_go_from_process_to_process():
    error = BadFrameError('kind', 'A problem.', cause='A cause.', remedy='A remedy.')
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.kind, copy.remedy) == (str(error), 'kind', 'A remedy.')
