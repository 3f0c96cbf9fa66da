"""A detector on an image topic, or on pictures, a video or a camera that it is given."""

from trt_ros.launching.task_launch import single
from trt_ros.nodes.detector import DetectorNode


def generate_launch_description():
    return single(DetectorNode)
