"""Nodes of trt_ros and the camera of the tests, loaded into containers of rclcpp_components."""

from pathlib import Path

from vision_msgs.msg import Detection2DArray

MODEL = str(Path(__file__).parents[2] / 'trt_ros/demo/shapes.onnx')
KINDS = ['component_container', 'component_container_mt', 'component_container_isolated']
BY_POINTER = [('use_intra_process_comms', True)]


def load_camera(container, **parameters):
    answer = container.load(
        'trt_ros_test_camera::Camera',
        'trt_ros_test_camera',
        extra=BY_POINTER,
        parameters=parameters.items(),
    )
    assert answer.success, answer.error_message
    return answer.unique_id


def load(container, plugin, *, extra=BY_POINTER, **fields):
    answer = container.load(f'trt_ros::{plugin}', 'trt_ros', extra=extra, **fields)
    assert answer.success, answer.error_message
    return answer


def load_detector(container, name='detector', parameters=(), **fields):
    parameters = [('model_path', MODEL), ('autostart', True), *parameters]
    return load(container, 'DetectorNode', node_name=name, parameters=parameters, **fields)


def detections(container, topic):
    return container.peer.inbox(Detection2DArray, topic)
