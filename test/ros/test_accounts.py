"""Nodes that are deactivated under load have published or dropped each message they received."""

from importlib.util import find_spec
import itertools
from pathlib import Path
import threading

from diagnostic_msgs.msg import DiagnosticArray
import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo
from vision_msgs.msg import Detection2DArray

from support.ros_messages import as_image, detection, stamped, tensor_list, values_of
from support.ros_nodes import own_topics

FAKE_DETECTOR = Path(__file__).parents[1] / 'support/nodes/fake_detector.py'
LATE = 8  # By how many messages the first topic is ahead of the others.


@pytest.fixture
def publish(peer):
    """Publish messages of several topics at 100 Hz until the end of the test."""
    ending, threads = threading.Event(), []

    def start(name, messages):
        publishers = {}
        for topic, message in messages.items():
            publishers[topic] = peer.publisher(type(message), f'/{name}/{topic}')
        for topic, publisher in publishers.items():
            peer.wait_until(publisher.get_subscription_count, f'the node to subscribe to {topic}')

        def run():
            for number in itertools.count(1):
                for index, (topic, publisher) in enumerate(publishers.items()):
                    stamp = 0.1 * (number - LATE * (index > 0))
                    if stamp > 0:
                        publisher.publish(stamped(messages[topic], stamp, 'camera'))
                if ending.wait(0.01):
                    return

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield start
    ending.set()
    for thread in threads:
        thread.join()


def all_messages():
    picture = as_image(np.full((64, 64, 3), 90, np.uint8), 'rgb8')
    depth = as_image(np.full((64, 64), 900, np.uint16), '16UC1')
    info = CameraInfo(width=64, height=64, k=[60.0, 0.0, 32.0, 0.0, 60.0, 32.0, 0.0, 0.0, 1.0])
    found = Detection2DArray(detections=[detection(32, 32, 20, 20)])
    messages = {
        'overlay': {'image': picture, 'detections': found},
        'detector': {'left': picture, 'right': picture},
        'detections_3d': {'depth_image': depth, 'detections': found, 'depth_info': info},
    }
    if find_spec('isaac_ros_tensor_list_interfaces'):
        vectors = tensor_list(0, 'camera', vectors=np.ones((1, 4), np.float32))
        messages['tracker'] = {'detections': found, 'tensors': vectors}
    return messages


@pytest.mark.parametrize(
    'kind, parameters',
    [
        ('overlay', {}),
        ('detector', {'image_topics': ['left', 'right'], 'frames_in_flight': 2}),
        ('detections_3d', {'queue_size': 50}),
        ('tracker', {'use_appearance': True}),
    ],
)
def test_a_node_deactivated_under_load_has_counted_each_message(
    start_node, peer, publish, kind, parameters
):
    messages = all_messages()
    if kind not in messages:
        pytest.skip('isaac_ros_tensor_list_interfaces is not installed')
    name = f'busy_{kind}'
    node = start_node(
        name,
        FAKE_DETECTOR if kind == 'detector' else f'trt_ros.nodes.{kind}',
        *own_topics(name, *messages[kind]),
        autostart=True,
        **parameters,
    )
    node.wait_for_log('Started: active.')
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')

    def own(array):
        return values_of(array) if array.status[0].name.startswith(f'{name}: ') else {}

    publish(name, messages[kind])
    diagnostics.wait_for(lambda array: int(own(array).get('frames published', 0)) > 50)
    assert node.change('deactivate')
    values = own(
        diagnostics.wait_for(
            lambda array: (
                own(array).get('state') == 'inactive' and int(own(array)['frames received']) > 50
            )
        )
    )
    topics = [key.removesuffix('frames received') for key in values if 'frames received' in key]
    assert len(topics) == 3
    first = f'{next(iter(messages[kind]))}: '
    for topic in topics:
        received, published, dropped = (
            int(values[f'{topic}frames {what}']) for what in ('received', 'published', 'dropped')
        )
        assert received == published + dropped, (topic, values)
    if kind != 'detector':
        causes = ('node stopped', 'no partner')
        assert any(int(values.get(f'{first}dropped: {cause}', 0)) for cause in causes), values
