"""Nodes of two contexts, which DDS treats as two processes, and their subscriptions."""

from contextlib import ExitStack, closing
import threading

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.utilities import get_rmw_implementation_identifier
from sensor_msgs.msg import Image

from support.dds import RELIABLE, Camera, CountingRcl
from support.shared_images import Other
from support.waiting import wait_until
from trt_ros.container.loading import CONTAINER_IMAGES, INTRA_PROCESS, construct
from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.rcl import NO_HOOKS
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks, RclSubscription


@pytest.fixture(autouse=True)
def no_buffers_are_left():
    yield
    assert not intra._buffers


@pytest.fixture(scope='module')
def make_context(domain_id):
    contexts = []

    def make():
        contexts.append(rclpy.Context())
        rclpy.init(context=contexts[-1], domain_id=domain_id)
        return contexts[-1]

    yield make
    for each in contexts:
        each.try_shutdown()


@pytest.fixture(scope='module')
def contexts(make_context):
    """Two contexts of one domain: to DDS, the second is another process."""
    return [make_context(), make_context()]


@pytest.fixture(scope='module')
def rcl(contexts):
    """What the nodes of the first context pass to DDS with."""
    return CountingRcl(contexts[0])


@pytest.fixture
def wire(rcl):
    rcl.count = 0
    return rcl


@pytest.fixture
def opened():
    """What is to be closed at the end of a test."""
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def make_node(contexts, rcl, make_context, opened):
    """Create a node in the first, the second or a new context; destroyed with the test."""

    def make(name, context=None, *, by_reference=True):
        context = make_context() if context is None else contexts[context]
        node = rclpy.create_node(
            name, context=context, start_parameter_services=False, enable_rosout=False
        )
        node.use_intra_process_comms = by_reference
        opened.callback(node.destroy_node)
        return node

    return make


@pytest.fixture
def node(make_node):
    """Return a node without intra-process communication."""
    return make_node('transport', 0, by_reference=False)


@pytest.fixture
def here(make_node, rcl):
    assert rcl.knows_gids
    return make_node('here', 0)


@pytest.fixture
def elsewhere(make_node):
    return make_node('elsewhere', 1)


@pytest.fixture
def unchecked(make_node):
    """Return a node of a new context, for which the transport is not checked yet."""
    return make_node('unchecked')


@pytest.fixture
def publisher(node):
    return node.create_publisher(Image, 'images', RELIABLE)


@pytest.fixture
def subscribe_rcl(rcl, node, opened):
    """Subscribe `node` to the images of this test; closed at its end."""

    def start(on_message, publisher=None, qos=RELIABLE, hooks=NO_HOOKS, by=rcl, **options):
        callbacks = MessageCallbacks(on_message, **options)
        subscription = RclSubscription(by, node, Image, 'images', qos, callbacks, hooks)
        opened.callback(subscription.close)
        if publisher is not None:
            wait_until(publisher.get_subscription_count, 'the subscription')
        return subscription

    return start


@pytest.fixture
def subscribe(opened):
    """Subscribe a node to the images of this test; closed at its end."""

    def start(
        node, on_message, qos=RELIABLE, hooks=NO_HOOKS, topic='images', kind=Image, **options
    ):
        callbacks = MessageCallbacks(on_message, **options)
        subscription = transport.subscribe_serialized(node, kind, topic, qos, callbacks, hooks)
        opened.callback(subscription.close)
        return subscription

    return start


@pytest.fixture
def make_camera(opened):
    """Create a Camera; closed at the end of the test."""
    return lambda *args, **options: opened.enter_context(closing(Camera(*args, **options)))


@pytest.fixture
def camera(here, make_camera):
    return make_camera(here)


@pytest.fixture
def start(contexts, rcl):
    """Construct nodes as a container does, and spin them until the end of the test."""
    executor = SingleThreadedExecutor(context=contexts[0])
    ending, nodes = threading.Event(), []

    def spin():
        while not ending.is_set():
            executor.spin_once(0.01)

    thread = threading.Thread(target=spin)

    def start(cls, *remaps, images=None, **parameters):
        options = {
            INTRA_PROCESS: True,
            CONTAINER_IMAGES: images,
            'context': contexts[0],
            'cli_args': ['--ros-args', *(part for each in remaps for part in ('-r', each))],
            'parameter_overrides': [
                Parameter(name, value=value) for name, value in parameters.items()
            ],
        }
        nodes.append(construct(cls, options))
        executor.add_node(nodes[-1])
        if not thread.is_alive():
            thread.start()
        return nodes[-1]

    yield start
    ending.set()
    thread.join()
    for node in reversed(nodes):
        node.stop()
    executor.shutdown()
    for node in reversed(nodes):
        node.destroy_node()


@pytest.fixture(scope='module')
def other(domain_id):
    """Start another process, `support.shared_images.Other`; ended with the module."""
    if get_rmw_implementation_identifier().startswith('rmw_cyclonedds'):
        pytest.skip('its messages do not name the publisher for all processes')
    started = []

    def start(role, **environment):
        started.append(Other(role, domain_id, **environment))
        return started[-1]

    yield start
    for each in started:
        each.close()
