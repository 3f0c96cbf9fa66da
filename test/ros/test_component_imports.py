"""Modules that are imported while a container constructs a node."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')

pytestmark = pytest.mark.ros

COMPONENTS = Path(__file__).parents[2] / 'resource/rclcpp_components/trt_ros'
#: They take long to import, and the executor of a C++ container waits.
LATE = {'onnxruntime', 'onnx', 'tensorrt', 'tensorrt_rtx', 'cuda', 'scipy', 'tritonclient'}


def test_backends_are_not_imported_with_the_nodes():
    places = [line.partition(';')[2] for line in COMPONENTS.read_text().splitlines()]
    modules = ', '.join(place.partition(':')[0] for place in places)
    code = f'import sys, trt_ros.container.embedded, {modules}; print(*sys.modules)'
    imported = set(subprocess.check_output([sys.executable, '-c', code], text=True).split())
    assert 'trt_ros.nodes.detector' in imported
    assert imported & LATE == set()
