"""A node that builds a real engine: it answers, tells how far it is, and can be stopped."""

from itertools import pairwise
from pathlib import Path
import re

import numpy as np
import pytest

pytest.importorskip('tensorrt_rtx')

from support.save_network import save_network


@pytest.fixture
def long_build(tmp_path) -> Path:
    """A model that takes TensorRT many seconds, longer than any of these tests looks on."""
    weights = np.random.default_rng(0).normal(0, 0.1, (8, 8, 3, 3)).astype(np.float32)
    names = [f't{index}' for index in range(1501)]
    nodes = ' '.join(
        f'{after} = Conv <pads = [1, 1, 1, 1]> ({before}, w)' for before, after in pairwise(names)
    )
    start, end = ({name: (1, 8, 32, 32)} for name in (names[0], names[-1]))
    return Path(save_network(tmp_path / 'long.onnx', nodes, start, end, constants={'w': weights}))


def children(node) -> list[str]:
    """The processes that a node has started and not yet ended."""
    return [
        child
        for task in Path(f'/proc/{node.process.pid}/task').iterdir()
        for child in (task / 'children').read_text().split()
    ]


def test_a_build_is_watched_and_cancelled_from_outside(fake_detector, long_build):
    from diagnostic_msgs.msg import DiagnosticArray

    def progress(array):
        return next((each.value for each in array.status[0].values if each.key == 'progress'), '')

    node = fake_detector('building', model_path=f'build:{long_build}')
    box = node.peer.inbox(DiagnosticArray, '/diagnostics')
    configured = node.ask_transition('configure')
    told = box.wait_for(lambda array: ' %' in progress(array), 'progress with a percentage')
    assert told.status[0].message == 'configuring'
    phase, percent, _, seconds, unit = progress(told).rsplit(' ', 4)
    assert phase and 0 <= int(percent) <= 100 and int(seconds) >= 0 and unit == 's'
    assert len(children(node)) == 1
    assert node.state == 'configuring'
    assert node.get('engine_in_memory') is False
    assert not configured.done()
    assert node.change('cleanup')
    assert node.state == 'unconfigured'
    assert not node.peer.wait(configured).success
    assert children(node) == []
    node.wait_for_log('on_configure was cancelled')
    # TensorRT reports many times a second; the log has a line every few seconds.
    seconds = [int(number) for number in re.findall(r', (\d+) s$', node.log, re.MULTILINE)]
    assert seconds[0] == 0
    assert all(later - earlier >= 4 for earlier, later in pairwise(seconds))


def test_shutdown_ends_a_build(fake_detector, long_build):
    node = fake_detector('built_in_vain', model_path=f'build:{long_build}')
    node.ask_transition('configure')
    node.wait_for_log('starting the build')
    node.peer.wait_until(lambda: children(node), 'the build')
    assert node.change('shutdown')
    assert node.state == 'finalized'
    assert children(node) == []
    assert not node.change('configure')
    node.stop()
