"""What the plugin in cpp/ does, played by Python: loads nodes, and prints what happens."""

from rcl_interfaces.msg import Parameter as ParameterMessage
from rclpy.parameter import Parameter
from rclpy.serialization import serialize_message

from support.container_images import FakeImages
from trt_ros.container.embedded import EmbeddedNode, load, shut_down
from trt_ros.container.loading import LoadError

OPTIONS = {
    'use_global_arguments': False,
    'enable_rosout': True,
    'start_parameter_services': True,
    'use_intra_process_comms': True,
}


def load_one(plugin: str, *arguments: str, **parameters: object) -> EmbeddedNode:
    messages: list[ParameterMessage] = [
        Parameter(name, value=value).to_parameter_msg() for name, value in parameters.items()
    ]
    return load(
        plugin,
        ['--ros-args', *arguments],
        [serialize_message(message) for message in messages],
        OPTIONS,
        FakeImages(),
    )


def failure_of(plugin: str, **parameters: object) -> str:
    try:
        load_one(plugin, **parameters)
    except LoadError as error:
        return str(error)
    return 'it was loaded'


first = load_one('trt_ros::OverlayNode', '-r', '__node:=front', '-r', '__ns:=/robot')
print(first.name, first.namespace, first.image_node, flush=True)
first.start()
print('unknown:', failure_of('trt_ros::Unknown'), flush=True)
print('wrong type:', failure_of('trt_ros::OverlayNode', qos_depth='many'), flush=True)
second = load_one('trt_ros::DetectorNode', score_threshold=0.125)
print(second.name, second._node.get_parameter('score_threshold').value, flush=True)
second.close()  # Never started.
first.close()
shut_down()
print('done', flush=True)
