"""Keypoints on an image topic, or on pictures, a video or a camera that it is given."""

from trt_ros.launching.task_launch import single
from trt_ros.nodes.pose import PoseNode


def generate_launch_description():
    return single(PoseNode)
