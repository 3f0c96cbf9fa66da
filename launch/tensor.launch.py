"""Any network on a topic of images or of tensors, or on pictures that it is given."""

from trt_ros.launching.task_launch import single
from trt_ros.nodes.tensor import TensorNode


def generate_launch_description():
    return single(TensorNode, {'tensors': 'Topic of the tensors, for input:=tensors.'})
