"""Modules that are imported while a container constructs a node."""

import subprocess
import sys

from trt_ros.nodes import NODES

#: They take long to import, and the executor of a C++ container waits.
LATE = {'onnxruntime', 'onnx', 'tensorrt', 'tensorrt_rtx', 'cuda', 'scipy', 'tritonclient'}
#: Needed at configure, or never.
LATER = {'trt_ros.runtime.fitting', 'trt_ros.recording', 'geometry_msgs', 'cv2'}


def test_backends_are_not_imported_with_the_nodes():
    modules = ', '.join(f'trt_ros.nodes.{name}' for name in NODES)
    code = f'import sys, trt_ros.container.embedded, {modules}; print(*sys.modules)'
    imported = set(subprocess.check_output([sys.executable, '-c', code], text=True).split())
    assert 'trt_ros.nodes.detector' in imported
    assert imported & LATE == set()


def test_a_node_is_imported_without_what_its_configure_needs():
    code = 'import sys, trt_ros.nodes.detector; print(*sys.modules)'
    imported = set(subprocess.check_output([sys.executable, '-c', code], text=True).split())
    assert imported & LATER == set()
