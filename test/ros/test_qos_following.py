"""Nodes with `qos_reliability: auto`, whose subscriptions follow their publishers."""

import threading

import cv2
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
import numpy as np
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from sensor_msgs.msg import CompressedImage, Image
from vision_msgs.msg import Detection2DArray

from support.dds import QOS
from support.extent import IS_EXHAUSTIVE
from support.nodes.fake_detector import open_pipeline
from support.ros_messages import as_image, picture
from support.ros_nodes import own_topics
from support.waiting import wait_until
from trt_ros.nodes.detector import DetectorNode
from trt_ros.ros.dds.transport import subscribe_serialized, usable_rcl


def asked_for(node, topic):
    found = node.get_subscriptions_info_by_topic(topic)
    return [each.qos_profile.reliability.name.lower() for each in found]


def start(fake_detector, name, *args, **parameters):
    given = {'qos_reliability': 'auto', **parameters}
    node = fake_detector(name, '-r', f'image:=/{name}', *args, autostart=True, **given)
    node.wait_for_log('Started: active.')
    return node


@pytest.mark.parametrize(
    ('transport', 'image_transport'),
    [
        ('rcl', 'raw'),
        pytest.param('rclpy', 'raw', marks=pytest.mark.nightly),
        pytest.param('rcl', 'compressed', marks=pytest.mark.nightly),
    ],
)
def test_reliability_follows_changing_publishers(
    fake_detector, peer, monkeypatch, transport, image_transport
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
        image = CompressedImage(
            header=image.header, format='png', data=cv2.imencode('.png', picture())[1].tobytes()
        )

    def settles_on(reliability, publishers):
        def publish():
            for each in publishers:
                each.publish(image)
            return asked_for(peer.node, topic) == [reliability]

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

    strong = peer.publisher(kind, topic, QOS['reliable'])
    settles_on('reliable', [strong])
    node.wait_for_log(f'{topic}: changed reliability to reliable (1 publisher, reliable).')
    weak = peer.publisher(kind, topic, QOS['best_effort'])
    settles_on('best_effort', [strong, weak])
    node.wait_for_log(
        f'{topic}: changed reliability to best_effort (2 publishers, 1 not reliable).'
    )
    peer.run_on_executor(lambda: peer.node.destroy_publisher(weak))
    settles_on('reliable', [strong])
    peer.run_on_executor(lambda: peer.node.destroy_publisher(strong))
    peer.wait_until(lambda: not peer.node.get_publishers_info_by_topic(topic), 'the end')
    strong = peer.publisher(kind, topic, QOS['reliable'])
    settles_on('reliable', [strong])
    assert node.log.count('changed reliability to') == 3
    assert 'receives no images' not in node.log
    peer.run_on_executor(lambda: peer.node.destroy_publisher(strong))
    assert node.change('deactivate') and node.change('activate')


def test_reliability_follows_each_camera(fake_detector, peer):
    node = fake_detector(
        'both', image_topics=['left', 'right'], autostart=True, qos_reliability='auto'
    )
    node.wait_for_log('Started: active.')
    publishers = [
        peer.publisher(Image, '/left', QOS['reliable']),
        peer.publisher(Image, '/right', QOS['best_effort']),
    ]
    peer.wait_until(lambda: asked_for(peer.node, '/left') == ['reliable'], 'the left one')
    peer.wait_until(lambda: asked_for(peer.node, '/right') == ['best_effort'], 'the right one')
    for each in publishers:
        peer.run_on_executor(lambda each=each: peer.node.destroy_publisher(each))


def test_lost_images_are_reported_with_remedy(fake_detector, peer):
    """The queue of the publisher holds one image: of those sent at once most are overwritten."""
    if not usable_rcl(peer.node).counts_messages:
        pytest.skip('this middleware does not number messages')
    node = start(fake_detector, 'starved', qos_reliability='best_effort', qos_depth=1)
    publisher = peer.publisher(Image, '/starved', QOS['reliable'])
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
    peer.run_on_executor(lambda: peer.node.destroy_publisher(publisher))
    assert node.state == 'active'


class LocalDetector:
    """A detector in this process, with a participant of its own: it discovers all anew."""

    def __init__(self, domain_id):
        self.context = rclpy.Context()
        rclpy.init(
            context=self.context,
            domain_id=domain_id,
            args=[
                *('--ros-args', '-r', '__node:=starting', *own_topics('shared', 'image')),
                *('-p', 'autostart:=true', '-p', 'qos_depth:=50'),
            ],
        )
        self.node = DetectorNode(open_pipeline=open_pipeline, context=self.context)
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
        return asked_for(self.node, 'image')

    def close(self):
        self.is_ending = True
        self.executor.create_task(lambda: None)
        self.thread.join()
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


def test_a_change_that_fails_is_tried_again(domain_id, peer, monkeypatch):
    detector, failed = LocalDetector(domain_id), []

    def fail_once(*args):
        if not failed:
            failed.append(args)
            raise RuntimeError('no memory for a subscription')
        return subscribe_serialized(*args)

    try:
        wait_until(lambda: detector.asks_for() == ['best_effort'], 'the detector')
        monkeypatch.setattr('trt_ros.ros.following.subscribe_serialized', fail_once)
        topic = detector.node.resolve_topic_name('image')
        publisher = peer.publisher(Image, topic, QOS['reliable'])
        wait_until(lambda: detector.asks_for() == ['reliable'], 'reliable')
        assert failed
        peer.run_on_executor(lambda: peer.node.destroy_publisher(publisher))
    finally:
        detector.close()


@pytest.mark.nightly
def test_every_start_becomes_reliable_and_receives_every_image(start_node, domain_id, tmp_path):
    cv2.imwrite(str(tmp_path / 'picture.png'), np.zeros((480, 640, 3), np.uint8))
    source = start_node(
        'source',
        'trt_ros.nodes.image_source',
        *own_topics('shared', 'image'),
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
