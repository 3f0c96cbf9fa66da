"""Images to and from nodes of users, as the nodes of this package send and receive them."""

from collections.abc import Callable
from functools import partial

from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from trt_ros.errors import log_text
from trt_ros.ros.codecs.codec import Serialized, to_header
from trt_ros.ros.codecs.images import RawImageCodec
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import SerializedSubscription, subscribe_serialized
from trt_ros.ros.messages import ImageSender as ImageSender
from trt_ros.vision.frame import Frame


def subscribe_images(
    node: Node,
    topic: str,
    on_image: Callable[[Frame, Header], object],
    qos: int | QoSProfile = 2,
    hooks: MemoryHooks = NO_HOOKS,
) -> SerializedSubscription:
    """
    Subscribe to raw images; of those that wait, the newest is delivered.

    :param on_image: called in a thread of its own, one at a time. The frame borrows the memory
        of the message, which is read-only; errors are logged.
    :param qos: a profile, or the queue depth of a reliable one.
    :param hooks: `MemoryHooks(device.register, device.unregister)`, where `device` is that of a
        Pipeline, lets its GPU read the images in place.
    :returns: an object with close().
    """
    codec = RawImageCodec(node, topic)
    read = codec.reader()

    def receive(message: Serialized) -> None:
        try:
            content = read(message)
            on_image(content.value, to_header(content.frame_id, content.stamp))
        except Exception as error:
            node.get_logger().error(
                f'An image of {topic} was dropped. {log_text(error)}', throttle_duration_sec=10.0
            )

    return subscribe_serialized(
        node,
        Image,
        topic,
        QoSProfile(depth=qos) if isinstance(qos, int) else qos,
        MessageCallbacks(
            receive, on_replaced=lambda: None, rehearse=partial(codec.rehearse, read)
        ),
        hooks,
    )
