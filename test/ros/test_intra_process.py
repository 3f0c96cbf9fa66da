"""Messages by reference within this process, beside real DDS to another context of it."""

from __future__ import annotations

import gc
from pathlib import Path
import threading

import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')
pytest.importorskip('composition_interfaces')

import rclpy
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.container.loading import INTRA_PROCESS, construct
from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.cdr import ImageWriter, read_image
from trt_ros.ros.dds.memory import Pool, _MemoryLoan, read_only
from trt_ros.ros.messages import ImageSender

pytestmark = pytest.mark.ros

MODEL = Path(__file__).parents[2] / 'trt_ros/demo/shapes.onnx'
RELIABLE = QoSProfile(depth=20)


class Inbox:
    """Keeps what it is called with, and lets one wait for it."""

    def __init__(self, convert=lambda message: message):
        self.messages, self._convert = [], convert
        self._grown = threading.Condition()

    def __call__(self, *message):
        with self._grown:
            self.messages.append(self._convert(*message))
            self._grown.notify_all()

    def wait(self, count):
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.messages) >= count, DEADLINE_SECONDS), (
                self.messages
            )
            return list(self.messages)


class Wire:
    """What goes through DDS at the publisher, counted."""

    def __init__(self, monkeypatch):
        self.count = 0
        publish = transport.Rcl.publish

        def counted(rcl, publisher, message):
            self.count += 1
            publish(rcl, publisher, message)

        monkeypatch.setattr(transport.Rcl, 'publish', counted)


@pytest.fixture(scope='module')
def contexts(domain_id):
    """Two contexts of one domain: to DDS, the second is another process."""
    contexts = [rclpy.Context(), rclpy.Context()]
    for each in contexts:
        rclpy.init(context=each, domain_id=domain_id)
    yield contexts
    for each in contexts:
        rclpy.shutdown(context=each)


@pytest.fixture
def here(contexts):
    node = rclpy.create_node(
        'here', context=contexts[0], start_parameter_services=False, enable_rosout=False
    )
    node.use_intra_process_comms = True
    assert transport.usable_rcl(node).knows_gids
    yield node
    node.destroy_node()


@pytest.fixture
def elsewhere(contexts):
    node = rclpy.create_node(
        'elsewhere', context=contexts[1], start_parameter_services=False, enable_rosout=False
    )
    node.use_intra_process_comms = True
    yield node
    node.destroy_node()


@pytest.fixture
def wire(here, monkeypatch):
    return Wire(monkeypatch)


@pytest.fixture
def subscribe():
    """Subscribe a node to the images of this test; closed at its end."""
    subscriptions = []

    def start(node, on_message, qos=RELIABLE, **options):
        subscriptions.append(
            transport.subscribe_serialized(node, Image, 'images', qos, on_message, **options)
        )
        return subscriptions[-1]

    yield start
    for each in subscriptions:
        each.close()
    assert intra.count_buffers() == 0


class Camera:
    """Publishes numbered images; `messages` are those that it has sent, as it sent them."""

    def __init__(self, node, qos=RELIABLE):
        self.node, self.publisher = node, node.create_publisher(Image, 'images', qos)
        self.publish = transport.serialized_publish(node, self.publisher)
        self.writer, self.addresses = ImageWriter(), []

    def send(self, number, nbytes=1_000_000):
        self.writer.begin((number, 0), 'camera', (nbytes, 1), 'mono8', channels=1)[:] = number
        self.addresses.append(self.writer.message.ctypes.data)
        self.publish(self.writer.message)

    def meets(self, count):
        """Wait until so many subscriptions are connected by DDS."""
        wait_until(lambda: self.publisher.get_subscription_count() == count, 'subscriptions')

    def settle(self, inbox, wire):
        """Send until DDS need not be told any more."""
        for sent in range(1, 1000):
            before = wire.count
            self.send(0, 10)
            inbox.wait(sent)
            if wire.count == before:
                inbox.messages.clear()
                return
            # The copy that DDS has brought is seen soon.
            threading.Event().wait(0.01)
        pytest.fail('DDS was never left alone')

    def close(self):
        self.node.destroy_publisher(self.publisher)


@pytest.fixture
def camera(here):
    camera = Camera(here)
    yield camera
    camera.close()


def number_of(message):
    """Say which image this is, once all of it is as it was sent."""
    image = read_image(message)
    assert (image.data == image.stamp[0]).all() and image.data.size == image.width
    return image.stamp[0]


def test_nothing_is_sent_without_subscribers(camera, here, subscribe, wire):
    camera.send(1)
    assert wire.count == 0
    assert not transport.should_publish(camera.publisher)
    subscribe(here, Inbox())
    assert transport.should_publish(camera.publisher)


def test_message_is_the_published_memory_and_read_only(camera, here, subscribe):
    inbox = Inbox()
    subscribe(here, inbox)
    camera.send(7)
    (message,) = inbox.wait(1)[:1]
    assert message.ctypes.data == camera.addresses[0]
    data = read_image(message).data
    with pytest.raises(ValueError, match='read-only'):
        data[0] = 1
    with pytest.raises(ValueError, match='WRITEABLE'):
        data.flags.writeable = True
    assert number_of(message) == 7


def test_published_picture_becomes_read_only(here, subscribe):
    publisher = here.create_publisher(Image, 'images', RELIABLE)
    sender, inbox = ImageSender(here, publisher), Inbox(lambda message: read_image(message).data)
    subscribe(here, inbox)
    for number in range(2):
        pixels = sender.begin(Header(), (4, 4))
        pixels[:] = number
        sender.send()
        with pytest.raises(ValueError, match='read-only'):
            pixels[:] = 9
    assert [data.tolist() for data in inbox.wait(2)] == [[0] * 48, [1] * 48]
    here.destroy_publisher(publisher)


def test_dds_is_bypassed_once_connection_is_verified(camera, here, subscribe, wire):
    inbox = Inbox(number_of)
    subscribe(here, inbox)
    camera.settle(inbox, wire)
    before = wire.count
    for number in range(1, 30):
        camera.send(number)
        inbox.wait(number)
    assert inbox.messages == list(range(1, 30))
    assert wire.count == before


def test_kept_message_is_not_overwritten_and_other_memory_is_reused(camera, here, subscribe):
    inbox = Inbox()
    subscribe(here, inbox)
    for number in range(5):
        camera.send(number)
        inbox.wait(number + 1)
    kept = inbox.messages[:]
    assert len({message.ctypes.data for message in kept}) == 5
    inbox.messages.clear()
    for number in range(5, 25):
        camera.send(number)
        inbox.wait(1)
        inbox.messages.clear()
    assert [number_of(message) for message in kept] == list(range(5))
    # Two take turns: the camera has let go of the last one when it takes memory for the next.
    assert len(set(camera.addresses[5:])) <= 3


def test_remote_subscriber_gets_each_message_without_local_duplicates(
    camera, here, elsewhere, subscribe
):
    near, far = Inbox(number_of), Inbox(number_of)
    subscribe(elsewhere, far)
    subscribe(here, near)
    camera.meets(2)
    for number in range(20):
        camera.send(number)
        near.wait(number + 1)
        far.wait(number + 1)
    assert camera.publisher.wait_for_all_acked(Duration(seconds=DEADLINE_SECONDS))
    assert near.messages == far.messages == list(range(20))


def test_temporary_remote_subscriber_is_served(camera, here, elsewhere, subscribe, wire):
    near, far = Inbox(number_of), Inbox(number_of)
    subscribe(here, near)
    camera.settle(near, wire)
    there = subscribe(elsewhere, far)
    camera.meets(2)
    camera.send(1)
    assert (near.wait(1), far.wait(1)) == ([1], [1])
    there.close()
    camera.meets(1)
    before = wire.count
    camera.send(2)
    assert near.wait(2) == [1, 2]
    assert wire.count == before


@pytest.mark.parametrize('who', ['publisher', 'subscriber'])
def test_node_without_intra_process_option_uses_dds(camera, here, subscribe, wire, who):
    other = rclpy.create_node('other', context=here.context, enable_rosout=False)
    inbox = Inbox(number_of)
    try:
        sender = Camera(other) if who == 'publisher' else camera
        subscription = subscribe(here if who == 'publisher' else other, inbox)
        sender.meets(1)
        for number in range(1, 4):
            sender.send(number)
        assert inbox.wait(3) == [1, 2, 3]
        assert wire.count == 3
        subscription.close()
    finally:
        other.destroy_node()


def test_transient_local_messages_go_through_dds(here, subscribe, wire):
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    sender = Camera(here, latched)
    assert transport.should_publish(sender.publisher)
    sender.send(5)
    inbox = Inbox(number_of)
    subscribe(here, inbox, qos=latched)
    assert inbox.wait(1) == [5]
    assert wire.count == 1
    sender.close()


def test_incompatible_qos_delivers_nothing(here, subscribe, wire):
    unreliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    sender = Camera(here, unreliable)
    demanding, modest = Inbox(number_of), Inbox(number_of)
    subscribe(here, demanding, on_incompatible=lambda policy: None)
    subscribe(here, modest, qos=unreliable)
    for number in range(1, 6):
        sender.send(number)
        modest.wait(number)
    assert demanding.messages == []
    sender.close()


def test_other_topics_are_not_delivered(camera, here, subscribe):
    inbox, other = Inbox(number_of), Inbox()
    subscribe(here, inbox)
    elsewhere = transport.subscribe_serialized(here, Image, 'other_images', RELIABLE, other)
    camera.send(1)
    assert inbox.wait(1) == [1]
    elsewhere.close()
    assert other.messages == []


def send_while_busy(camera, here, subscribe, numbers, **options):
    """Send these while the first is in hand; return the inbox of the others."""
    has_begun, may_end = threading.Event(), threading.Event()
    inbox = Inbox(number_of)

    def receive(message):
        if not has_begun.is_set():
            has_begun.set()
            may_end.wait(DEADLINE_SECONDS)
            return
        inbox(message)

    subscribe(here, receive, **options)
    camera.send(100, 10)
    assert has_begun.wait(DEADLINE_SECONDS)
    for number in numbers:
        camera.send(number)  # It returns although the subscriber does not.
    may_end.set()
    return inbox


def test_newest_waiting_message_is_delivered_and_others_counted(camera, here, subscribe):
    replaced = Inbox(lambda: 'replaced')
    inbox = send_while_busy(
        camera, here, subscribe, [1, 2, 3, 4], on_replaced=replaced, qos=QoSProfile(depth=2)
    )
    assert inbox.wait(1) == [4]
    assert len(replaced.messages) == 3


def test_queue_is_limited_to_depth_and_losses_are_reported(camera, here, subscribe):
    lost = Inbox(lambda: 'lost')
    inbox = send_while_busy(
        camera, here, subscribe, [1, 2, 3, 4, 5], on_lost=lost, qos=QoSProfile(depth=3)
    )
    assert inbox.wait(3) == [3, 4, 5]
    assert len(lost.messages) == 2


def test_inactive_lifecycle_publisher_delivers_nothing(contexts, here, subscribe):
    node = LifecycleNode('managed', context=contexts[0], enable_rosout=False)
    node.use_intra_process_comms = True
    publisher = node.create_lifecycle_publisher(Image, 'images', RELIABLE)
    publish = transport.serialized_publish(node, publisher)
    inbox = Inbox(number_of)
    subscribe(here, inbox)
    writer = ImageWriter()
    node.trigger_configure()
    for number, trigger in enumerate(
        (node.trigger_activate, node.trigger_deactivate, node.trigger_activate)
    ):
        writer.begin((number, 0), 'camera', (10, 1), 'mono8', channels=1)[:] = number
        publish(writer.message)
        trigger()
    writer.begin((9, 0), 'camera', (10, 1), 'mono8', channels=1)[:] = 9
    publish(writer.message)
    assert inbox.wait(2) == [1, 9]
    node.destroy_lifecycle_publisher(publisher)
    node.destroy_node()


def test_changing_publishers_and_subscribers_leak_nothing(here, elsewhere, subscribe):
    """While they do, messages flow; none comes twice, and none that was not sent."""
    ending, sent = threading.Event(), []

    def publish_on():
        number = 0
        while not ending.is_set():
            camera = Camera(here)
            for _ in range(20):
                number += 1
                sent.append(number % 250)
                camera.send(number % 250, 2000 + number)
            camera.close()

    def loans():
        gc.collect()
        return sum(isinstance(each, _MemoryLoan) for each in gc.get_objects())

    far = Inbox(number_of)
    there = subscribe(elsewhere, far)
    before = set(threading.enumerate())
    publishing = threading.Thread(target=publish_on)
    publishing.start()
    try:
        for _ in range(15):
            near = Inbox(number_of)
            subscription = subscribe(here, near)
            near.wait(5)
            subscription.close()
            # The numbers follow each other as they were sent: nothing twice, nothing strange.
            steps = np.diff(near.messages) % 250
            assert (steps > 0).all(), near.messages
    finally:
        ending.set()
        publishing.join()
    there.close()
    assert intra.count_buffers() == 0
    assert set(threading.enumerate()) <= before
    wait_until(lambda: loans() == 0, 'all memory to be given back')


def test_context_shutdown_is_clean(domain_id):
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain_id)
    node = rclpy.create_node('ending', context=context, start_parameter_services=False)
    node.use_intra_process_comms = True
    inbox = Inbox(number_of)
    subscription = transport.subscribe_serialized(node, Image, 'images', RELIABLE, inbox)
    camera = Camera(node)
    camera.send(1)
    assert inbox.wait(1) == [1]
    rclpy.shutdown(context=context)
    subscription.close()
    node.destroy_node()
    assert intra.count_buffers() == 0


def test_middleware_without_publisher_ids_is_reported_and_works(
    here, subscribe, monkeypatch, wire, capfd
):
    monkeypatch.setattr(transport.Rcl, 'knows_gids', False)
    inbox = Inbox(number_of)
    subscribe(here, inbox)
    camera = Camera(here)
    camera.meets(1)
    camera.send(3)
    assert inbox.wait(1) == [3]
    assert wire.count == 1
    assert 'use_intra_process_comms has no effect' in capfd.readouterr().err
    camera.close()


def test_rclpy_fallback_works(here, monkeypatch):
    monkeypatch.setattr(transport, '_known', None)
    monkeypatch.setenv(transport.VARIABLE, 'rclpy')
    inbox = Inbox(number_of)
    subscription = transport.subscribe_serialized(here, Image, 'images', RELIABLE, inbox)
    camera = Camera(here)
    executor = SingleThreadedExecutor(context=here.context)
    executor.add_node(here)
    camera.send(4)
    while not inbox.messages:
        executor.spin_once()
    assert inbox.messages == [4]
    subscription.close()
    camera.close()
    executor.shutdown()


def test_memory_comes_back_when_no_view_of_it_is_left():
    pool = Pool()
    first = pool.take(5000)
    address = first.ctypes.data
    view = read_only(first)[10:20]
    del first
    second = pool.take(5000)
    assert second.ctypes.data != address
    del view
    assert pool.take(4000).ctypes.data == address
    assert pool.take(1_000_000).size == 1_000_000


def test_zero_bytes_can_be_allocated():
    assert Pool().take(0).size == 0


@pytest.fixture
def spin(contexts):
    """Construct nodes as the container does, and spin them until the end of the test."""
    executor = SingleThreadedExecutor(context=contexts[0])
    ending, nodes = threading.Event(), []

    def spin_on():
        while not ending.is_set():
            executor.spin_once(0.01)

    thread = threading.Thread(target=spin_on)

    def start(cls, *remaps, **parameters):
        nodes.append(
            construct(
                cls,
                {
                    INTRA_PROCESS: True,
                    'context': contexts[0],
                    'cli_args': [
                        '--ros-args',
                        '-r',
                        '__ns:=/by_reference',
                        *(part for each in remaps for part in ('-r', each)),
                    ],
                    'parameter_overrides': [
                        Parameter(name, value=value) for name, value in parameters.items()
                    ],
                },
            )
        )
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
    assert intra.count_buffers() == 0


def test_source_detector_and_overlay_use_dds_only_for_remote_subscribers(
    spin, elsewhere, wire, tmp_path
):
    pytest.importorskip('onnxruntime')
    cv2 = pytest.importorskip('cv2')
    from trt_ros.nodes.detector import DetectorNode
    from trt_ros.nodes.image_source import ImageSourceNode
    from trt_ros.nodes.overlay import OverlayNode

    picture = np.zeros((48, 64, 3), np.uint8)
    cv2.imwrite(str(tmp_path / 'picture.png'), picture)
    overlay = spin(OverlayNode, 'detections:=detector/detections')
    spin(DetectorNode, model_path=str(MODEL), autostart=True)
    spin(ImageSourceNode, source=str(tmp_path), rate_hz=20.0)

    def drawn():
        return overlay._counts.snapshot()[1]

    def is_dds_left_alone():
        sent, count = wire.count, drawn()
        wait_until(lambda: drawn() > count + 3, 'drawn images')
        return wire.count == sent

    wait_until(is_dds_left_alone, 'images and detections by reference')
    inbox = Inbox(lambda message: read_image(message).data.size)
    subscription = transport.subscribe_serialized(
        elsewhere, Image, '/by_reference/overlay/image', RELIABLE, inbox
    )
    assert inbox.wait(3)[:3] == [picture.size] * 3
    subscription.close()
    wait_until(is_dds_left_alone, 'images and detections by reference')


def test_two_cameras_of_one_detector_need_no_dds(spin, wire, tmp_path):
    pytest.importorskip('onnxruntime')
    cv2 = pytest.importorskip('cv2')
    from trt_ros.nodes.detector import DetectorNode
    from trt_ros.nodes.image_source import ImageSourceNode

    cv2.imwrite(str(tmp_path / 'picture.png'), np.zeros((48, 64, 3), np.uint8))
    detector = spin(
        DetectorNode, model_path=str(MODEL), image_topics=['left', 'right'], autostart=True
    )
    for name in ('left', 'right'):
        spin(
            ImageSourceNode,
            f'__node:={name}_camera',
            f'image:={name}',
            source=str(tmp_path),
            rate_hz=20.0,
        )
    wait_until(lambda: detector.state_label == 'active', 'the detector')

    def is_dds_left_alone():
        def done():
            return [camera.counts.snapshot()[1] for camera in detector.cameras]

        sent, before = wire.count, done()
        wait_until(lambda: min(np.subtract(done(), before)) > 3, 'detections of both')
        return wire.count == sent

    wait_until(is_dds_left_alone, 'images by reference')
