"""3D boxes and points of detections, through topics."""

from importlib.util import find_spec
import itertools
from pathlib import Path
import threading
import time

from diagnostic_msgs.msg import DiagnosticArray
import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from vision_msgs.msg import Detection2DArray, Detection3DArray

from support.rgbd_scenes import CAMERA, Solid, render, yaw
from support.ros_messages import (
    LATCHED,
    MISSING_SECOND,
    TO_FORWARD,
    as_image,
    camera_info,
    detection,
    stamped,
    transform,
    values_of,
)
from support.ros_nodes import own_topics
from trt_ros.nodes.detections_3d import MAX_OBJECTS
from trt_ros.vision.depth_points import Intrinsics

NAME = 'trt_ros.nodes.detections_3d'
WAITING = Path(__file__).parents[1] / 'support/nodes/patient_transforms.py'
TOPICS = ('detections', 'depth_image', 'depth_info', 'camera_info', 'instances')
SOLIDS = [
    Solid((0.1, -0.2, 3.0), (0.5, 0.6, 0.4), yaw(0)),
    Solid((-0.8, 0.2, 2.0), (0.3, 0.3, 0.3), yaw(0)),
]
FRONTS = [(0.1, -0.2, 2.8), (-0.8, 0.2, 1.85)]
HALF = Intrinsics(305.0, 306.0, 159.15, 120.85, (320, 240))


@pytest.fixture(scope='module')
def scene():
    return render(SOLIDS)


def image_of(pixels, encoding, seconds, frame_id='depth_optical'):
    return stamped(as_image(pixels, encoding), seconds, frame_id)


def detections_of(scene, seconds):
    array = Detection2DArray()
    for index in range(len(SOLIDS)):
        box, given = scene.box(index, 0.2)[:4], {'id': f'{index + 7}', 'score': 0.5}
        array.detections.append(detection(*box, class_id=f'class {index}', **given))
    return stamped(array, seconds, 'color_optical')


class Locating:
    """A running node, and the publishers of its inputs."""

    def __init__(self, node, *, info=CAMERA, source=None):
        self.node = node
        node.wait_for_log('Started: active.')
        peer, name = node.peer, node.name
        self.detections = peer.connected(Detection2DArray, f'/{name}/detections')
        self.depth = peer.connected(Image, f'/{name}/depth_image')
        self.instances = peer.publisher(Image, f'/{name}/instances')
        self.infos = peer.publisher(CameraInfo, f'/{name}/depth_info')
        self.source_infos = peer.publisher(CameraInfo, f'/{name}/camera_info')
        self.boxes = peer.inbox(Detection3DArray, f'/{name}/detections_3d')
        self.points = peer.inbox(PointCloud2, f'/{name}/points')
        self.diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')
        self.info, self.source = info, source

    def send(self, scene, seconds, *, late=0.0, boxes_of=None, instances=None, copies=1):
        """Publish one set, its depth image `late` seconds after the detections."""
        if self.info:
            self.infos.publish(camera_info(self.info, 'depth_optical'))
        if self.source:
            self.source_infos.publish(camera_info(self.source, 'color_optical'))
        array = detections_of(boxes_of or scene, seconds)
        array.detections = list(array.detections) * copies
        self.detections.publish(array)
        if instances is not None:
            self.instances.publish(image_of(instances, 'mono16', seconds))
        depth = np.rint(1000 * scene.meters).astype(np.uint16)
        self.depth.publish(image_of(depth, '16UC1', seconds + late))

    def locate(self, scene, seconds, **options):
        """Publish sets until one is located: the first may precede the calibration."""
        stamps = []
        for number in range(30):
            stamps.append(stamped(Image(), seconds + number / 8).header.stamp)
            self.send(scene, seconds + number / 8, **options)

            def own():
                return [each for each in self.boxes.messages if each.header.stamp in stamps]

            deadline = time.monotonic() + 2.0
            while time.monotonic() < deadline and not own():
                threading.Event().wait(0.01)
            if own():
                return own()[0]
        raise AssertionError(self.node.log)

    def wait_for_value(self, key):
        self.diagnostics.wait_for(
            lambda array: (
                array.status[0].name.startswith(f'{self.node.name}: ')
                and values_of(array).get(key, '0') != '0'
            ),
            key,
        )


def centers_of(message):
    return [
        (each.bbox.center.position.x, each.bbox.center.position.y, each.bbox.center.position.z)
        for each in message.detections
    ]


@pytest.fixture(scope='module')
def locating(start_node):
    def start(name, program=NAME, *, info=CAMERA, source=None, **parameters):
        node = start_node(
            name, program, *own_topics(name, *TOPICS), qos_reliability='reliable', **parameters
        )
        return Locating(node, info=info, source=source)

    return start


@pytest.fixture(scope='module')
def locating_in_base(locating):
    """Start a node with results in base_link; return it, and what places the camera there."""
    TFMessage = pytest.importorskip('tf2_msgs.msg').TFMessage

    def start(name, **parameters):
        located = locating(name, WAITING, target_frame='base_link', **parameters)
        static = located.node.peer.publisher(TFMessage, '/tf_static', LATCHED)
        placed = transform('base_link', 'depth_optical', place=(1, 0, 0), turn=TO_FORWARD)
        return located, lambda: static.publish(TFMessage(transforms=[placed]))

    return start


@pytest.fixture(scope='module')
def plain(locating):
    return locating('plain')


def test_detections_get_boxes_and_points_in_the_frame_of_the_depth_image(plain, scene):
    found = plain.locate(scene, 10.0, late=0.015)
    assert found.header.frame_id == 'depth_optical'
    assert centers_of(found) == [pytest.approx(each, abs=0.02) for each in FRONTS]
    assert [each.id for each in found.detections] == ['7', '8']
    for index, each in enumerate(found.detections):
        assert each.header == found.header
        assert each.results[0].hypothesis.class_id == f'class {index}'
        assert each.results[0].pose.pose == each.bbox.center
        assert each.bbox.center.orientation.w == 1.0
        assert each.bbox.size.x == pytest.approx(SOLIDS[index].size[0], abs=0.03)
        # The covariance of a surface reaches behind it.
        covariance = np.reshape(each.results[0].pose.covariance, (6, 6))
        half = max(each.bbox.size.x, each.bbox.size.y) / 2
        assert covariance[2, 2] == pytest.approx(half**2)
        assert covariance.diagonal()[3:] == pytest.approx(np.pi**2 / 3)
    cloud = plain.points.wait_for(lambda cloud: cloud.header.stamp == found.header.stamp)
    assert cloud.header == found.header
    points = np.frombuffer(cloud.data, '<f4').reshape(-1, 4)
    objects = points[:, 3].copy().view(np.uint32)
    assert set(objects.tolist()) == {0, 1}
    exact = scene.rays() * scene.meters[..., None]
    for index in range(len(SOLIDS)):
        seen = exact[scene.owners == index + 1].mean(axis=0)
        assert points[objects == index, :3].mean(axis=0) == pytest.approx(seen, abs=0.01)


def test_objects_of_a_known_size_get_whole_boxes(locating, locating_in_base, scene):
    sizes = ['class 0:0.5,0.4,0.6']
    in_base, place = locating_in_base('sized_base', sizes=sizes)
    place()
    for target, node in (('', locating('sized', sizes=sizes)), ('base_link', in_base)):
        first, second = node.locate(scene, 10.0).detections
        x, y, z = SOLIDS[0].center
        center = (z + 1, -x, -y) if target else (x, y, z)
        assert centers_of(Detection3DArray(detections=[first]))[0] == pytest.approx(
            center, abs=0.03
        )
        size, turn = first.bbox.size, first.bbox.center.orientation
        assert (size.x, size.y, size.z) == (0.5, 0.4, 0.6)
        if target:  # Its length is across: along y of base_link.
            assert abs(turn.z) == pytest.approx(np.sqrt(0.5), abs=0.05)
            assert (turn.x, turn.y) == pytest.approx((0, 0), abs=1e-9)
        assert first.results[0].pose.covariance[14] == pytest.approx((0.05 * 0.6) ** 2)
        # A second class keeps its surface: front, and the side that is seen.
        variances = np.reshape(second.results[0].pose.covariance, (6, 6)).diagonal()
        assert variances[:3].max() == pytest.approx(0.15**2, rel=0.1)


def test_at_most_a_thousand_objects_are_measured_and_of_none_the_array_is_empty(plain, scene):
    found = plain.locate(scene, 40.0, copies=502)
    assert len(found.detections) == MAX_OBJECTS == 1000
    found = plain.locate(scene, 50.0, copies=0)
    assert (found.detections, found.header.frame_id) == ([], 'depth_optical')


def test_objects_without_depth_are_left_out_and_named(plain, scene):
    hollow = render(SOLIDS)
    hollow.meters[hollow.owners == 2] = 0
    x, y, width, height, _ = map(int, scene.box(1, 0.3))
    hollow.meters[y - height : y + height, max(x - width, 0) : x + width] = 0
    found = plain.locate(hollow, 60.0, boxes_of=scene)
    assert [each.id for each in found.detections] == ['7']
    plain.wait_for_value('objects without depth')
    hollow.meters[:] = 0
    assert plain.locate(hollow, 70.0, boxes_of=scene).detections == []
    plain.node.wait_for_log('None of the 2 detections of an image has a depth')


def test_a_picture_instead_of_a_depth_image_is_refused(plain, scene):
    plain.detections.publish(detections_of(scene, 80.0))
    # Not even one that cv_bridge may convert.
    plain.depth.publish(image_of(np.zeros((480, 640)), '64FC1', 80.0))
    plain.node.wait_for_log('Encoding 64FC1 is not one of depth images')
    plain.wait_for_value('dropped: not a depth image')


def test_a_depth_image_of_another_size_is_scaled_once_there_is_its_calibration(locating, scene):
    scaled = locating('scaled', info=None, source=CAMERA, registered=False)
    small = render(SOLIDS, HALF)
    scaled.send(small, 5.0, boxes_of=scene)
    scaled.node.wait_for_log('No calibration was received on depth_info')
    scaled.wait_for_value('dropped: no calibration')
    scaled.info = HALF
    found = scaled.locate(small, 10.0, boxes_of=scene)
    assert centers_of(found) == [pytest.approx(each, abs=0.03) for each in FRONTS]


def test_masks_of_a_segmenter_choose_the_pixels(locating, scene):
    masked = locating('masked', use_instances=True)
    masked.node.peer.wait_until(masked.instances.get_subscription_count, 'the node')
    only = (scene.owners * (scene.owners == 2)).astype(np.uint16)
    # The first object has no pixels in the masks.
    found = masked.locate(scene, 10.0, instances=only)
    assert [each.id for each in found.detections] == ['8']
    assert centers_of(found) == [pytest.approx(FRONTS[1], abs=0.02)]
    masked.instances.publish(image_of(only, 'mono16', 30.005))
    masked.send(scene, 30.0)
    masked.node.wait_for_log('The detections and the instances have different stamps')


def test_boxes_and_points_are_transformed_and_a_missing_transform_is_counted(
    locating_in_base, scene
):
    moved, place = locating_in_base('moved')
    stamps = (MISSING_SECOND + number / 1000 for number in itertools.count())

    def is_missed():
        moved.send(scene, next(stamps))  # The first may precede the calibration.
        return "to 'base_link' at the time of the message" in moved.node.log

    moved.node.peer.wait_until(is_missed, 'the missing transform', 0.1)
    moved.wait_for_value('dropped: no transform')
    place()
    found = moved.locate(scene, 10.0)
    assert found.header.frame_id == 'base_link'
    expected = [(z + 1, -x, -y) for x, y, z in FRONTS]
    assert centers_of(found) == [pytest.approx(each, abs=0.02) for each in expected]
    turn = found.detections[0].bbox.center.orientation
    assert (turn.x, turn.y, turn.z, turn.w) == pytest.approx(TO_FORWARD)
    cloud = moved.points.wait_for(lambda cloud: cloud.header == found.header)
    points = np.frombuffer(cloud.data, '<f4').reshape(-1, 4)
    own = points[:, 3].copy().view(np.uint32) == 0
    assert points[own, :3].mean(axis=0) == pytest.approx(expected[0], abs=0.02)


@pytest.mark.skipif(find_spec('tf2_ros') is not None, reason='tf2_ros is installed')
def test_a_target_frame_without_tf2_is_refused(start_node):
    node = start_node('untransformed', NAME, target_frame='base_link')
    node.wait_for_log('on_configure failed. target_frame needs tf2_ros, which cannot be imported')
    node.wait_for_failed_start()
