"""A process that publishes or receives numbered images, as its standard input and output tell."""

import sys

import rclpy
from sensor_msgs.msg import Image

from support.dds import RELIABLE, Camera, number_of
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.memory import pool_memory_of
from trt_ros.ros.dds.rcl import Rcl
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks

NBYTES = 300_000


def publish(node: rclpy.node.Node) -> None:
    """Publish the image of each number read; print how many went through DDS until then."""
    sent = []
    original = Rcl.publish
    Rcl.publish = lambda *args: (sent.append(1), original(*args))[1]
    camera = Camera(node)
    for line in sys.stdin:
        camera.send(int(line), NBYTES)
        print(len(sent), flush=True)


def receive(node: rclpy.node.Node) -> None:
    """Print each number received, and 'shared' or 'dds'; keep all messages until the end."""
    kept = []

    def on_message(message):
        kept.append(message)
        print(number_of(message), 'shared' if pool_memory_of(message) else 'dds', flush=True)

    callbacks = MessageCallbacks(on_message)
    subscription = transport.subscribe_serialized(node, Image, 'images', RELIABLE, callbacks)
    sys.stdin.read()
    subscription.close()


def main() -> None:
    """Run as ROLE in DOMAIN."""
    rclpy.init(domain_id=int(sys.argv[2]))
    node = rclpy.create_node(sys.argv[1], start_parameter_services=False, enable_rosout=False)
    {'publish': publish, 'receive': receive}[sys.argv[1]](node)
    node.destroy_node()
    rclpy.shutdown()


if __name__ == '__main__':
    main()
