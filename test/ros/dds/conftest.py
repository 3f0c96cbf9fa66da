"""Nodes of two contexts, which DDS treats as two processes, and their subscriptions."""

import threading

import pytest
import rclpy


@pytest.fixture(scope='module')
def contexts(domain_id):
    """Two contexts of one domain: to DDS, the second is another process."""
    contexts = [rclpy.Context(), rclpy.Context()]
    for each in contexts:
        rclpy.init(context=each, domain_id=domain_id)
    yield contexts
    for each in contexts:
        rclpy.shutdown(context=each)


@pytest.fixture(scope='module')
def context(contexts):
    return contexts[0]


@pytest.fixture
def make_node(contexts):
    """Create a node in the first or second context; destroyed at the end of the test."""
    import rclpy

    nodes = []

    def make(name, index, *, by_reference):
        node = rclpy.create_node(
            name, context=contexts[index], start_parameter_services=False, enable_rosout=False
        )
        node.use_intra_process_comms = by_reference
        nodes.append(node)
        return node

    yield make
    for each in nodes:
        each.destroy_node()


@pytest.fixture
def node(make_node):
    """Return a node without intra-process communication."""
    return make_node('transport', 0, by_reference=False)


@pytest.fixture
def here(make_node):
    from trt_ros.ros.dds import transport

    node = make_node('here', 0, by_reference=True)
    assert transport.usable_rcl(node).knows_gids
    return node


@pytest.fixture
def elsewhere(make_node):
    return make_node('elsewhere', 1, by_reference=True)


@pytest.fixture
def nodes(here, elsewhere):
    return [here, elsewhere]


@pytest.fixture(scope='module')
def rcl(context):
    from trt_ros.ros.dds import transport
    from trt_ros.ros.dds.rcl import Rcl

    rcl = Rcl()
    transport.check_transport(rcl, context)
    return rcl


@pytest.fixture
def publisher(node):
    from sensor_msgs.msg import Image

    from support.dds import RELIABLE

    publisher = node.create_publisher(Image, 'images', RELIABLE)
    yield publisher
    node.destroy_publisher(publisher)


@pytest.fixture
def subscribe_rcl(rcl, node):
    """Subscribe `node` to the images of this test; closed at its end."""
    from sensor_msgs.msg import Image

    from support.dds import RELIABLE
    from trt_ros.ros.dds.rcl import NO_HOOKS
    from trt_ros.ros.dds.rcl_subscription import MessageCallbacks, RclSubscription

    subscriptions = []

    def start(on_message, publisher=None, qos=RELIABLE, hooks=NO_HOOKS, by=rcl, **options):
        callbacks = MessageCallbacks(on_message, **options)
        subscriptions.append(RclSubscription(by, node, Image, 'images', qos, callbacks, hooks))
        if publisher is not None:
            deadline = threading.Event()
            while not publisher.get_subscription_count():
                deadline.wait(0.01)
        return subscriptions[-1]

    yield start
    for each in subscriptions:
        each.close()


@pytest.fixture
def subscribe():
    """Subscribe a node to the images of this test; closed at its end."""
    from sensor_msgs.msg import Image

    from support.dds import RELIABLE
    from trt_ros.ros.dds import intra_process as intra
    from trt_ros.ros.dds import transport
    from trt_ros.ros.dds.rcl import NO_HOOKS
    from trt_ros.ros.dds.rcl_subscription import MessageCallbacks

    subscriptions = []

    def start(node, on_message, qos=RELIABLE, hooks=NO_HOOKS, **options):
        callbacks = MessageCallbacks(on_message, **options)
        subscriptions.append(
            transport.subscribe_serialized(node, Image, 'images', qos, callbacks, hooks)
        )
        return subscriptions[-1]

    yield start
    for each in subscriptions:
        each.close()
    assert intra.count_buffers() == 0


@pytest.fixture
def camera(here):
    from support.dds import Camera

    camera = Camera(here)
    yield camera
    camera.close()


class Wire:
    """
    Counter of the messages that publishers pass to DDS.

    :ivar count: number of messages.
    """

    count = 0


@pytest.fixture
def unchecked(monkeypatch):
    """Let the next use of rcl be checked anew."""
    monkeypatch.setattr('trt_ros.ros.dds.transport._known', None)


@pytest.fixture
def as_if_elsewhere(monkeypatch):
    """Let a receiver take this process for another one."""
    monkeypatch.setattr('trt_ros.ros.dds.shared_receiver.os.getpid', lambda: -1)


@pytest.fixture
def wire(here, unchecked):
    from trt_ros.ros.dds.rcl import Rcl
    from trt_ros.ros.dds.transport import usable_rcl

    wire = Wire()

    class Counting(Rcl):
        def publish(self, publisher, message):
            wire.count += 1
            super().publish(publisher, message)

    assert usable_rcl(here, Counting) is not None
    wire.count = 0  # Without those of the check.
    return wire


@pytest.fixture
def other(domain_id):
    """Start another process, `support.shared_images.Other`; ended with the test."""
    from support.shared_images import Other

    started = []

    def start(role, **environment):
        started.append(Other(role, domain_id, **environment))
        return started[-1]

    yield start
    for each in started:
        each.close()
