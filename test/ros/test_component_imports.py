"""Modules that are imported while a container constructs a node."""

import subprocess
import sys

from trt_ros.nodes import NODES

#: They take long to import, and the executor of a C++ container waits.
LATE = {'onnxruntime', 'onnx', 'tensorrt', 'tensorrt_rtx', 'cuda', 'scipy', 'tritonclient'}
#: Needed at configure, or never.
LATER = {'trt_ros.runtime.fitting', 'trt_ros.recording', 'geometry_msgs', 'cv2'}


def test_nodes_are_imported_without_backends_and_one_without_what_its_configure_needs():
    modules = ', '.join(f'trt_ros.nodes.{name}' for name in NODES)
    code = (
        'import sys, trt_ros.nodes.detector; print(*sys.modules)\n'
        f'import trt_ros.container.embedded, {modules}; print(*sys.modules)'
    )
    lines = subprocess.check_output([sys.executable, '-c', code], text=True).splitlines()
    with_detector, with_all = (set(line.split()) for line in lines)
    assert 'trt_ros.nodes.detector' in with_detector
    assert with_detector & LATER == set()
    assert 'trt_ros.nodes.tracker' in with_all
    assert with_all & LATE == set()
