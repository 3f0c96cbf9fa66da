"""Any network on a topic of images or of tensors, or on pictures."""

from trt_ros.launching.task_launch import task_launch
from trt_ros.nodes.tensor import TensorNode


def generate_launch_description():
    """Return the launch description."""
    return task_launch(
        TensorNode,
        {
            'tensors': 'Topic of the tensors, for input:=tensors.',
            'detections': 'Topic of the detections, for regions:=true.',
        },
    )
