"""One detector, one network, three cameras."""

from contextlib import contextmanager
from copy import deepcopy

from demo.scene import held_out
from diagnostic_msgs.msg import DiagnosticArray
import numpy as np
import pytest
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray, LabelInfo

from support.ros_messages import (
    LATCHED,
    as_image,
    classes_of,
    next_diagnostics,
    picture,
    values_of,
)
from support.ros_nodes import Lane
from support.tiled import with_batch

FRONT, LEFT, REAR = TOPICS = ('/front/image_raw', 'left/image', 'rear')


def names_of(node_name):
    """Name the topics that those of `image_topics` are: each node has cameras of its own."""
    return {topic: f'/{node_name}_{topic.strip("/")}' for topic in TOPICS}


def start_rig(start, name, folder, network='runs', **parameters):
    """Start a detector of three cameras, whose runs are files in a folder."""
    pairs = names_of(name).items()
    remaps = [part for pair in pairs for part in ('-r', ':='.join(pair))]
    given = {'image_topics': list(TOPICS), 'frames_in_flight': 1, **parameters}  # Runs are held.
    node = start(name, *remaps, model_path=f'{network}:{folder}', autostart=True, **given)
    return Rig(node, folder)


class Rig:
    """Three cameras, what is found in their images, and the network's runs, which can be held."""

    def __init__(self, node, folder):
        self.node, self.folder, peer = node, folder, node.peer
        (folder / 'go').touch()
        node.wait_for_log('Started: active.')
        self.images = {
            topic: as_image(pixels, encoding)
            for topic, pixels, encoding in (
                (FRONT, picture((128, 128), (32, 16, 96, 64)), 'rgb8'),
                (LEFT, picture((256, 128), (64, 32, 128, 64), (0, 0, 255))[..., ::-1], 'bgr8'),
                (REAR, picture((64, 128), (16, 16, 32, 64)).max(axis=2), 'mono8'),
            )
        }
        for topic, image in self.images.items():
            image.header.frame_id = f'camera of {topic}'
        self.publishers = {
            topic: peer.publisher(Image, name) for topic, name in names_of(node.name).items()
        }
        self.found = {topic: peer.inbox(Detection2DArray, self.output(topic)) for topic in TOPICS}
        self.statuses = peer.inbox(DiagnosticArray, '/diagnostics')
        self.last_stamp = 0
        for topic in TOPICS:
            # What is sent before both sides have matched may be lost.
            peer.wait_until(
                lambda topic=topic: (self.publish(topic), self.found[topic].messages)[1],
                f'detections of {topic}',
            )
            self.detect(topic)  # Nothing older is under way.

    def output(self, topic):
        return f'/{self.node.name}/{topic.strip("/")}/detections'

    def publish(self, topic, **changes):
        """Publish a camera's image under a stamp of its own, return the stamp."""
        image = deepcopy(self.images[topic])
        self.last_stamp += 1
        image.header.stamp.sec = self.last_stamp
        for field, value in changes.items():
            setattr(image, field, value)
        self.publishers[topic].publish(image)
        return self.last_stamp

    def result(self, topic, stamp):
        return self.found[topic].wait_for(
            lambda found: found.header.stamp.sec == stamp, f'detections of {topic}, {stamp}'
        )

    def detect(self, topic):
        return self.result(topic, self.publish(topic))

    def stamps(self, topic):
        return [found.header.stamp.sec for found in self.found[topic].messages]

    def diagnostics(self):
        """Return the next diagnostics, as a dictionary, of a time after this call."""
        array = next_diagnostics(self.node.peer, self.statuses, f'{self.node.name}: image')
        return {'message': array.status[0].message, **values_of(array)}

    def wait_for_received(self, count):
        self.node.peer.wait_until(
            lambda: int(self.diagnostics()['frames received']) == count, f'{count} received'
        )

    def runs(self):
        """How many images each run had so far."""
        numbers = sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())
        return [int((self.folder / str(number)).read_text()) for number in numbers]

    @contextmanager
    def during_a_run(self, *sizes):
        """
        Hold a run of the front camera's image while others are published.

        :yields: a dictionary for the stamps by topic that must have results, from runs of `sizes`.
        """
        received, runs = int(self.diagnostics()['frames received']), len(self.runs())
        before, stamps = self.last_stamp, {}
        (self.folder / 'go').unlink()
        held = self.publish(FRONT)
        self.node.peer.wait_until(lambda: len(self.runs()) > runs, 'a run')
        yield stamps
        self.wait_for_received(received + self.last_stamp - before)
        (self.folder / 'go').touch()
        for topic, stamp in stamps.items():
            self.result(topic, stamp)
        assert held in self.stamps(FRONT)
        assert self.runs()[runs:] == list(sizes)


@pytest.fixture(scope='module')
def rig(fake_detector, tmp_path_factory):
    return start_rig(fake_detector, 'cameras', tmp_path_factory.mktemp('runs'))


@pytest.fixture(scope='module')
def one_by_one(fake_detector, tmp_path_factory):
    folder = tmp_path_factory.mktemp('runs_of_one')
    return start_rig(fake_detector, 'one_by_one', folder, 'fixed')


def test_each_camera_gets_its_own_results_under_its_own_header_on_its_own_topic(rig):
    boxes = {
        FRONT: ('red', [32, 16, 96, 64]),
        LEFT: ('blue', [64, 32, 128, 64]),
        REAR: ('white', [16, 16, 32, 64]),
    }
    for topic in (LEFT, FRONT, REAR) * 2:
        found = rig.detect(topic)
        assert found.header.frame_id == f'camera of {topic}'
        assert Lane.boxes(found)[0] == (boxes[topic][0], 0.9, boxes[topic][1])
    for topic in TOPICS:
        assert {found.header.frame_id for found in rig.found[topic].messages} == {
            f'camera of {topic}'
        }


def test_network_is_logged_once(rig):
    peer = rig.node.peer
    info = peer.inbox(LabelInfo, '/cameras/label_info', LATCHED).wait_for()
    assert classes_of(info) == [(0, 'red'), (1, 'green'), (2, 'blue'), (3, 'white')]
    topics = peer.node.get_publisher_names_and_types_by_node('cameras', '/')
    assert {name for name, _ in topics if name.startswith('/cameras/')} == {
        *map(rig.output, TOPICS),
        '/cameras/label_info',
        '/cameras/transition_event',
    }


def test_waiting_images_run_in_one_batch(rig):
    assert 'batch size: up to 3 images per run' in rig.node.log
    with rig.during_a_run(1, 3) as newest:
        older = {topic: {rig.publish(topic) for _ in range(2)} for topic in TOPICS}
        newest.update({topic: rig.publish(topic) for topic in TOPICS})
    for topic in TOPICS:
        assert not older[topic] & set(rig.stamps(topic))


def test_network_of_batch_one_runs_cameras_singly(one_by_one):
    assert 'batch size 1: the network accepts one image per run' in one_by_one.node.log
    with one_by_one.during_a_run(1, 1, 1, 1) as stamps:
        # The front camera is the fastest, and has had its turn.
        for topic, count in ((FRONT, 5), (REAR, 1), (LEFT, 2)):
            stamps[topic] = [one_by_one.publish(topic) for _ in range(count)][-1]


def test_bad_image_does_not_affect_its_batch(rig):
    with rig.during_a_run(1, 2) as good:
        bad = rig.publish(LEFT, data=b'\0' * 100)
        good.update({topic: rig.publish(topic) for topic in (FRONT, REAR)})
    diagnostics = rig.diagnostics()
    assert diagnostics[f'{LEFT}: dropped: short data'] == diagnostics['dropped: short data'] == '1'
    assert not any(f'{topic}: dropped: short data' in diagnostics for topic in (FRONT, REAR))
    assert 'A frame of /cameras_left/image was dropped (short data).' in rig.node.log
    assert len(rig.detect(LEFT).detections) == 2
    assert bad not in rig.stamps(LEFT)


def test_lazy_node_runs_only_cameras_with_subscribers(rig):
    peer = rig.node.peer
    assert rig.node.set(lazy=True) == ''
    peer.close_inbox(rig.found[LEFT])
    dropped = f'{LEFT}: dropped: no subscribers'
    # The node learns in its time that the subscriber has gone.
    peer.wait_until(lambda: (rig.publish(LEFT), dropped in rig.diagnostics())[1], dropped)
    rig.detect(FRONT)
    assert f'{FRONT}: dropped: no subscribers' not in rig.diagnostics()
    assert rig.node.set(lazy=False) == ''


def test_a_camera_without_images_is_named(one_by_one):
    rig, peer = one_by_one, one_by_one.node.peer

    def message_while(*topics):
        for topic in topics:
            rig.detect(topic)
        return rig.diagnostics()['message']

    ending = 'on /one_by_one_rear: 1 publisher, no messages'
    peer.wait_until(lambda: ending in message_while(FRONT, LEFT), ending)
    peer.wait_until(lambda: message_while(FRONT, LEFT, REAR) == 'active', 'all cameras')


def test_batch_smaller_than_number_of_cameras(fake_detector, tmp_path):
    rig = start_rig(fake_detector, 'two_of_three', tmp_path, max_batch_size=2)
    with rig.during_a_run(1, 2, 1) as stamps:
        stamps.update({topic: rig.publish(topic) for topic in TOPICS})


def test_two_cameras_run_in_a_real_batch(start_active, peer, tmp_path, backend):
    path = with_batch(tmp_path / 'shapes.onnx', 'batch')
    cameras = {'image_topics': ['a', 'b'], 'batch_wait_ms': 20.0}
    node = start_active('real', 'detector', path, backend=backend, **cameras)
    assert 'batch size: up to 2 images per run' in node.log
    counts = set()
    for topic, (pixels, _, _) in zip('ab', held_out(2)):
        publisher = peer.publisher(Image, f'/{topic}')
        found = peer.inbox(Detection2DArray, f'/real/{topic}/detections')
        image = as_image(np.ascontiguousarray(pixels), 'bgr8')
        peer.wait_until(
            lambda publisher=publisher, image=image, found=found: (
                publisher.publish(image),
                found.messages,
            )[1],
            topic,
        )
        counts.add(len(found.messages[0].detections) > 0)
    assert counts == {True}
