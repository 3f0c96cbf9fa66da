"""Two minutes of the soak test, beside the other tests; an hour of it; and what it judges by."""

import faulthandler
from importlib import util
import os
from pathlib import Path
import random
import subprocess
import sys

import pytest

from trt_ros.ros.diagnostics import FrameCounts

PROGRAM = Path(__file__).with_name('soak.py')


@pytest.mark.nightly
@pytest.mark.slow
def test_three_nodes_in_a_container_soak_for_two_minutes(two_minutes_of_soak):
    process, log = two_minutes_of_soak
    process.wait(1800)  # It makes its rounds however slow this machine is.
    assert process.returncode == 0, log.read_text()[-20000:]


@pytest.mark.soak
def test_three_nodes_in_a_container_soak_for_an_hour(capfd):
    faulthandler.cancel_dump_traceback_later()  # It takes as long as it is asked to.
    seconds = os.environ.get('TRT_ROS_SOAK_SECONDS', '3600')
    seed = os.environ.get('TRT_ROS_SOAK_SEED', str(random.randrange(10**6)))
    with capfd.disabled():
        assert subprocess.run([sys.executable, str(PROGRAM), seconds, seed]).returncode == 0


@pytest.fixture(scope='module')
def soak():
    """The program as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PROGRAM.parent)
        spec = util.spec_from_file_location('soak', PROGRAM)
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def counted(received, published, **dropped):
    return {
        'frames received': str(received),
        'frames published': str(published),
        'frames dropped': str(sum(dropped.values())),
        **{f'dropped: {cause}': str(count) for cause, count in dropped.items()},
    }


def test_unaccounted_frames_and_unexpected_causes_of_drops_are_found(soak):
    assert soak.unaccounted(counted(0, 0)) == 0
    assert soak.unaccounted(counted(10, 7, late=2, bad=1)) == 0
    assert soak.unaccounted(counted(10, 7, late=2)) == 1
    assert soak.unaccounted(counted(10, 9, late=2)) == -1
    assert soak.unknown_causes(counted(3, 0, late=1, bad=2), {'late', 'bad', 'odd'}) == set()
    assert soak.unknown_causes(counted(3, 0, late=1, KeyError=2), {'late'}) == {'KeyError'}


def samples_of(blocks):
    return [{'Python blocks': each, 'threads': 20, 'lent buffers': 0} for each in blocks]


def test_only_growth_to_the_end_is_a_leak(soak):
    # A block a frame, at 60 Hz and 8 s between samples.
    leaking = samples_of([200_000 + 480 * index for index in range(30)])
    assert [complaint.partition(':')[0] for complaint in soak.leaks(leaking)] == ['Python blocks']
    a_thread_each = samples_of([200_000] * 9)
    for index, sample in enumerate(a_thread_each):
        sample['threads'] += index
    assert soak.leaks(a_thread_each)[0].startswith('threads: 3 more at the end, 1 are allowed')
    assert soak.leaks(samples_of([150_000, 190_000, 199_000] + [200_000] * 6)) == []
    draw = random.Random(1)
    assert soak.leaks(samples_of([200_000 + draw.randrange(50_000) for _ in range(300)])) == []


def test_timing_windows_of_soaking_nodes_fill_within_fifty_frames(soak):
    with sys.modules['soak_nodes'].short_timing_windows():
        counts = FrameCounts()
        for frame in range(100):
            counts.record_duration('run', float(frame))
        assert counts.percentiles()['run'][0] == 74.5  # Median of the last 50.
