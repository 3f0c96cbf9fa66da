"""Boxes in space of the detections on a topic, with a depth image."""

from trt_ros.launching.task_launch import task_launch
from trt_ros.nodes.detections_3d import Detections3DNode


def generate_launch_description():
    """Return the launch description."""
    return task_launch(
        Detections3DNode,
        {
            'detections': 'Topic of the detections.',
            'depth_image': 'Topic of the depth image.',
            'depth_info': 'Topic of the calibration of the depth image.',
            'camera_info': 'Topic of the calibration of the image, for registered:=false.',
            'instances': 'Topic of the instances of a segmenter, for use_instances:=true.',
        },
        image=False,
    )
