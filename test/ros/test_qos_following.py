"""With `qos_reliability: auto` a subscription follows its publishers, whenever they come or go."""

import gc
from pathlib import Path
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
import numpy as np
import rclpy
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from vision_msgs.msg import Detection2DArray

from support.extent import IS_EXHAUSTIVE
from support.nodes.fake_detector import open_pipeline
from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.nodes.detector import DetectorNode
from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.cdr import ImageWriter, read_stamp
from trt_ros.ros.dds.rcl import Rcl
from trt_ros.ros.dds.rcl_subscription import RclSubscription
from trt_ros.ros.diagnostics import CameraCounts, FrameCounts, RecentLoss

pytestmark = pytest.mark.ros

QOS = {
    name.lower(): QoSProfile(depth=100, reliability=ReliabilityPolicy[name])
    for name in ('RELIABLE', 'BEST_EFFORT')
}


# The subscription.


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
def nodes(contexts):
    nodes = [
        rclpy.create_node(
            name, context=context, start_parameter_services=False, enable_rosout=False
        )
        for name, context in zip(('here', 'elsewhere'), contexts)
    ]
    for each in nodes:
        each.use_intra_process_comms = True
    yield nodes
    for each in nodes:
        each.destroy_node()


class Camera:
    """Publishes numbered images."""

    def __init__(self, node, reliability='reliable', topic='images'):
        self.node = node
        self.publisher = node.create_publisher(Image, topic, QOS[reliability])
        self.publish = transport.serialized_publish(node, self.publisher)
        self.writer, self.sent = ImageWriter(), 0

    def send(self):
        self.sent += 1
        self.writer.begin((self.sent, 0), 'camera', (100, 1), 'mono8', channels=1)[:] = 1
        self.publish(self.writer.message)

    def meets(self, count):
        wait_until(lambda: self.publisher.get_subscription_count() == count, 'subscriptions')

    def close(self):
        self.node.destroy_publisher(self.publisher)


class Taken:
    """The numbers of the images that a subscription handed over, and what it missed."""

    def __init__(self, node, reliability, **options):
        self.numbers, self.missed = [], []
        self.subscription = transport.subscribe_serialized(
            node,
            Image,
            'images',
            QOS[reliability],
            lambda message: self.numbers.append(read_stamp(message)[0]),
            on_missed=self.missed.append,
            on_incompatible=lambda policy: None,
            **options,
        )


@pytest.mark.parametrize('where', [0, 1], ids=['by_reference', 'through_dds'])
@pytest.mark.parametrize(
    ('before', 'after'), [('best_effort', 'reliable'), ('reliable', 'best_effort')]
)
def test_no_image_is_lost_or_comes_twice_while_the_qos_changes(nodes, where, before, after):
    camera = Camera(nodes[where])
    taken = Taken(nodes[0], before)
    try:
        camera.meets(1)
        ending, threads = threading.Event(), set(threading.enumerate())

        def send():
            while not ending.wait(0.002):
                camera.send()

        sending = threading.Thread(target=send)
        sending.start()
        try:
            for change in (after, before, after):
                seen = len(taken.numbers)
                wait_until(lambda seen=seen: len(taken.numbers) > seen + 5, 'images')
                taken.subscription.change_qos(QOS[change])
                wait_until(taken.subscription.is_settled, 'the change')
        finally:
            ending.set()
            sending.join()
        wait_until(lambda: taken.numbers[-1:] == [camera.sent], 'the last image')
        first = taken.numbers[0]
        assert taken.numbers == list(range(first, camera.sent + 1))
        assert sum(taken.missed) == 0
        camera.meets(1)
        assert set(threading.enumerate()) == threads
    finally:
        taken.subscription.close()
        camera.close()
    assert intra.count_buffers() == 0


def test_late_publisher_is_received_by_reference_after_qos_change(nodes):
    taken = Taken(nodes[0], 'reliable')
    weak = Camera(nodes[0], 'best_effort')
    try:
        weak.send()
        taken.subscription.change_qos(QOS['best_effort'])
        wait_until(lambda: weak.send() or taken.numbers, 'an image')
        wait_until(taken.subscription.is_settled, 'the change')
        assert taken.numbers == sorted(set(taken.numbers))
    finally:
        taken.subscription.close()
        weak.close()


def test_many_qos_changes_leak_nothing(nodes):
    camera = Camera(nodes[1])
    taken = Taken(nodes[0], 'best_effort')

    def mappings():
        gc.collect()
        return len(Path('/proc/self/maps').read_text().splitlines())

    counts = []
    try:
        camera.meets(1)
        for number in range(12):
            taken.subscription.change_qos(QOS['best_effort' if number % 2 else 'reliable'])
            wait_until(lambda: camera.send() or taken.subscription.is_settled(), 'the change')
            camera.meets(1)
            counts.append(mappings())
            assert len(list(nodes[0].subscriptions)) == 1
    finally:
        taken.subscription.close()
        camera.close()
    assert max(counts[6:]) <= max(counts[:6]) + 2
    assert not list(nodes[0].subscriptions)


def test_lost_images_are_counted_by_sequence_numbers(nodes):
    camera, numbers, missed = Camera(nodes[1]), [], []
    has_begun, may_end = threading.Event(), threading.Event()

    def receive(message):
        numbers.append(read_stamp(message)[0])
        has_begun.set()
        may_end.wait(DEADLINE_SECONDS)

    subscription = transport.subscribe_serialized(
        nodes[0], Image, 'images', QoSProfile(depth=2), receive, on_missed=missed.append
    )
    try:
        camera.meets(1)
        assert missed == [0]
        camera.send()
        assert has_begun.wait(DEADLINE_SECONDS)
        for _ in range(9):  # The queue keeps two of them.
            camera.send()
        assert camera.publisher.wait_for_all_acked(Duration(seconds=DEADLINE_SECONDS))
        may_end.set()
        wait_until(lambda: len(numbers) == 3, 'the rest')
        assert (numbers, missed) == ([1, 9, 10], [0, 7])
    finally:
        may_end.set()
        subscription.close()
        camera.close()


class Numbered:
    """An Rcl whose message infos are numbers: (publisher, number)."""

    orders_messages = True

    def __init__(self, *, counts_messages):
        self.counts_messages = counts_messages

    gid_in = staticmethod(lambda info: info[0])
    number_in = staticmethod(lambda info: info[1])


@pytest.mark.parametrize('counts_messages', [True, False])
def test_gaps_are_counted_per_publisher_and_only_where_messages_are_numbered(counts_messages):
    missed = []
    subscription = object.__new__(RclSubscription)
    subscription._rcl = Numbered(counts_messages=counts_messages)
    subscription._subscriptions, subscription._last, subscription._new_publishers = (
        ('old', 'new'),
        {},
        set(),
    )
    subscription._on_missed = missed.append
    subscription._receive_buffers, subscription._handover_ends = SimpleNamespace(), float('inf')

    def arrives(publisher, number, is_new=False):
        subscription._receive_buffers.info = (publisher, number)
        return subscription._is_new_message(is_new)

    assert [arrives('a', 7), arrives('b', 1), arrives('a', 8), arrives('a', 11)] == [True] * 4
    assert [arrives('a', 11, True), arrives('a', 10, True), arrives('b', 4, True)] == [
        False,
        False,
        True,
    ]
    assert missed == ([2, 2] if counts_messages else [])
    assert subscription._is_handed_over()
    arrives('c', 1)
    assert not subscription._is_handed_over()
    for number in range(200):
        arrives(f'publisher {number}', 1)
    assert len(subscription._last) == 64


def info_with(gid, source_timestamp, number):
    return (
        source_timestamp.to_bytes(8, 'little')
        + bytes(8)
        + number.to_bytes(8, 'little')
        + bytes(16)
        + gid
        + bytes(400)
    )


@pytest.mark.parametrize(
    ('stamps', 'numbers', 'orders', 'counts'),
    [
        ([5, 6, 9], [1, 2, 3], True, True),
        ([5, 6, 9], [2**64 - 1] * 3, True, False),
        ([5, 5, 5], [0, 0, 0], False, False),
        ([0, 0, 0], [8, 9, 10], True, True),
    ],
)
def test_detects_message_info_of_the_middleware(stamps, numbers, orders, counts):
    rcl, gid = object.__new__(Rcl), bytes(range(1, 17))
    infos = [info_with(gid, *each) for each in zip(stamps, numbers)]
    rcl.detect_info_layout(gid, infos)
    assert rcl.knows_gids
    assert (rcl.orders_messages, rcl.counts_messages) == (orders, counts)
    if orders:
        assert [rcl.number_in(info) for info in infos] == (numbers if counts else stamps)


# The nodes.


def test_fraction_of_lost_images_is_reported():
    whole = FrameCounts()
    counts, loss = CameraCounts(whole), RecentLoss()
    assert loss.add(counts) == ''
    for _ in range(18):
        counts.receive()
    counts.miss(2)
    assert loss.add(counts) == ''  # So few may be chance.
    counts.miss(1)
    assert loss.add(counts) == '3 of 21 frames of the last 2 s were'
    assert whole.lost == counts.lost == 3
    for _ in range(100):
        counts.receive()
    assert loss.add(counts) == ''


def as_peer_publishes(peer, reliability, topic, kind=Image):
    return peer.publisher(kind, topic, QOS[reliability])


def asked_for(peer, topic):
    return [
        each.qos_profile.reliability.name.lower()
        for each in peer.node.get_subscriptions_info_by_topic(topic)
    ]


def start(fake_detector, name, *args, **parameters):
    node = fake_detector(
        name,
        '-r',
        f'image:=/{name}',
        *args,
        autostart=True,
        **{'qos_reliability': 'auto', **parameters},
    )
    node.wait_for_log('Started: active.')
    return node


@pytest.mark.parametrize(
    ('transport', 'image_transport'), [('rcl', 'raw'), ('rclpy', 'raw'), ('rcl', 'compressed')]
)
def test_reliability_follows_changing_publishers(
    fake_detector, peer, picture, as_image, monkeypatch, transport, image_transport
):
    monkeypatch.setenv('TRT_ROS_TRANSPORT', transport)
    name, kind = f'follows_{transport}_{image_transport}', Image
    topic = f'/{name}'
    if image_transport == 'compressed':
        topic, kind = f'{topic}/compressed', CompressedImage
    node = start(fake_detector, name, image_transport=image_transport)
    assert f'{topic}: requesting best_effort (no publisher yet' in node.log
    found = peer.inbox(Detection2DArray, f'/{name}/detections')
    image = as_image(picture(), 'rgb8')
    if kind is CompressedImage:
        cv2 = pytest.importorskip('cv2')
        image = CompressedImage(
            header=image.header, format='png', data=cv2.imencode('.png', picture())[1].tobytes()
        )

    def settles_on(reliability, publishers):
        def publish():
            for each in publishers:
                each.publish(image)
            return asked_for(peer, topic) == [reliability]

        peer.wait_until(publish, reliability)
        for each in publishers:
            image.header.stamp.sec += 1
            stamp = image.header.stamp.sec
            peer.wait_until(
                lambda each=each, stamp=stamp: (
                    each.publish(image)
                    or any(one.header.stamp.sec == stamp for one in found.messages)
                ),
                'detections',
            )

    strong = as_peer_publishes(peer, 'reliable', topic, kind)
    settles_on('reliable', [strong])
    node.wait_for_log(f'{topic}: changed reliability to reliable (1 publisher, reliable).')
    weak = as_peer_publishes(peer, 'best_effort', topic, kind)
    settles_on('best_effort', [strong, weak])
    node.wait_for_log(
        f'{topic}: changed reliability to best_effort (2 publishers, 1 not reliable).'
    )
    peer.between_callbacks(lambda: peer.node.destroy_publisher(weak))
    settles_on('reliable', [strong])
    peer.between_callbacks(lambda: peer.node.destroy_publisher(strong))
    peer.wait_until(lambda: not peer.node.get_publishers_info_by_topic(topic), 'the end')
    strong = as_peer_publishes(peer, 'reliable', topic, kind)
    settles_on('reliable', [strong])
    assert node.log.count('changed reliability to') == 3
    assert 'receives no images' not in node.log
    peer.between_callbacks(lambda: peer.node.destroy_publisher(strong))
    assert node.change('deactivate') and node.change('activate')


def test_reliability_follows_each_camera(fake_detector, peer):
    node = fake_detector(
        'both', image_topics=['left', 'right'], autostart=True, qos_reliability='auto'
    )
    node.wait_for_log('Started: active.')
    publishers = [
        as_peer_publishes(peer, 'reliable', '/left'),
        as_peer_publishes(peer, 'best_effort', '/right'),
    ]
    peer.wait_until(
        lambda: (
            (asked_for(peer, '/left'), asked_for(peer, '/right'))
            == (['reliable'], ['best_effort'])
        ),
        'both',
    )
    for each in publishers:
        peer.between_callbacks(lambda each=each: peer.node.destroy_publisher(each))


def test_lost_images_are_reported_with_remedy(fake_detector, peer, picture, as_image):
    """The queue of the publisher holds one image: of those sent at once most are overwritten."""
    node = start(fake_detector, 'starved', qos_reliability='best_effort', qos_depth=1)
    publisher = as_peer_publishes(peer, 'reliable', '/starved')
    peer.wait_until(publisher.get_subscription_count, 'the detector to subscribe')
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')
    image = as_image(picture(), 'rgb8')

    def warned():
        for _ in range(200):
            publisher.publish(image)
        return next(
            (
                array.status[0]
                for array in list(diagnostics.messages)
                if array.status[0].name == 'starved: image'
                and 'lost before arrival' in array.status[0].message
            ),
            None,
        )

    status = peer.wait_until(warned, 'the warning')
    assert status.level == DiagnosticStatus.WARN
    assert status.message.endswith(
        ' s were lost before arrival on /starved: the publishers are reliable, but this node '
        'requests best_effort: set qos_reliability to auto'
    )
    values = {each.key: each.value for each in status.values}
    assert int(values['frames lost before arrival']) >= 3
    peer.close_inbox(diagnostics)
    peer.between_callbacks(lambda: peer.node.destroy_publisher(publisher))
    assert node.state == 'active'


class LocalDetector:
    """A detector in this process, with a participant of its own: it discovers all anew."""

    def __init__(self, domain_id):
        self.context = rclpy.Context()
        rclpy.init(
            context=self.context,
            domain_id=domain_id,
            args=[
                '--ros-args',
                '-r',
                '__node:=starting',
                '-r',
                'image:=/shared/image',
                '-p',
                'autostart:=true',
                '-p',
                'qos_depth:=50',
            ],
        )
        self.node = DetectorNode(
            open_pipeline=open_pipeline,
            context=self.context,
        )
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.is_ending = False
        self.thread = threading.Thread(target=self._spin)
        self.thread.start()

    def _spin(self):
        while not self.is_ending:
            self.executor.spin_once()

    @property
    def counts(self):
        return self.node._counts

    def asks_for(self):
        return [
            each.qos_profile.reliability.name.lower()
            for each in self.node.get_subscriptions_info_by_topic('image')
        ]

    def close(self):
        self.is_ending = True
        self.executor.create_task(lambda: None)
        self.thread.join()
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


def test_every_start_becomes_reliable_and_receives_every_image(start_node, domain_id, tmp_path):
    cv2 = pytest.importorskip('cv2')
    cv2.imwrite(str(tmp_path / 'picture.png'), np.zeros((480, 640, 3), np.uint8))
    source = start_node(
        'source',
        'trt_ros.nodes.image_source',
        '-r',
        'image:=/shared/image',
        source=str(tmp_path),
        rate_hz=20.0,
        qos_depth=50,
    )
    source.wait_for_log('Started: active.')
    for number in range(20 if IS_EXHAUSTIVE else 4):
        is_early = number % 4 == 3  # The detector is there first.
        if is_early:
            source.back_to_unconfigured()
        detector = LocalDetector(domain_id)
        try:
            if is_early:
                wait_until(lambda d=detector: d.asks_for() == ['best_effort'], 'the detector')
                assert source.change('configure') and source.change('activate')
            wait_until(lambda d=detector: d.asks_for() == ['reliable'], 'reliable')
            lost, received = detector.counts.lost or 0, detector.counts.received
            wait_until(lambda d=detector, n=received: d.counts.received >= n + 4, 'images')
            assert detector.counts.lost == lost
        finally:
            detector.close()
