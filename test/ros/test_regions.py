"""Cascades: nodes that run on the detections of an image."""

import itertools
from pathlib import Path

from builtin_interfaces.msg import Time
from demo.scene import draw_scene
import numpy as np
import pytest
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from support.backends import ON_CPU
from support.bundles import write_cascade
from support.ros_messages import as_image, detection, diagnostics
from support.ros_nodes import own_topics
from support.save_network import save_network
from trt_ros.demo import MODEL
from trt_ros.ros.regions import choose_objects
from trt_ros.runtime.pipeline import Pipeline

# The choice of the detections.


def chosen(*detections, max_regions=2, image_wh=(100, 50)):
    return choose_objects(Detection2DArray(detections=detections), image_wh, max_regions)


def test_the_best_boxes_that_reach_the_image_are_chosen_in_the_order_of_the_message():
    found = chosen()
    assert (found.boxes.shape, found.detections) == ((0, 5), [])
    assert (found.invalid, found.surplus) == (0, 0)
    box = detection(104, 25, 20, 4, theta=np.pi / 2)
    reaching = detection(104, 25, 4, 20, theta=np.pi / 2)
    found = chosen(box, reaching)
    assert (found.indices.tolist(), found.invalid) == ([1], 1)
    scores = (0.3, 0.9, None, 0.5, 0.9)
    found = chosen(*(detection(10, 20, 4, 6, theta=0.5, score=score) for score in scores))
    assert found.indices.tolist() == [1, 4]
    assert found.boxes.tolist() == [[10, 20, 4, 6, 0.5]] * 2
    assert (found.invalid, found.surplus) == (0, 3)
    assert chosen(*(detection(10, 20, 4, 6) for _ in range(3))).indices.tolist() == [0, 1]


@pytest.mark.parametrize(
    'box',
    [
        (10, 10, 0, 5),
        (10, 10, 5, -1),
        (float('nan'), 10, 5, 5),
        (10, 10, float('inf'), 5),
        (-50, 10, 5, 5),
        (10, 80, 5, 5),
        (-10, 25, 4, 100),  # Its circumcircle reaches the image.
        (110, 60, 40, 4, -np.pi / 4),  # The upright box around it does, too.
        (1e300, 1e300, 1e300, 5),
    ],
)
def test_detections_without_an_area_in_the_image_are_left_out(box):
    theta = dict(zip(['theta'], box[4:]))
    found = chosen(detection(*box[:4], **theta), detection(10, 10, 5, 5))
    assert (found.indices.tolist(), found.invalid, found.surplus) == ([1], 1, 0)


# Nodes.


@pytest.fixture(scope='module')
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp('models')
    images = {'images': ('n', 3, 8, 8)}
    color = 'pooled = GlobalAveragePool(images) out = Flatten(pooled)'
    # Bins of one keypoint: the highest is at column 6, row 4, of eight.
    x, y = np.zeros((1, 17, 8), np.float32), np.zeros((1, 17, 8), np.float32)
    x[0, :, 6], y[0, :, 4] = 0.75, 0.75
    points = (
        'mean = ReduceMean <axes = [1, 2, 3], keepdims = 0> (images) '
        'column = Unsqueeze(mean, axes) nothing = Mul(column, zero) simcc_x = Add(nothing, x) '
        'simcc_y = Add(nothing, y)'
    )
    return {
        'color': save_network(folder / 'color.onnx', color, images, {'out': ('n', 3)}),
        'pose': save_network(
            folder / 'pose.onnx',
            points,
            images,
            {'simcc_x': ('n', 17, 8), 'simcc_y': ('n', 17, 8)},
            constants={'axes': np.array([1, 2]), 'zero': np.float32(0), 'x': x, 'y': y},
        ),
    }


def save_constants(path, input_shape, values):
    """Save a network whose outputs are constants, with the input as their first axis."""
    nodes = 'mean = ReduceMean <axes = [1, 2, 3], keepdims = 0> (images) nothing = Mul(mean, zero)'
    constants = {'zero': np.float32(0)}
    for name, value in values.items():
        constants.update({f'{name}_value': value, f'{name}_axes': np.arange(1, value.ndim)})
        nodes += f' {name}_zero = Unsqueeze(nothing, {name}_axes)'
        nodes += f' {name} = Add({name}_zero, {name}_value)'
    outputs = {name: ('n', *value.shape[1:]) for name, value in values.items()}
    return save_network(path, nodes, {'images': input_shape}, outputs, constants=constants)


@pytest.fixture(scope='module')
def hand_models(tmp_path_factory):
    """A palm at (20, 20) that points to the right, and a hand left of the middle of the input."""
    folder = tmp_path_factory.mktemp('hands')
    # Offsets from the anchor at (20, 20): the box, wrist, fingers and thumb.
    palm = [0, 0, 6, 4, -3, 0, 3, -2, 3, 0, 3, 1, 3, 2, -2, -2, 0, -2]
    rows, logits = np.zeros((1, 56, 18), np.float32), np.full((1, 56, 1), -9, np.float32)
    rows[0, 20], logits[0, 20] = palm, 3
    landmarks = np.full((1, 21, 3), 8, np.float32)
    landmarks[0, 20] = 4, 6, 0
    scores = {'score': 0.875, 'handedness': 0.75}
    return (
        save_constants(folder / 'palm.onnx', (1, 3, 32, 32), {'boxes': rows, 'scores': logits}),
        save_constants(
            folder / 'hand.onnx',
            ('n', 3, 16, 16),
            {
                'landmarks': landmarks.reshape(1, 63),
                **{name: np.full((1, 1), value, np.float32) for name, value in scores.items()},
            },
        ),
    )


PIXELS = {'mean': [0.0, 0.0, 0.0], 'std': [1.0, 1.0, 1.0]}


class Cascade:
    """A node on regions, and the publishers of its images and detections."""

    def __init__(self, node, peer, name):
        self.node = node
        self._images = peer.connected(Image, f'/{name}_camera/image')
        self._detections = peer.connected(Detection2DArray, f'/{name}_camera/detections')

    def send_image(self, stamp):
        """Publish red, green and blue stripes of 20 columns and 40 rows."""
        pixels = np.repeat(np.eye(3, dtype=np.uint8)[None] * 255, 20, axis=1).repeat(40, axis=0)
        self._images.publish(as_image(pixels, 'rgb8', stamp=stamp))

    def send_detections(self, stamp, *detections):
        header = Header(stamp=Time(sec=stamp, nanosec=7), frame_id='front_camera')
        self._detections.publish(Detection2DArray(header=header, detections=detections))

    def send(self, stamp, *detections):
        self.send_image(stamp)
        self.send_detections(stamp, *detections)

    def result(self, box, stamp):
        found = box.wait_for(
            lambda message: message.header.stamp.sec == stamp, f'a result of image {stamp}'
        )
        assert (found.header.frame_id, found.header.stamp.nanosec) == ('front_camera', 7)
        return found


@pytest.fixture
def start(start_active, peer, backend):
    def start(kind, name, model, **parameters):
        remaps = own_topics(f'{name}_camera', 'image', 'detections')
        given = {'backend': backend, 'regions': True, **parameters}
        return Cascade(start_active(name, kind, model, *remaps, **given), peer, name)

    return start


def hypotheses(each):
    return [result.hypothesis.class_id for result in each.results]


def test_the_classifier_adds_the_classes_of_each_object(start, peer, models):
    cascade = start(
        'classifier',
        'kinds',
        models['color'],
        labels=['red', 'green', 'blue'],
        max_classes=2,
        max_regions=3,
        **PIXELS,
    )
    box = peer.inbox(Detection2DArray, '/kinds/detections')
    cascade.send(
        1,
        detection(50, 20, 10, 10, id='7', class_id='car'),
        detection(10, 20, 10, 10, id='left', score=0.8),
        detection(10, 20, 10, 10, score=0.1),
        detection(30, 20, 8, 4, theta=0.5, score=0.7),
        detection(10, 20, 0, 10, id='empty'),
    )
    found = cascade.result(box, 1)
    assert [each.id for each in found.detections] == ['7', 'left', '', '', 'empty']
    kinds = [hypotheses(each) for each in found.detections]
    assert [each[:2] for each in kinds] == [
        ['car', 'blue'],
        ['thing', 'red'],
        ['thing'],  # Over max_regions.
        ['thing', 'green'],
        ['thing'],  # Without an area.
    ]
    assert [len(each) for each in kinds] == [3, 3, 1, 3, 1]
    scores = [result.hypothesis.score for result in found.detections[0].results]
    assert scores == pytest.approx([0.9, 1.0, 0.0], abs=1e-3)
    assert found.detections[3].bbox.center.theta == 0.5
    assert 'exceed max_regions = 3' in cascade.node.log


@ON_CPU
def test_images_and_detections_meet_by_stamp_in_any_order_and_others_are_counted(
    start, peer, models
):
    cascade = start('classifier', 'meeting', models['color'], queue_size=3, **PIXELS)
    assert 'synchronization: equal stamps' in cascade.node.log
    box = peer.inbox(Detection2DArray, '/meeting/detections')
    green = detection(30, 20, 10, 10)
    cascade.send_detections(1, green)
    cascade.send_image(1)
    assert len(cascade.result(box, 1).detections) == 1
    for stamp in range(2, 7):  # Without detections.
        cascade.send_image(stamp)
    cascade.send_detections(20, green)  # Without an image.
    cascade.send_image(21)
    cascade.send_detections(21)
    assert cascade.result(box, 21).detections == []
    assert [each.header.stamp.sec for each in box.messages] == [1, 21]
    diagnostics(peer, 'meeting')(
        **{
            'image: dropped: no partner': '5',
            'detections: dropped: no partner': '1',
            'frames published': '2',
        }
    )


def test_keypoints_of_each_object_are_in_source_pixels(start, peer, models):
    cascade = start('pose', 'people', models['pose'], region_scale=1.0, **PIXELS)
    kinds = {'detections': Detection2DArray, 'keypoints': Detection2DArray, 'overlay': Image}
    boxes, points, overlays = peer.inboxes('people', **kinds)
    cascade.send(
        1,
        detection(20, 20, 16, 16, id='11'),
        detection(40, 20, 8, 16, id='12', theta=float(np.pi)),
    )
    found = cascade.result(points, 1)
    assert len(found.detections) == 2 * 17
    first, other = found.detections[0], found.detections[17]
    assert (first.id, other.id) == ('11', '12')
    assert hypotheses(first) == ['nose']
    assert hypotheses(found.detections[16]) == ['right_ankle']
    # Two source pixels per input pixel; bins 6 and 4 are the centers 6.5 and 4.5 of the input.
    position = first.bbox.center.position
    assert (position.x, position.y) == pytest.approx((20 + 2 * 2.5, 20 + 2 * 0.5), abs=1e-3)
    position = other.bbox.center.position
    assert (position.x, position.y) == pytest.approx((40 - 2 * 2.5, 20 - 2 * 0.5), abs=1e-3)
    assert [each.id for each in cascade.result(boxes, 1).detections] == ['11', '12']
    assert cascade.result(overlays, 1).width == 60
    cascade.send(2, detection(20, 20, 16, 16, id='a'), detection(20, 20, 16, 16, id='b'))
    assert {each.id for each in cascade.result(points, 2).detections} == {'a', 'b'}
    cascade.send(3, detection(20, 20, 16, 16), detection(20, 20, 16, 16))
    assert {each.id for each in cascade.result(points, 3).detections} == {'0', '1'}
    cascade.send(4)
    assert cascade.result(points, 4).detections == []
    assert cascade.result(boxes, 4).detections == []
    cascade.send(5, detection(20, 20, 16, 16, id='a'), detection(20, 20, 16, 16))
    assert {each.id for each in cascade.result(points, 5).detections} == {'a', '1'}


def test_hands_are_run_on_the_regions_of_palms(start_active, peer, backend, hand_models):
    remap = ('-r', 'image:=/hand_camera/image')
    start_active('cascade_palms', 'pose', hand_models[0], *remap, backend=backend)
    remap += ('-r', 'detections:=/cascade_palms/regions')
    start_active('cascade_hands', 'pose', hand_models[1], *remap, backend=backend, regions=True)
    images = peer.publisher(Image, '/hand_camera/image')
    peer.wait_until(lambda: images.get_subscription_count() == 2, 'both nodes to subscribe')
    regions, points, boxes = (
        peer.inbox(Detection2DArray, topic)
        for topic in (
            '/cascade_palms/regions',
            '/cascade_hands/keypoints',
            '/cascade_hands/detections',
        )
    )
    pixels, stamps = np.zeros((32, 32, 3), np.uint8), itertools.count(1)

    def comes():  # The first regions may be published before DDS has connected both nodes.
        images.publish(as_image(pixels, 'rgb8', stamp=next(stamps)))
        return points.messages

    stamp = peer.wait_until(comes, 'keypoints')[0].header.stamp

    def result(box):
        return box.wait_for(lambda message: message.header.stamp == stamp, 'a result')

    (region,) = result(regions).detections
    # The palm is 6 long and 4 wide, around (20, 20), and points to the right.
    center = region.bbox.center
    assert center.theta == pytest.approx(np.pi / 2)
    assert (center.position.x, center.position.y) == pytest.approx((20 + 0.4 * 6, 20))
    assert (region.bbox.size_x, region.bbox.size_y) == pytest.approx((18, 18))
    (hand,) = result(boxes).detections
    assert hypotheses(hand) == ['0', 'right']
    assert hand.results[1].hypothesis.score == pytest.approx(0.875)
    found = result(points).detections
    assert [hypotheses(found[0]), hypotheses(found[20])] == [['wrist'], ['pinky_tip']]
    position = found[0].bbox.center.position
    assert (position.x, position.y) == pytest.approx((22.4, 20), abs=1e-3)
    # 4 left of the middle of 16 and 2 above it, which is up and right in the image.
    position = found[20].bbox.center.position
    assert (position.x, position.y) == pytest.approx(
        (22.4 + 2 * 18 / 16, 20 - 4 * 18 / 16), abs=1e-3
    )


def test_the_tensor_node_publishes_a_row_per_object(start, peer, models):
    tensor_list = pytest.importorskip('isaac_ros_tensor_list_interfaces.msg').TensorList
    cascade = start(
        'tensor', 'rows', models['color'], decoder='embedding', tensor_format='isaac', **PIXELS
    )
    rows, boxes = peer.inboxes('rows', tensors=tensor_list, detections=Detection2DArray)
    cascade.send(
        1,
        detection(50, 20, 10, 10, id='b'),
        detection(10, 20, 10, -1, id='invalid'),
        detection(10, 20, 10, 10, id='r', score=0.2),
    )
    (tensor,) = cascade.result(rows, 1).tensors
    assert list(tensor.shape.dims) == [2, 3]
    values = np.frombuffer(bytes(tensor.data), np.float32).reshape(2, 3)
    assert values.round(3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert [each.id for each in cascade.result(boxes, 1).detections] == ['b', 'r']
    cascade.send(2)
    assert cascade.result(rows, 2).tensors == []
    assert cascade.result(boxes, 2).detections == []


def test_text_of_a_bundle_is_a_topic(start_active, peer, tmp_path):
    path = write_cascade(tmp_path, max_regions=3, finds='text')
    start_active('reader', 'detector', path, score_threshold=0.3)
    boxes = peer.inboxes('reader', **dict.fromkeys(('detections', 'text'), Detection2DArray))
    pixels = draw_scene(np.random.default_rng(3), (640, 480))[0]
    peer.connected(Image, '/image').publish(as_image(pixels, 'bgr8', stamp=1))
    found, read = (box.wait_for() for box in boxes)
    with Pipeline.open(path, backend='onnxruntime', cpu_threads=1) as pipeline:
        expected = pipeline(pixels, score=0.3)
    assert len(read.detections) == 3 < len(found.detections) == len(expected)
    for ours, line, each in zip(found.detections, read.detections, expected):
        assert hypotheses(ours) == [each.name, each.region.text]
        assert hypotheses(line) == [each.region.text] and each.region.text in 'rgb'
        assert line.results[0].hypothesis.score == pytest.approx(each.region.score, abs=1e-3)
        assert (line.bbox, line.header) == (ours.bbox, ours.header)


def test_a_bundle_publishes_what_two_nodes_publish(start_active, peer, tmp_path):
    """The detector and the classifier as one node, beside one node of each."""
    path = write_cascade(tmp_path, max_regions=3)
    remap = ('-r', 'image:=/three/image')
    both = start_active('both', 'detector', path, *remap)
    start_active('first', 'detector', MODEL, *remap)
    given = {'max_regions': 3, 'regions': True, 'labels': ['red', 'green', 'blue'], **PIXELS}
    remap += ('-r', 'detections:=/first/detections')
    start_active('second', 'classifier', tmp_path / 'color.onnx', *remap, **given)
    assert 'up to 3 objects per image' in both.log
    ours, wanted = (
        peer.inbox(Detection2DArray, f'/{name}/detections') for name in ('both', 'second')
    )
    images, stamps = peer.connected(Image, '/three/image'), itertools.count(1)

    def send(seed):
        pixels, stamp = draw_scene(np.random.default_rng(seed), (640, 480))[0], next(stamps)
        images.publish(as_image(pixels, 'bgr8', stamp=stamp))
        return stamp

    # All have then discovered each other.
    peer.wait_until(lambda: send(0) and ours.messages and wanted.messages, 'both', pause=0.5)
    for seed in (3, 1):
        stamp = send(seed)
        found, expected = (
            box.wait_for(
                lambda message, stamp=stamp: message.header.stamp.sec == stamp, f'image {stamp}'
            )
            for box in (ours, wanted)
        )
        assert len(expected.detections) > 2
        assert found == expected
