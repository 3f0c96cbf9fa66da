"""Images of several cameras that run in one batch, in this process."""

from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('sensor_msgs')

from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image

from trt_ros.errors import BadFrameError
from trt_ros.ros.codecs.images import image_codec
from trt_ros.ros.diagnostics import FrameCounts
from trt_ros.ros.inputs import ImageTopicsParameters
from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.stream import Topic, TopicStream

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


def test_a_batch_with_a_bad_image_is_run_again_one_by_one(context, spin):
    parameters = [
        Parameter('autostart', value=True),
        Parameter('image_topics', value=['a', 'b', 'c']),
        Parameter('batch_wait_ms', value=1000.0),
        Parameter('qos_reliability', value='reliable'),
    ]
    node = Cameras('cameras', context=context, parameter_overrides=parameters)
    camera = Node('camera', context=context)
    spin(lambda: node.state_label == 'active', node, camera)
    runs, published = [], []

    def infer(sets):
        values = [int(np.asarray(frame.data).reshape(-1)[0]) for [frame] in sets]
        runs.append(sorted(values))
        if 13 in values:
            raise BadFrameError('unlucky', 'An image of 13s.')
        return values

    def publish(number, result, header, values):
        published.append(('abc'[number], result))

    topics = [Topic(node, name, image_codec(node, name), FrameCounts()) for name in 'abc']
    with closing(
        TopicStream(node, FrameCounts(), topics, infer, publish, in_sets=False, max_batch=3)
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
