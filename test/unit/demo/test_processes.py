"""Nodes in processes: ended together, and heard when they fail. Plain programs stand in."""

from pathlib import Path
import subprocess
import sys

from demo.processes import NodeProcess, running
import pytest

from trt_ros.errors import TrtRosError

ENDS_WELL = """
import signal, sys
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
print('up', flush=True)
signal.pause()
"""
FAILS_AT_ONCE = 'import sys; print("no such camera"); sys.exit(3)'
FAILS_AT_THE_END = ENDS_WELL.replace('exit(0)', 'exit(4)')


def start(code: str, folder: Path, *, wait_for: str) -> NodeProcess:
    process = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    first_line = process.stdout.readline()
    process.stdout.close()
    log = folder / 'camera.log'
    log.write_bytes(first_line)
    assert wait_for in first_line.decode()
    return NodeProcess('camera', process, log)


def test_nodes_are_stopped(tmp_path):
    with running() as nodes:
        nodes.append(start(ENDS_WELL, tmp_path, wait_for='up'))
        nodes.append(start(ENDS_WELL, tmp_path, wait_for='up'))
        for node in nodes:
            node.check()
    assert [node.process.returncode for node in nodes] == [0, 0]


def test_nodes_are_stopped_after_failure_which_a_nonzero_exit_code_is(tmp_path):
    with pytest.raises(KeyError), running() as nodes:
        nodes.append(start(ENDS_WELL, tmp_path, wait_for='up'))
        raise KeyError
    assert nodes[0].process.returncode == 0
    with pytest.raises(TrtRosError, match='exited with code 4'), running() as nodes:
        nodes.append(start(FAILS_AT_THE_END, tmp_path, wait_for='up'))


def test_a_node_that_failed_shows_the_end_of_its_log(tmp_path):
    node = start(FAILS_AT_ONCE, tmp_path, wait_for='no such camera')
    node.process.wait()
    with pytest.raises(TrtRosError, match='camera exited with code 3') as caught:
        node.check()
    assert 'no such camera' in str(caught.value)
    assert str(node.log) in str(caught.value)
