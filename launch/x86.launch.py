"""A detector with the defaults of config/x86.yaml, unless platform says otherwise."""

from trt_ros.launching.task_launch import task_launch
from trt_ros.nodes.detector import DetectorNode


def generate_launch_description():
    """Return the launch description."""
    return task_launch(DetectorNode, platform='x86')
