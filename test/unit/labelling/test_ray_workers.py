"""Labelling by actors of Ray, of which one dies."""

import os
from pathlib import Path
import re
import signal
import subprocess
import uuid

import pytest

pytest.importorskip('ray')

import ray

from support.broken_task import FatalTask
from support.waiting import wait_until
from trt_ros.errors import BackendError, ParameterError
from trt_ros.labelling.ray_workers import label_with_ray
from trt_ros.labelling.task import LabelTask
from trt_ros.runtime.options import LabeledOptions
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

# Ray warns of its own future, and leaves its processes to the garbage collector.
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings('ignore')]
TESTS = Path(__file__).parents[2]
FOLDERS = f'{TESTS.parent}{os.pathsep}{TESTS}'


@pytest.fixture
def environment():
    """Mark the processes of this test; Ray on this machine only."""
    before = {name: value for name, value in os.environ.items() if name != 'RAY_ADDRESS'}
    return {**before, 'TRT_ROS_TEST_RUN': uuid.uuid4().hex, 'RAY_USAGE_STATS_ENABLED': '0'}


def actors_of(environment, name='ray::LabelActor.label'):
    """Return the test's processes whose names begin so; by default, actors that label."""
    found, mark = [], f'TRT_ROS_TEST_RUN={environment["TRT_ROS_TEST_RUN"]}'.encode()
    for path in Path('/proc').glob('[0-9]*'):
        try:
            is_actor = (path / 'cmdline').read_bytes().startswith(name.encode())
            if is_actor and mark in (path / 'environ').read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def test_actor_that_dies_is_replaced_and_the_results_equal_those_of_one_process(
    label, contents, tmp_path, environment
):
    subprocess.run(label(tmp_path / 'one'), check=True, capture_output=True)
    output = tmp_path / 'two'
    with subprocess.Popen(
        label(output, '--ray', '--workers', '2'),
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        # Ray takes its time on a busy machine: each step has a deadline of its own.
        for name in ('ray::', 'ray::LabelActor', 'ray::LabelActor.label'):
            found = wait_until(
                lambda name=name: actors_of(environment, name) or process.poll() is not None, name
            )
            assert isinstance(found, list), process.communicate()
        os.kill(found[0], signal.SIGKILL)
        _, text = process.communicate()
    assert process.returncode == 0, text
    assert contents(output) == contents(tmp_path / 'one')


@pytest.mark.parametrize('address', ['auto', '127.0.0.1:1', '[::1]:1'])
def test_cluster_that_does_not_exist_is_named(address):
    problem = rf'Ray at {re.escape(address)} cannot be reached\.\nCause: '
    with pytest.raises(BackendError, match=problem):
        label_with_ray(address, LabeledOptions(), [], print)


def test_worker_that_fits_nowhere_is_refused(monkeypatch):
    monkeypatch.delenv('RAY_ADDRESS', raising=False)
    try:
        with pytest.raises(ParameterError, match='64 GPUs per worker'):
            label_with_ray('local', LabeledOptions(), [], print, gpus=64.0)
    finally:
        ray.shutdown()


@pytest.fixture
def busy_cluster(monkeypatch):
    """Start Ray on this machine with one CPU, which an actor has; return it."""

    class Busy:
        """An actor that does nothing; local, so that Ray sends it."""

    monkeypatch.delenv('RAY_ADDRESS', raising=False)
    monkeypatch.setenv('RAY_USAGE_STATS_ENABLED', '0')
    monkeypatch.setenv('PYTHONPATH', FOLDERS, prepend=os.pathsep)
    ray.init('local', num_cpus=1, log_to_driver=False, configure_logging=False)
    try:
        actor = ray.remote(num_cpus=1)(Busy).remote()
        ray.get(actor.__ray_ready__.remote())
        yield actor
    finally:
        ray.shutdown()


def test_busy_cluster_is_reported_and_an_unforeseen_error_leaves_the_others(
    busy_cluster, options, tasks, assert_two_of_three_are_labeled
):
    lines, outcomes = [], {}

    def log(more):
        if not lines:
            ray.kill(busy_cluster)
        lines.extend(more)

    def done(task, outcome):
        outcomes[task.path] = outcome

    label_with_ray('local', options, tasks, done, count=1, on_log=log)
    assert lines[0].endswith('it needs 1 CPU, of which 0 of 1 are free')
    assert_two_of_three_are_labeled(outcomes)


def test_a_recording_whose_worker_always_dies_leaves_the_others(busy_cluster, options, tasks):
    ray.kill(busy_cluster)
    fatal = FatalTask(**vars(tasks[1]))
    outcomes = []
    label_with_ray(
        'local', options, [fatal, tasks[2]], lambda *found: outcomes.append(found), count=1
    )
    (first, error), (second, report) = outcomes
    assert (first, second) == (fatal, tasks[2]) and report.frames == 20
    assert 'died 3 times' in str(error)


def test_machines_that_join_later_are_used(monkeypatch, options, drives, tmp_path):
    """Two nodes of Ray on this machine; the second one joins while the first works."""
    from ray.cluster_utils import Cluster

    monkeypatch.delenv('RAY_ADDRESS', raising=False)
    monkeypatch.setenv('PYTHONPATH', FOLDERS, prepend=os.pathsep)
    cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 1})
    tasks = [
        LabelTask(drives / 'drive_1', tmp_path / f'{number}.mcap', (), DEFAULT_THRESHOLDS)
        for number in range(6)
    ]
    outcomes = []

    def is_used():
        return ray.cluster_resources()['CPU'] == 2 and not ray.available_resources().get('CPU')

    def done(task, outcome):
        if not outcomes:
            cluster.add_node(num_cpus=1)
            wait_until(is_used, 'an actor on the second machine')
        outcomes.append(outcome)

    try:
        label_with_ray(cluster.address, options, tasks, done, count=2)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert [each.frames for each in outcomes] == len(tasks) * [10]


def test_ray_that_cannot_start_is_reported(label, tmp_path, environment):
    (tmp_path / 'file').touch()
    done = subprocess.run(
        label(tmp_path / 'out', '--ray'),
        env={**environment, 'RAY_TMPDIR': str(tmp_path / 'file')},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert 'Ray at local cannot be reached.\nCause: ' in done.stderr
    assert 'Traceback' not in done.stderr
