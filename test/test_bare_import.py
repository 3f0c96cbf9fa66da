"""What works where nothing is installed: no NumPy, no ROS, no TensorRT, no GPU."""

from pathlib import Path
import re
import subprocess
import sys

import pytest

from trt_ros import cli

CHECKOUT = Path(__file__).parent.parent


def bare_python(*arguments: str) -> str:
    """Run Python without site-packages and return what it prints."""
    return subprocess.run(
        [sys.executable, '-S', *arguments],
        env={'PYTHONPATH': str(CHECKOUT)},
        check=True,
        text=True,
        capture_output=True,
    ).stdout


def test_modules_import_in_bare_python():
    found = bare_python(
        '-c',
        'from importlib.util import find_spec\nimport trt_ros, trt_ros.errors, trt_ros.cli\n'
        'print([find_spec(name) for name in ("numpy", "rclpy", "onnx")])',
    )
    assert found == '[None, None, None]\n'


def test_help_names_every_verb():
    text = bare_python('-m', 'trt_ros', '--help')
    assert text.startswith('usage: trt-ros ') and 'Results of pictures and videos' in text
    assert [verb for verb in cli.verbs() if f'\n    {verb} ' not in text] == []


@pytest.mark.slow
def test_networks_are_opened_without_opencv():
    pytest.importorskip('numpy')
    code = (
        'import sys; sys.modules["cv2"] = None\n'
        'import trt_ros.runtime.pipeline, trt_ros.runtime.gpu.pipeline, trt_ros.ros.dds.cdr'
    )
    subprocess.run([sys.executable, '-c', code], cwd=CHECKOUT, check=True)


@pytest.mark.slow
def test_help_of_each_verb_works():
    text = bare_python(
        '-c',
        'from contextlib import suppress\nfrom trt_ros import cli\nfor verb in cli.verbs():\n'
        '    with suppress(SystemExit):\n        cli.main([verb, "--help"])',
    )
    assert re.findall('^usage: trt-ros (.*?) ', text, re.MULTILINE) == [*cli.verbs()]
