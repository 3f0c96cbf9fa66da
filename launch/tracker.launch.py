"""Tracks of the detections on a topic."""

from trt_ros.launching.task_launch import task_launch
from trt_ros.nodes.tracker import TrackerNode


def generate_launch_description():
    """Return the launch description."""
    return task_launch(
        TrackerNode,
        {
            'detections': 'Topic of the detections.',
            'tensors': 'Topic of the appearance of the detections, for use_appearance:=true.',
        },
        image=False,
    )
