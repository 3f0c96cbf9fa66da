"""Whatever a node's own code does wrong, the node answers, says why, and releases everything."""

from pathlib import Path
import re

import pytest

NODES = Path(__file__).parents[1] / 'support' / 'nodes'


@pytest.fixture(scope='module')
def shared(start_node):
    return start_node('faulty', NODES / 'faulty_node.py')


@pytest.fixture
def node(shared):
    """An unconfigured node whose next fault is up to the test."""
    shared.seen = len(shared.log)
    yield shared
    assert shared.set(fault='') == ''
    shared.back_to_unconfigured()
    assert shared.process.poll() is None


def released(node):
    return re.findall(r'released (\w+)', node.log[node.seen :])


def bring(node, *labels):
    for label in labels:
        assert node.change(label), node.log


@pytest.mark.parametrize(
    'fault, before, label, gone',
    [
        ('configure', [], 'configure', ['first']),
        ('no return', [], 'configure', ['second', 'first']),
        ('activate', ['configure'], 'activate', ['third', 'second', 'first']),
        ('release third', ['configure', 'activate'], 'deactivate', ['third', 'second', 'first']),
        ('release second', ['configure'], 'cleanup', ['second', 'first']),
        ('release third', ['configure', 'activate'], 'shutdown', ['third', 'second', 'first']),
    ],
    ids=str,
)
def test_failed_transition_releases_in_reverse_order_and_logs_reason(
    node, fault, before, label, gone
):
    bring(node, *before)
    assert node.set(fault=fault) == ''
    assert not node.change(label)
    assert node.state == 'unconfigured'
    assert released(node) == gone
    node.wait_for_log(f'on_{label} failed.')
    why = 'It returned None instead of a' if fault == 'no return' else f'fault in {fault}'
    assert why in node.log[node.seen :]
    assert node.set(fault='') == ''
    bring(node, 'configure', 'activate')


def test_callback_that_raises_is_logged_and_node_continues(node):
    bring(node, 'configure')
    assert node.set(fault='callback') == ''
    node.wait_for_log('RuntimeError: fault in callback')
    assert node.set(fault='') == ''
    bring(node, 'activate', 'deactivate', 'cleanup')
    assert released(node) == ['third', 'second', 'first']


def test_process_exit_releases_everything(start_node):
    node = start_node('ended', NODES / 'faulty_node.py', autostart=True)
    node.wait_for_log('Started: active.')
    node.seen = 0
    node.stop()
    assert released(node) == ['third', 'second', 'first']
