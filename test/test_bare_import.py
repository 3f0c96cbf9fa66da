"""What works where nothing is installed: no NumPy, no ROS, no TensorRT, no GPU."""

from pathlib import Path
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


def test_bare_python_has_no_packages():
    found = bare_python(
        '-c',
        'from importlib.util import find_spec\n'
        'print([find_spec(name) for name in ("numpy", "rclpy", "onnx")])',
    )
    assert found == '[None, None, None]\n'


@pytest.mark.parametrize('module', ['trt_ros', 'trt_ros.errors', 'trt_ros.cli'])
def test_modules_import_in_bare_python(module):
    assert bare_python('-c', f'import {module}; print({module}.__name__)') == f'{module}\n'


def test_help_names_every_verb():
    text = bare_python('-m', 'trt_ros', '--help')
    assert [verb for verb in cli.verbs() if f'\n    {verb} ' not in text] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    'module', ['trt_ros.runtime.pipeline', 'trt_ros.runtime.gpu.pipeline', 'trt_ros.ros.dds.cdr']
)
def test_networks_are_opened_without_opencv(module):
    pytest.importorskip('numpy')
    code = f'import sys; sys.modules["cv2"] = None; import {module}'
    subprocess.run([sys.executable, '-c', code], cwd=CHECKOUT, check=True)


@pytest.mark.slow
@pytest.mark.parametrize('verb', cli.verbs())
def test_verb_help_works(verb):
    assert bare_python('-m', 'trt_ros', verb, '--help').startswith(f'usage: trt-ros {verb} ')
