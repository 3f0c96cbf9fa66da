"""The whole demo: pictures, three nodes, detections, annotated pictures."""

from contextlib import ExitStack
import fcntl
from pathlib import Path
import re
import subprocess
import sys

import cv2
from demo.show import listen
from demo.tally import Sighting, Tally
import numpy as np
import pytest

from trt_ros.results.boxes import Detections

pytestmark = pytest.mark.slow

TOOLS = Path(__file__).parents[2] / 'tools'


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, '-m', 'demo', *arguments],
        cwd=TOOLS,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_demo_takes_no_domain_that_is_in_use(tmp_path, monkeypatch):
    monkeypatch.setenv('TMPDIR', str(tmp_path))
    with ExitStack() as reserved:
        for number in range(1, 101):
            path = tmp_path / f'trt_ros_test_domain_{number}.lock'
            fcntl.flock(reserved.enter_context(path.open('w')), fcntl.LOCK_EX)
        ended = run_demo('--seconds', '1', '--output', str(tmp_path / 'out'))
    assert ended.returncode == 1
    assert 'All ROS domains are in use' in ended.stderr


@pytest.mark.nightly
def test_the_demo_finds_what_it_draws_and_leaves_pictures(tmp_path):
    output = tmp_path / 'two words'
    ended = run_demo('--seconds', '6', '--output', str(output))
    assert ended.returncode == 0, ended.stderr
    right, drawn = map(int, re.search(r'(\d+) of (\d+) drawn shapes', ended.stdout).groups())
    assert right >= 0.9 * drawn > 0
    assert re.search(r'^ +0\.0 s  \w+ 0\.\d\d', ended.stdout, re.MULTILINE)
    pictures = sorted(output.glob('*.png'))
    assert f'{len(pictures)} annotated pictures: {output}' in ended.stdout
    assert cv2.imread(str(pictures[0])).shape == (480, 640, 3)
    logs = {path.name: path.read_text() for path in output.glob('*.log')}
    assert set(logs) == {'detector.log', 'image_source.log', 'overlay.log'}
    assert not [text for text in logs.values() if '[ERROR]' in text]


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / 'file').touch()
    ended = run_demo('--output', str(tmp_path / 'file/output'))
    assert ended.returncode == 1
    assert 'cannot be written' in ended.stderr
    assert '--output' in ended.stderr
    assert 'Traceback' not in ended.stderr


def test_detections_do_not_count_before_the_first_image_has_reached_us(capsys):
    xyxy, labels = np.array([[0, 0, 10, 10]], np.float32), np.array([0], np.int32)
    found = Detections(xyxy, np.array([0.9], np.float32), labels)
    late = [Sighting(None, found, 0.01)] * 40 + [Sighting(7, found, 0.01)]

    class Watch:
        def listen(self, seconds):
            pass

        def sightings(self, *, behind=0):
            return [late.pop(0)] if late else []

    tally = Tally({7: (xyxy, labels)})
    listen(Watch(), [], tally, 0.0)
    assert (tally.images, tally.drawn, tally.right) == (41, 1, 1)
    assert capsys.readouterr().out.count('\n') == 1
