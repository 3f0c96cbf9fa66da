"""Messages that go past rclpy, over real DDS between the nodes of this process."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
import threading

import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from trt_ros.ros import messages
from trt_ros.ros.dds import rcl as rcl_module
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.cdr import ImageWriter, read_image
from trt_ros.ros.dds.cdr_detections import DetectionWriter
from trt_ros.ros.dds.rcl import MemoryHooks, Rcl, RclError
from trt_ros.ros.dds.transport import RclpySubscription, RclSubscription
from trt_ros.ros.messages import detection_publish
from trt_ros.vision.detections import Detections

pytestmark = pytest.mark.ros

DEADLINE_SECONDS = 60.0
RELIABLE = QoSProfile(depth=20)


@pytest.fixture(scope='module')
def context(domain_id):
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain_id)
    yield context
    rclpy.shutdown(context=context)


@pytest.fixture
def node(context):
    node = rclpy.create_node(
        'transport', context=context, start_parameter_services=False, enable_rosout=False
    )
    yield node
    node.destroy_node()


@pytest.fixture(scope='module')
def rcl(context):
    rcl = Rcl()
    transport.check_transport(rcl, context)
    return rcl


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
            return self.messages[:count]


def numbered(number, nbytes=300_000):
    """Make an image whose every byte depends on its number."""
    image = Image(height=1, width=nbytes, step=nbytes, encoding='mono8')
    image.header.stamp.sec = number
    image.data = bytes([number]) * nbytes
    return image


def number_of(message):
    """Say which image this is, once all of it is as it was sent."""
    image = read_image(message)
    assert (image.data == image.stamp[0]).all() and image.data.size == image.width
    return image.stamp[0]


@pytest.fixture
def publisher(node):
    publisher = node.create_publisher(Image, 'images', RELIABLE)
    yield publisher
    node.destroy_publisher(publisher)


@pytest.fixture
def subscribe(rcl, node):
    subscriptions = []

    def start(on_message, publisher=None, qos=RELIABLE, **options):
        subscriptions.append(
            RclSubscription(rcl, node, Image, 'images', qos, on_message, **options)
        )
        if publisher is not None:
            deadline = threading.Event()
            while not publisher.get_subscription_count():
                deadline.wait(0.01)
        return subscriptions[-1]

    yield start
    for each in subscriptions:
        each.close()


def test_messages_arrive_unchanged(publisher, subscribe):
    inbox = Inbox(lambda message: deserialize_message(message.tobytes(), Image))
    subscribe(inbox, publisher)
    sent = [Image(), numbered(1), numbered(2, 7), numbered(3, 6_000_000)]
    for image in sent:
        publisher.publish(image)
    assert inbox.wait(4) == sent


def test_message_is_read_only_and_memory_is_reused_after_release(publisher, subscribe):
    inbox = Inbox(
        lambda message: (message.ctypes.data, message.flags.writeable, number_of(message))
    )
    subscribe(inbox, publisher)
    for number in range(30):
        publisher.publish(numbered(number))
        inbox.wait(number + 1)
    addresses, are_writable, numbers = zip(*inbox.messages)
    assert numbers == tuple(range(30))
    assert not any(are_writable)
    assert len(set(addresses[1:])) == 1  # The first was too small and grew.


def test_kept_message_is_not_overwritten(publisher, subscribe):
    inbox = Inbox()
    subscribe(inbox, publisher)
    for number in range(12):
        # Larger and larger: memory grows while earlier messages are in use.
        publisher.publish(numbered(number, 20_000 * (number + 1)))
        inbox.wait(number + 1)
    kept = [read_image(message).data[:5] for message in inbox.messages]
    inbox.messages.clear()
    for number in range(30, 40):
        publisher.publish(numbered(number))
    inbox.wait(10)
    assert [part.tolist() for part in kept] == [[number] * 5 for number in range(12)]


def test_hooks_are_called_when_memory_is_allocated_and_before_it_is_freed(publisher, subscribe):
    told, lent = [], {}

    def lend(memory):
        assert memory.ctypes.data % 4096 == 0
        told.append(('lend', memory.size))
        lent[memory.ctypes.data] = memory

    def take_back(memory):
        told.append(('take back', memory.size))
        memory[:] = 0  # It is still there.
        assert lent.pop(memory.ctypes.data) is memory

    inbox = Inbox(
        lambda message: any(
            memory.ctypes.data <= message.ctypes.data < memory.ctypes.data + memory.size
            for memory in lent.values()
        )
    )
    subscription = subscribe(inbox, publisher, hooks=MemoryHooks(lend, take_back))
    for count, nbytes in enumerate([10_000, 100_000, 90_000, 500_000], start=1):
        publisher.publish(numbered(1, nbytes))
        inbox.wait(count)
    assert inbox.messages == [True] * 4
    subscription.close()
    assert told == [
        ('lend', 65536),
        ('take back', 65536),
        ('lend', 102400),
        ('take back', 102400),
        ('lend', 503808),
        ('take back', 503808),
    ]
    assert not lent


def send_while_busy(publisher, subscribe, numbers, **options):
    """Send these while the first is in hand; return the inbox of the others."""
    has_begun, may_end = threading.Event(), threading.Event()
    inbox = Inbox(number_of)

    def receive(message):
        if not has_begun.is_set():
            has_begun.set()
            may_end.wait(DEADLINE_SECONDS)
            return
        inbox(message)

    subscribe(receive, publisher, **options)
    publisher.publish(numbered(0))
    assert has_begun.wait(DEADLINE_SECONDS)
    for number in numbers:
        publisher.publish(numbered(number))
    from rclpy.duration import Duration

    assert publisher.wait_for_all_acked(Duration(seconds=DEADLINE_SECONDS))
    may_end.set()
    return inbox


def test_newest_waiting_message_is_delivered_and_others_counted(publisher, subscribe):
    replaced = Inbox(lambda: 'replaced')
    inbox = send_while_busy(publisher, subscribe, [1, 2, 3, 4], on_replaced=replaced)
    assert inbox.wait(1) == [4]
    assert len(replaced.messages) == 3


def test_all_waiting_messages_are_delivered_without_on_replaced(publisher, subscribe):
    assert send_while_busy(publisher, subscribe, [1, 2, 3, 4]).wait(4) == [1, 2, 3, 4]


def test_closing_wakes_the_thread_and_ends_it(publisher, subscribe):
    before = set(threading.enumerate())
    subscription = subscribe(Inbox(), publisher)
    assert len(threading.enumerate()) == len(before) + 1
    subscription.close()
    subscription.close()
    assert set(threading.enumerate()) == before
    assert publisher.get_subscription_count() == 0


def test_the_end_of_the_context_ends_the_thread(rcl, domain_id):
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain_id)
    node = rclpy.create_node('ending', context=context, start_parameter_services=False)
    subscription = RclSubscription(rcl, node, Image, 'images', RELIABLE, Inbox())
    rclpy.shutdown(context=context)
    subscription._thread.join(DEADLINE_SECONDS)
    assert not subscription._thread.is_alive()
    subscription.close()
    node.destroy_node()


def test_opening_and_closing_leaks_nothing(publisher, subscribe):
    def mappings():
        gc.collect()
        return len(Path('/proc/self/maps').read_text().splitlines())

    counts = []
    for number in range(12):
        inbox = Inbox(number_of)
        subscription = subscribe(inbox, publisher)
        publisher.publish(numbered(number))
        inbox.wait(1)
        subscription.close()
        counts.append(mappings())
    assert max(counts[6:]) <= max(counts[:6]) + 2


def test_a_message_in_use_outlives_the_subscription(publisher, subscribe):
    inbox = Inbox()
    subscription = subscribe(inbox, publisher)
    publisher.publish(numbered(9))
    inbox.wait(1)
    subscription.close()
    assert number_of(inbox.messages.pop()) == 9


def test_executor_is_not_used_and_incompatible_offer_is_reported(
    context, node, rcl, subscribe, publisher, capfd
):
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    ending = threading.Event()

    def spin():
        while not ending.is_set():
            executor.spin_once(0.01)

    spinning = threading.Thread(target=spin)
    spinning.start()
    inbox = Inbox(number_of)
    taking = subscribe(inbox, publisher)._subscriptions[0].subscription
    # Its events would wake the executor for each message, again and again until it is taken.
    assert not any(map(executor.can_execute, [taking, *taking.event_handlers]))
    other = rclpy.create_node('unreliable', context=context)
    try:
        for number in range(20):
            publisher.publish(numbered(number))
        assert inbox.wait(20) == list(range(20))
        unreliable = other.create_publisher(
            Image, 'images', QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        )
        text, never = '', threading.Event()
        while 'offering incompatible QoS' not in text:
            never.wait(0.05)
            text += capfd.readouterr().err
        assert 'RELIABILITY' in text
        other.destroy_publisher(unreliable)
    finally:
        ending.set()
        spinning.join()
        executor.shutdown()
        other.destroy_node()


def test_a_frame_is_written_in_place_and_arrives_as_typed_images_do(
    context, node, subscribe, monkeypatch
):
    monkeypatch.setattr(transport, '_known', None)
    publisher = node.create_publisher(Image, 'images', RELIABLE)
    inbox = Inbox(lambda message: deserialize_message(message.tobytes(), Image))
    subscribe(inbox, publisher)
    publish = transport.serialized_publish(node, publisher)
    assert transport.usable_rcl(node) is not None
    writer = ImageWriter()
    pixels = writer.begin((3, 4), 'camera', (640, 480), 'bgr8')
    pixels[:] = np.arange(480)[:, None, None] % 256
    publish(writer.message)
    expected = Image(height=480, width=640, encoding='bgr8', step=1920, data=pixels.tobytes())
    expected.header.frame_id = 'camera'
    expected.header.stamp.sec, expected.header.stamp.nanosec = 3, 4
    assert inbox.wait(1) == [expected]
    node.destroy_publisher(publisher)


@pytest.mark.parametrize('way', ['rcl', 'rclpy'])
def test_an_inactive_lifecycle_publisher_sends_nothing(context, subscribe, monkeypatch, way):
    monkeypatch.setattr(transport, '_known', None)
    monkeypatch.setenv(transport.VARIABLE, way)
    node = LifecycleNode('managed', context=context, enable_rosout=False)
    publisher = node.create_lifecycle_publisher(Image, 'images', RELIABLE)
    inbox = Inbox(number_of)
    subscribe(inbox, publisher)
    publish = transport.serialized_publish(node, publisher)
    node.trigger_configure()
    publish(np.frombuffer(serialize_message(numbered(1)), np.uint8))
    node.trigger_activate()
    publish(np.frombuffer(serialize_message(numbered(2)), np.uint8))
    assert inbox.wait(1) == [2]
    node.destroy_lifecycle_publisher(publisher)
    node.destroy_node()


def test_rcl_error_includes_its_message(rcl):
    class NoPublisher:
        pointer = None

    with pytest.raises(
        RclError, match=r'rcl_publish_serialized_message failed \(return code \d+\).*publisher'
    ):
        rcl.publish(NoPublisher(), np.zeros(8, np.uint8))


def test_failed_take_leaks_no_memory_and_next_message_arrives(
    rcl, publisher, subscribe, monkeypatch, capfd
):
    whole, addresses = Rcl.take, []

    def take(self, subscription, c_bytes, info):
        addresses.append(c_bytes.buffer)
        is_taken = whole(self, subscription, c_bytes, info)
        if is_taken and len(addresses) == 1:
            # As it is left where the middleware did not get the memory that it asked for.
            c_bytes.buffer, c_bytes.capacity = None, 300_000
            raise RclError('no luck')
        return is_taken

    monkeypatch.setattr(Rcl, 'take', take)
    inbox = Inbox(number_of)
    subscribe(inbox, publisher)
    publisher.publish(numbered(1, 7))
    text, never = '', threading.Event()
    while 'no luck' not in text:
        never.wait(0.01)
        text += capfd.readouterr().err
    publisher.publish(numbered(2, 7))
    assert inbox.wait(1) == [2]
    assert len(set(addresses)) == 1


def test_memory_sized_by_middleware_is_read_in_place(rcl, publisher, subscribe, monkeypatch):
    resize, whole = ctypes.CDLL(rcl_module.RCUTILS).rcutils_uint8_array_resize, Rcl.take

    def take(self, subscription, c_bytes, info):
        is_taken = whole(self, subscription, c_bytes, info)
        if is_taken:  # As Cyclone DDS does, also where there is more room.
            assert resize(ctypes.byref(c_bytes), ctypes.c_size_t(c_bytes.length)) == 0
        return is_taken

    monkeypatch.setattr(Rcl, 'take', take)
    lent = []
    inbox = Inbox(number_of)
    subscribe(inbox, publisher, hooks=MemoryHooks(lent.append, lambda memory: None))
    for number, nbytes in enumerate([7, 9000, 300_000, 20_000, 7]):
        publisher.publish(numbered(number, nbytes))
        assert inbox.wait(number + 1)[-1] == number
    assert len(lent) == 2  # The first, and the one that the third needs.


class Flipping(Rcl):
    """Sends another last byte."""

    def publish(self, publisher, message):
        changed = message.copy()
        changed[-1] ^= 1
        super().publish(publisher, changed)


class Deaf(Rcl):
    """Never finds a message."""

    def take(self, subscription, c_bytes, info):
        return False


@pytest.mark.parametrize(
    'broken, why', [(Flipping, 'A message arrived changed'), (Deaf, '0 of 4 messages arrived')]
)
def test_fallback_where_messages_differ_from_rclpy(broken, why, context, node, monkeypatch, capfd):
    monkeypatch.setattr(transport, '_known', None)
    monkeypatch.setattr(transport, 'Rcl', broken)
    monkeypatch.setattr(transport, 'CHECK_TIMEOUT_SECONDS', 0.5 if broken is Deaf else 60.0)
    before = set(threading.enumerate())
    assert transport.usable_rcl(node) is None
    assert transport.usable_rcl(node) is None
    log = capfd.readouterr().err
    assert log.count('Images and results go through rclpy') == 1 and why in log
    assert set(threading.enumerate()) == before


def test_detects_other_structure_layouts_before_use(monkeypatch):
    class Wider(ctypes.Structure):
        _fields_ = [
            ('buffer', ctypes.c_void_p),
            ('flags', ctypes.c_size_t),
            ('length', ctypes.c_size_t),
            ('capacity', ctypes.c_size_t),
            ('allocator', rcl_module._Allocator),
        ]

    monkeypatch.setattr(rcl_module, '_Bytes', Wider)
    with pytest.raises(RclError, match='unexpected layout'):
        Rcl()


def test_reports_library_without_required_functions(monkeypatch):
    monkeypatch.setattr(rcl_module, 'RCL', 'librcutils.so')
    with pytest.raises(RclError, match='rcl_take_serialized_message'):
        Rcl()
    monkeypatch.setattr(rcl_module, 'RCL', 'librcl_of_another_system.so')
    with pytest.raises(RclError, match='librcl_of_another_system'):
        Rcl()


def test_rclpy_fallback_receives_same_messages(context, node, monkeypatch):
    monkeypatch.setattr(transport, '_known', None)
    monkeypatch.setenv(transport.VARIABLE, 'rclpy')
    publisher = node.create_publisher(Image, 'images', RELIABLE)
    inbox = Inbox(number_of)
    subscription = transport.subscribe_serialized(node, Image, 'images', RELIABLE, inbox)
    assert isinstance(subscription, RclpySubscription)
    publish = transport.serialized_publish(node, publisher)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    for number in range(3):
        publish(np.frombuffer(serialize_message(numbered(number)), np.uint8))
    while len(inbox.messages) < 3:
        executor.spin_once()
    assert inbox.messages == [0, 1, 2]
    subscription.close()
    subscription.close()
    assert publisher.get_subscription_count() == 0
    executor.shutdown()
    node.destroy_publisher(publisher)


def test_detections_of_other_layout_are_read_through_rclpy(node, monkeypatch, capfd):
    found = Detections(
        np.array([[10, 20, 30, 50]], np.float32),
        np.array([0.5], np.float32),
        np.array([1], np.int32),
    )
    written = DetectionWriter(('cat', 'dog')).write(
        found, (1, 2), 'camera', class_id_format='name'
    )
    fast = messages.detection_reader(node)
    with monkeypatch.context() as patch:
        patch.setattr(messages, 'read_detections', lambda message: [])
        slow = messages.detection_reader(node)
    assert 'Detections are read as typed messages' in capfd.readouterr().err
    for read in (fast, slow):
        back = read(written, class_ids := ['bird'])
        assert class_ids == ['bird', 'dog']
        assert (back.xyxy.tolist(), back.scores.tolist()) == ([[10, 20, 30, 50]], [0.5])
        assert back.labels.tolist() == [1]


def test_late_subscriber_gets_transient_local_messages(rcl, node, subscribe):
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    publisher = node.create_publisher(Image, 'images', latched)
    publisher.publish(numbered(5))
    inbox = Inbox(number_of)
    subscribe(inbox, qos=latched)
    assert inbox.wait(1) == [5]
    node.destroy_publisher(publisher)


def test_detections_keep_their_ids_however_large(rcl, node):
    kept = QoSProfile(depth=5, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    publish = detection_publish(node, node.create_publisher(Detection2DArray, 'found', kept), ())
    inbox = Inbox(
        lambda message: [
            each.id for each in deserialize_message(message.tobytes(), Detection2DArray).detections
        ]
    )
    subscription = RclSubscription(rcl, node, Detection2DArray, 'found', kept, inbox)
    sent = [[0, 999], [7, 1000], []]
    for ids in sent:
        found = Detections(
            np.zeros((len(ids), 4), np.float32),
            np.ones(len(ids), np.float32),
            np.zeros(len(ids), np.int32),
        )
        publish(found, Header(), 'index', np.array(ids, np.int64))
    publish(found, Header(), 'index')
    assert inbox.wait(4) == [['0', '999'], ['7', '1000'], [], []]
    subscription.close()
