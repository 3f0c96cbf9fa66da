"""Images of several cameras that run in one batch, in this process, and how they are read."""

from contextlib import closing
from dataclasses import dataclass
import math
import threading
import weakref

import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('sensor_msgs')

from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from support.task_networks import save_task_networks
from trt_ros.errors import BadFrameError
from trt_ros.nodes.overlay import OverlayNode
from trt_ros.nodes.pose import PoseNode
from trt_ros.ros.codecs.images import RawImageCodec, image_codec
from trt_ros.ros.dds.cdr import read_image
from trt_ros.ros.diagnostics import FrameCounts
from trt_ros.ros.frames import to_frame
from trt_ros.ros.inputs import ImageTopicsParameters
from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.messages import ImageSender
from trt_ros.ros.stream import TopicStream
from trt_ros.ros.topic import Topic
from trt_ros.runtime.future import Finished, Future
from trt_ros.runtime.pipeline import Pipeline

pytestmark = pytest.mark.ros


@dataclass(frozen=True)
class CamerasParameters(ImageTopicsParameters, NodeParameters):
    """Parameters of a node of cameras."""


class Cameras(ManagedNode):
    """A node of two cameras."""

    Parameters = CamerasParameters


def gray(value):
    return Image(
        height=4, width=4, step=4, encoding='mono8', data=np.full(16, value, np.uint8).tobytes()
    )


def overrides(**values):
    values = {'autostart': True, 'qos_reliability': 'reliable', **values}
    return [Parameter(name, value=value) for name, value in values.items()]


@pytest.fixture
def start_cameras(context, spin):
    """Return a function that starts a node of cameras; return it and one that publishes."""

    def start(**values):
        node = Cameras('cameras', context=context, parameter_overrides=overrides(**values))
        camera = Node('camera', context=context)
        spin(lambda: node.state_label == 'active', node, camera)
        return node, camera

    return start


def test_a_batch_with_a_bad_image_is_run_again_one_by_one(start_cameras, spin):
    node, camera = start_cameras(image_topics=['a', 'b', 'c'], batch_wait_ms=1000.0)
    runs, published = [], []

    def start(sets):
        values = [int(np.asarray(frame.data).reshape(-1)[0]) for [frame] in sets]
        runs.append(sorted(values))
        if 13 in values:
            raise BadFrameError('unlucky', 'An image of 13s.')
        return Finished(values)

    def publish(number, result, header, values):
        published.append(('abc'[number], result))

    topics = [Topic(node, name, image_codec(node, name), FrameCounts()) for name in 'abc']
    with closing(
        TopicStream(node, FrameCounts(), topics, start, publish, in_sets=False, max_batch=3)
    ):
        publishers = [camera.create_publisher(Image, f'/{name}', 5) for name in 'abc']
        spin(lambda: all(each.get_subscription_count() for each in publishers))
        for publisher, value in zip(publishers, (7, 13, 8)):
            publisher.publish(gray(value))
        spin(lambda: len(published) == 2)
    assert runs[0] == [7, 8, 13]
    assert sorted(runs[1:]) == [[7], [8], [13]]
    assert sorted(published) == [('a', 7), ('c', 8)]
    assert [dict(each.counts.dropped) for each in topics] == [{}, {'unlucky': 1}, {}]


@pytest.mark.parametrize(
    ('in_flight', 'is_asynchronous', 'pause', 'is_rehearsed'),
    [
        (1, True, 0.0, True),
        (1, True, math.inf, False),
        (1, False, 0.0, False),
        (2, True, 0.0, False),
    ],
)
def test_the_last_publication_is_rehearsed_while_a_run_is_in_progress(
    start_cameras, spin, monkeypatch, in_flight, is_asynchronous, pause, is_rehearsed
):
    monkeypatch.setattr('trt_ros.ros.stream.REHEARSAL_SECONDS', pause)
    node, camera = start_cameras()
    seen = []

    def start(sets):
        seen.append('start')
        return Future(lambda: seen.append('result') or [1])

    topic = Topic(node, 'a', image_codec(node, 'a'), FrameCounts())
    with closing(
        TopicStream(
            node,
            FrameCounts(),
            [topic],
            start,
            lambda *_: seen.append('publish'),
            in_sets=False,
            in_flight=in_flight,
            starts_at_once=is_asynchronous,
            rehearse=lambda number: seen.append(f'rehearse {"abc"[number]}'),
        )
    ):
        publisher = camera.create_publisher(Image, '/a', 5)
        spin(publisher.get_subscription_count)
        for count in (1, 2):
            publisher.publish(gray(7))
            spin(lambda count=count: topic.counts.published == count)
    assert seen == ['start', *['rehearse a'] * is_rehearsed, 'result', 'publish'] * 2


@pytest.mark.parametrize(
    ('changes', 'values', 'by_reference', 'ahead'),
    [
        ({}, {}, True, [1, 3, 4]),
        ({}, {}, False, [1, 3, 4]),
        ({'is_wanted': lambda number: False}, {}, True, []),
        ({'starts_at_once': False}, {}, True, []),
        ({}, {'max_rate_hz': 1000.0}, True, []),
    ],
    ids=['by reference', 'through DDS', 'unwanted', 'not at once', 'limited'],
)
def test_the_pipeline_hears_of_an_image_as_large_as_the_last(
    start_cameras, spin, changes, values, by_reference, ahead
):
    node, camera = start_cameras(**values)
    node.use_intra_process_comms = camera.use_intra_process_comms = by_reference
    counts, seen = FrameCounts(), []
    with closing(
        TopicStream(
            node,
            FrameCounts(),
            [Topic(node, 'a', image_codec(node, 'a'), counts)],
            lambda sets: seen.append('start') or Finished([1]),
            lambda *_: None,
            **{
                'in_sets': False,
                'starts_at_once': True,
                'run_ahead': lambda message, start: seen.append(set(message[start:].tolist())),
            }
            | changes,
        )
    ):
        sender = ImageSender(camera, camera.create_publisher(Image, '/a', 1))
        spin(sender.is_wanted)
        for number, side in enumerate((4, 4, 8, 8, 8)):
            sender.begin(Header(), (side, side), 'mono8')[:] = number
            sender.send()
            spin(lambda count=number: counts.published + sum(counts.dropped.values()) > count)
    assert [each for each in seen if each != 'start'] == [{number} for number in ahead]
    for number in ahead:
        assert seen[seen.index({number}) + 1] == 'start'


def test_image_that_waits_for_its_detections_is_taken_in_the_publishers_thread(context, spin):
    node = OverlayNode(context=context)
    camera = Node('camera_of_overlay', context=context)
    node.use_intra_process_comms = camera.use_intra_process_comms = True
    spin(lambda: node.state_label == 'active', node, camera)
    threads, codec = [], node._topics[0].codec
    stamp_of = codec.stamp_of
    codec.stamp_of = lambda message: (
        threads.append(threading.current_thread()) or stamp_of(message)
    )
    watcher = camera.create_subscription(Image, '/overlay/image', lambda _: None, 1)
    sender = ImageSender(camera, camera.create_publisher(Image, '/image', 1))

    def send():
        sender.begin(Header(), (4, 4), 'mono8')
        sender.send()
        return threads

    spin(send)
    assert threads[-1] is threading.current_thread()
    camera.destroy_subscription(watcher)


def serialized(seconds=0, **fields):
    image = gray(seconds)
    image.header.stamp.sec, image.header.frame_id = seconds, 'camera'
    for name, value in fields.items():
        setattr(image, name, value)
    return serialize_message(image)


def test_images_with_the_header_of_the_last_one_are_read_like_others():
    read = RawImageCodec(None, 'image').reader()
    messages = [serialized(each) for each in (1, 2, 3)]
    messages += [serialized(4) + b'\0', serialized(5) + b'\0', serialized(6)]
    messages += [serialized(7, encoding='8UC1'), serialized(8, encoding='8UC1')]
    messages += [serialized(9, width=2), serialized(10), serialized(11)]
    for message in messages:
        found, view = (
            read(np.frombuffer(message, np.uint8)),
            read_image(np.frombuffer(message, np.uint8)),
        )
        frame = found.value
        assert (found.stamp, found.frame_id) == (view.stamp, 'camera')
        assert (*frame.wh, frame.step) == (view.width, view.height, view.step)
        assert (frame.encoding, frame.data.tolist()) == (view.encoding, view.data.tolist())
    damaged = np.frombuffer(b'\1' + messages[-1][1:], np.uint8)
    with pytest.raises(BadFrameError, match='Unsupported message encoding'):
        read(damaged)


def test_a_rehearsal_converts_no_pixels(monkeypatch):
    def convert(image):
        converted.append(image.encoding)
        return to_frame(image._replace(encoding='mono8', data=image.data.copy()))

    monkeypatch.setattr('trt_ros.ros.frames._through_cv_bridge', convert)
    codec, converted = RawImageCodec(None, 'image'), []
    read = codec.reader()
    bad = np.frombuffer(serialized(1, step=3), np.uint8)
    for encoding, is_rehearsed in [('32SC1', 0), ('mono8', 1), ('8SC1', 0), ('mono8', 1)]:
        message, rehearsed = np.frombuffer(serialized(1, encoding=encoding), np.uint8), []
        read(message)
        with pytest.raises(BadFrameError, match='needs 4 bytes per row'):
            read(bad)
        codec.rehearse(lambda like, found=rehearsed: found.append(read(like)), message.copy())
        assert len(rehearsed) == is_rehearsed
    assert converted == ['32SC1', '8SC1']


def test_a_read_image_is_not_kept():
    read = RawImageCodec(None, 'image').reader()
    for seconds in (1, 2, 3):
        message = np.frombuffer(serialized(seconds), np.uint8).copy()
        is_kept = weakref.ref(message)
        content = read(message)
        assert content.stamp == (seconds, 0)
        del message, content
        assert is_kept() is None


def test_runs_with_the_same_thresholds_get_the_same_object(context, spin, tmp_path):
    given = []

    def open_pipeline(*args, **kwargs):
        pipeline = Pipeline.open(*args, families=PoseNode.families, **kwargs)
        start_batch = pipeline.start_batch

        def start(frames, thresholds):
            given.append(thresholds)
            return start_batch(frames, thresholds)

        pipeline.start_batch = start
        return pipeline

    model_path = save_task_networks(tmp_path)['pose']
    parameters = overrides(backend='onnxruntime', model_path=model_path)
    node = PoseNode(context=context, parameter_overrides=parameters, open_pipeline=open_pipeline)
    camera = Node('single_camera', context=context)
    publisher = camera.create_publisher(Image, 'image', 5)
    spin(lambda: node.state_label == 'active' and publisher.get_subscription_count(), node, camera)
    for count in (1, 2, 3):
        publisher.publish(gray(7))
        spin(lambda count=count: len(given) == count)
        if count == 2:
            node.set_parameters([Parameter('score_threshold', value=0.75)])
    assert given[0] is given[1]
    assert given[2].score == 0.75
