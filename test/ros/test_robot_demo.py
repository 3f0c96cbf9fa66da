"""The robot demo: a simulation, four nodes, and a robot that arrives."""

from pathlib import Path
import re
import subprocess
import sys

import pytest

pytest.importorskip('mujoco')
import cv2

pytestmark = pytest.mark.nightly

TOOLS = Path(__file__).parents[2] / 'tools'


def test_the_robot_walks_to_the_ball_over_topics_and_leaves_a_film(tmp_path):
    ended = subprocess.run(
        [sys.executable, '-m', 'demo', 'robot', '--seed', '3', '--output', str(tmp_path)],
        cwd=TOOLS,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    table = dict(
        re.split(r' {2,}', line) for line in (tmp_path / 'robot.txt').read_text().splitlines()
    )
    assert {name: table[name] for name in ('target', 'falls', 'touched')} == {
        'target': 'ball',
        'falls': '0',
        'touched': 'nothing',
    }
    assert 0.3 < float(table['distance to the target'].split()[0]) < 0.65
    assert cv2.imread(str(tmp_path / 'robot.png')).any()
    assert 100_000 < (tmp_path / 'robot.webp').stat().st_size < 3_000_000
    logs = {path.name: path.read_text() for path in tmp_path.glob('*.log')}
    assert set(logs) == {'detections_3d.log', 'detector.log', 'overlay.log', 'policy.log'}
    assert not [text for text in logs.values() if '[ERROR]' in text]
