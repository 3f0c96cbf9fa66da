"""Keypoints on an image topic or on pictures, a video or a camera."""

from trt_ros.launching.task_launch import task_launch
from trt_ros.nodes.pose import PoseNode


def generate_launch_description():
    """Return the launch description."""
    return task_launch(PoseNode, {'detections': 'Topic of the detections, for regions:=true.'})
