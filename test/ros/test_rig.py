"""Two cameras of a robot that drives, and a tracker of the objects around it."""

import itertools

import numpy as np
import pytest

pytest.importorskip('tf2_msgs')

from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, Pose, PoseWithCovariance, Quaternion, Vector3
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header
from tf2_msgs.msg import TFMessage
from vision_msgs.msg import Detection2DArray, Detection3DArray

from support.rig_scenes import CAMERA, WALKERS, detect, look, pose, turn
from support.ros_messages import (
    MISSING_SECOND,
    as_image,
    camera_info,
    detection,
    stamped,
    transform,
)
from support.ros_nodes import own_topics
from trt_ros.nodes.rig import RigTracks
from trt_ros.ros.messages import detection_3d
from trt_ros.tracking.options import TrackOptions
from trt_ros.vision.upright_boxes import quaternion_of

WALKING = WALKERS[:2]


def header(camera, seconds):
    stamp = Time(sec=int(seconds), nanosec=round(seconds % 1 * 1e9))
    return Header(stamp=stamp, frame_id=f'optical_{camera}')


def base_at(seconds):
    """Return rotation and place of the base, which drives a curve from second 12.3 on."""
    driven = max(seconds - 12.3, 0)
    return turn(0.25 * driven), np.array([0.4 * driven, -0.2 * driven, 0])


def extrinsics(camera):
    rotation, place = pose(camera)
    return transform('base', f'optical_{camera}', place=place, turn=quaternion_of(rotation))


class Rig:
    """Two nodes detections_3d, a tracker of both, and the publishers of their inputs."""

    def __init__(self, start_node, program):
        nodes = []
        for camera in range(2):
            nodes.append(
                start_node(
                    f'rig_{camera}',
                    program,
                    *own_topics(f'rig_{camera}', 'detections', 'depth_image', 'depth_info'),
                    target_frame='odom',
                    qos_reliability='reliable',
                )
            )
        self.tracker = start_node(
            'rig_tracker',
            'trt_ros.nodes.tracker',
            detections_3d_topics=[f'/rig_{camera}/detections_3d' for camera in range(2)],
        )
        self.nodes, peer = nodes, self.tracker.peer
        for node in (*nodes, self.tracker):
            node.wait_for_log('Started: active.')
        self.publishers = [
            [
                peer.connected(kind, f'/rig_{camera}/{name}')
                for kind, name in (
                    (CameraInfo, 'depth_info'),
                    (Detection2DArray, 'detections'),
                    (Image, 'depth_image'),
                )
            ]
            for camera in range(2)
        ]
        latched = QoSProfile(depth=9, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.transforms = peer.publisher(TFMessage, '/tf_static', latched)
        peer.wait_until(lambda: peer.node.count_subscribers('/tf') == 2, 'both nodes at /tf')
        self.base = peer.connected(TFMessage, '/tf')
        self.boxes = [
            peer.connected(Detection3DArray, f'/rig_{camera}/detections_3d') for camera in range(2)
        ]
        self.tracks = peer.inbox(Detection3DArray, '/rig_tracker/tracks_3d')

    def send(self, camera, seconds):
        """Publish what a camera sees."""
        base, stamped_header = base_at(seconds), header(camera, seconds)
        place = {'place': base[1], 'turn': quaternion_of(base[0])}
        moved = transform('odom', 'base', stamp=seconds, **place)
        self.base.publish(TFMessage(transforms=[moved]))
        scene = look(camera, seconds, WALKING, base)
        info, detections, depth = self.publishers[camera]
        found = Detection2DArray(header=stamped_header)
        boxes = detect(scene, len(WALKING)).values()
        found.detections = [detection(*box[:4], class_id='person') for box in boxes]
        info.publish(stamped(camera_info(CAMERA), seconds, stamped_header.frame_id))
        detections.publish(found)
        image = as_image(scene.meters.astype(np.float32), '32FC1')
        depth.publish(stamped(image, seconds, stamped_header.frame_id))

    def track(self, seconds, late):
        """Publish what both cameras see, and return the tracks that follow each of them."""
        stamp, found = header(0, seconds).stamp, []
        for camera in range(2):
            self.send(camera, seconds - late * camera)

            def is_tracked(count=camera + 1):
                found[:] = [each for each in self.tracks.messages if each.header.stamp == stamp]
                return len(found) == count

            self.tracker.peer.wait_until(is_tracked, 'tracks')
        return found

    def send_until(self, condition, camera, seconds):
        """Publish again and again: the first messages may precede the calibration."""
        numbers = itertools.count()

        def is_done():
            self.send(camera, seconds + next(numbers) / 1e5)
            return condition()

        self.tracker.peer.wait_until(is_done)


def test_an_object_keeps_its_identity_from_one_camera_to_the_next(start_node, request):
    rig = Rig(start_node, request.path.parents[1] / 'support/nodes/patient_transforms.py')
    rig.transforms.publish(TFMessage(transforms=[extrinsics(0)]))
    rig.send_until(lambda: rig.tracks.messages, 0, 1.0)
    unplaced = "No transform from 'optical_1' to 'odom' at the time of the message"
    rig.send_until(lambda: unplaced in rig.nodes[1].log, 1, MISSING_SECOND)
    # Nothing of that camera was published.
    assert {each.header.stamp.sec for each in rig.tracks.messages} == {1}
    rig.transforms.publish(TFMessage(transforms=[extrinsics(0), extrinsics(1)]))
    rig.send_until(lambda: rig.tracks.messages[-1].header.stamp.sec == 4, 1, 4.0)

    owners = {}
    for step in range(20):
        seconds = 12.3 + step / 10  # Objects from -8 to 47 degrees, and from 15 to 70.
        for tracks in rig.track(seconds, late=0.05):
            assert tracks.header.frame_id == 'odom'
            near = {}
            for each in tracks.detections:
                at = each.bbox.center.position
                gaps = [
                    np.hypot(*(walker.place(seconds)[:2] - (at.x, at.y))) for walker in WALKING
                ]
                assert min(gaps) < 0.4
                assert each.results[0].pose.pose == each.bbox.center
                assert near.setdefault(int(np.argmin(gaps)), each.id) == each.id
            for owner, identity in near.items():
                assert owners.setdefault(owner, identity) == identity
    assert len(set(owners.values())) == 2

    elsewhere = Detection3DArray(header=header(1, 14.3))
    rig.boxes[1].publish(elsewhere)
    rig.tracker.wait_for_log("The boxes are in the frame 'optical_1', those of another camera in")
    rig.tracker.wait_for_log('Set target_frame of the detections_3d nodes of all cameras')


def test_lost_objects_have_the_score_0_and_overlapping_views_the_larger_box():
    rig = RigTracks('ocsort', itertools.count(1))

    def see(camera, seconds, *widths):
        center = Pose(position=Point(x=2.0), orientation=Quaternion(w=1.0))
        pose = PoseWithCovariance(pose=center)
        odom = Header(stamp=header(0, seconds).stamp, frame_id='odom')
        found = [
            detection_3d(detection(0), odom, pose, Vector3(x=each, y=each, z=1.0), '')
            for each in widths
        ]
        boxes = Detection3DArray(header=odom, detections=found)
        rig.track(camera, boxes, TrackOptions())
        return [
            (each.id, each.bbox.size.x, each.results[0].hypothesis.score)
            for each in rig.to_message(with_lost=True).detections
        ]

    assert see(0, 1.0, 0.5) == []
    assert see(1, 1.0, 0.2) == [('1', 0.2, 0.9)]
    assert see(0, 1.1, 0.5) == [('1', 0.5, 0.9)]
    assert see(1, 1.1, 0.2) == [('1', 0.5, 0.9)]
    assert see(0, 1.2) == [('1', 0.5, 0.9)]  # The second camera has it still.
    assert see(1, 1.2) == [('1', 0.5, 0.0)]
    assert rig.to_message(with_lost=False).detections == []
    assert see(1, 1.3, 0.2) == [('1', 0.2, 0.9)]
    assert see(1, 1.4, np.inf, 1e300, 0.2, np.nan, -0.2) == [('1', 0.2, 0.9)]
