"""Enhanced images of an image topic or on pictures, a video or a camera."""

from trt_ros.launching.task_launch import task_launch
from trt_ros.nodes.enhancer import EnhancerNode


def generate_launch_description():
    """Return the launch description."""
    return task_launch(EnhancerNode)
