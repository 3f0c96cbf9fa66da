"""A classifier on an image topic or on pictures, a video or a camera."""

from trt_ros.launching.task_launch import task_launch
from trt_ros.nodes.classifier import ClassifierNode


def generate_launch_description():
    """Return the launch description."""
    return task_launch(
        ClassifierNode, {'detections': 'Topic of the detections, for regions:=true.'}
    )
