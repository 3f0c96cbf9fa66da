"""Numbered images and their receiver, for tests of the transport of messages."""

import threading

import pytest
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.cdr import ImageWriter, read_image
from trt_ros.ros.dds.rcl import MemoryHooks, Rcl

RELIABLE = QoSProfile(depth=20)
QOS = {
    name.lower(): QoSProfile(depth=100, reliability=ReliabilityPolicy[name])
    for name in ('RELIABLE', 'BEST_EFFORT')
}


class CountingRcl(Rcl):
    """
    Counts the messages that the publishers of a context pass to DDS.

    :ivar count: number of messages.
    """

    count = 0

    def __init__(self, context):
        super().__init__()
        transport.check_transport(self, context)
        transport.checked[context], self.count = self, 0

    def publish(self, publisher, message):
        self.count += 1
        super().publish(publisher, message)


class Inbox:
    """A callback that keeps its arguments, and waits for them."""

    def __init__(self, convert=lambda message: message):
        self.messages, self._convert = [], convert
        self._grown = threading.Condition()

    def __call__(self, *message):
        with self._grown:
            self.messages.append(self._convert(*message))
            self._grown.notify_all()

    def wait(self, count):
        """Wait for `count` messages; return all that have arrived."""
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.messages) >= count, DEADLINE_SECONDS), (
                self.messages
            )
            return list(self.messages)


class HeldInbox(Inbox):
    """
    An inbox whose first message holds its callback; the numbers of the others are kept.

    :ivar has_begun: set when the first message is there.
    :ivar may_end: set it to let the callback return.
    """

    def __init__(self):
        super().__init__(number_of)
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, *message):
        if self.has_begun.is_set():
            super().__call__(*message)
            return
        self.has_begun.set()
        self.may_end.wait(DEADLINE_SECONDS)


class Camera:
    """
    A publisher of numbered images.

    :ivar sent: number of images published.
    :ivar addresses: address of each published message.
    """

    def __init__(self, node, qos=RELIABLE, topic='images'):
        self.node = node
        self.publisher = node.create_publisher(Image, topic, qos)
        self.publish = transport.serialized_publish(node, self.publisher)
        self.writer, self.sent, self.addresses = ImageWriter(), 0, []

    def send(self, number=None, nbytes=100):
        """Publish an image of the given number, by default one more than were sent."""
        self.sent += 1
        number = self.sent if number is None else number
        pixels = self.writer.begin((number, 0), 'camera', (nbytes, 1), 'mono8', channels=1)
        pixels[:] = number % 256
        self.addresses.append(self.writer.message.ctypes.data)
        self.publish(self.writer.message)

    def meets(self, count):
        """Wait until so many subscriptions are connected by DDS."""
        wait_until(lambda: self.publisher.get_subscription_count() == count, 'subscriptions')

    def settle(self, inbox, wire):
        """Send until messages no longer go through DDS."""
        wait_until(self.publisher.get_subscription_count, 'a subscription')
        for sent in range(1, 1000):
            before = wire.count
            self.send(0, 10)
            inbox.wait(sent)
            if wire.count == before:
                inbox.messages.clear()
                return
            # The copy that DDS delivers arrives soon.
            threading.Event().wait(0.01)
        pytest.fail('All messages went through DDS.')

    def close(self):
        self.node.destroy_publisher(self.publisher)


class Locked:
    """Memory that is registered, by its address."""

    def __init__(self):
        self.pages, self.registered = {}, []
        self.hooks = MemoryHooks(self.add, self.remove)

    def add(self, memory):
        assert memory.ctypes.data % 4096 == 0
        assert memory.ctypes.data not in self.pages
        self.pages[memory.ctypes.data] = memory
        self.registered.append(memory.ctypes.data)

    def remove(self, memory):
        memory[:] = 0  # It is still there.
        assert self.pages.pop(memory.ctypes.data) is memory

    def holds(self, message):
        address = message.ctypes.data
        return any(start <= address < start + pages.size for start, pages in self.pages.items())


def numbered(number, nbytes=300_000):
    """Return an image whose every byte is its number."""
    image = Image(height=1, width=nbytes, step=nbytes, encoding='mono8')
    image.header.stamp.sec = number
    image.data = bytes([number]) * nbytes
    return image


def number_of(message):
    """Return the number of a serialized image, after checking all of its bytes."""
    image = read_image(message)
    assert (image.data == image.stamp[0] % 256).all() and image.data.size == image.width
    return image.stamp[0]
