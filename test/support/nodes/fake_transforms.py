"""
A node with a stand-in of tf2_ros: detections_3d, or tensor where it has inputs.

To odom, the transforms are those on /tf_static, and those of the same stamp on /tf, which are
waited for as long as it takes. Else, from each frame, a quarter turn to x forward, y left and z
up, and 1 m forward, 2 m from the frame `left`; none at second 99.
"""

from functools import partial
import sys
import threading
from types import ModuleType

from geometry_msgs.msg import Quaternion, Transform, TransformStamped, Vector3
import numpy as np
from rclpy.qos import DurabilityPolicy, QoSProfile
from tf2_msgs.msg import TFMessage

from support.waiting import DEADLINE_SECONDS
from trt_ros import executables
from trt_ros.ros import transforms as ours
from trt_ros.vision.upright_boxes import quaternion_of


class TransformException(Exception):
    pass


class Buffer:
    def __init__(self):
        self.found, self.changed = {}, threading.Condition()

    def add(self, message, is_static):
        with self.changed:
            for each in message.transforms:
                stamp = None if is_static else (each.header.stamp.sec, each.header.stamp.nanosec)
                self.found[each.child_frame_id, stamp] = each
            self.changed.notify_all()

    def clear(self):
        self.found = {key: each for key, each in self.found.items() if key[1] is None}

    def chain(self, frame, stamp):
        """Return the transforms from a frame to odom; None while one is missing."""
        chain = []
        while frame != 'odom':
            each = self.found.get((frame, None)) or self.found.get((frame, stamp))
            if each is None:
                return None
            chain.append(each.transform)
            frame = each.header.frame_id
        return chain

    def lookup_transform(self, target_frame, source_frame, time, timeout):
        if target_frame == 'odom':
            stamp = divmod(time.nanoseconds, 10**9)
            is_placed = (source_frame, None) in self.found
            with self.changed:
                chain = self.changed.wait_for(
                    lambda: self.chain(source_frame, stamp),
                    DEADLINE_SECONDS if is_placed else timeout.nanoseconds / 1e9,
                )
            if not chain:
                raise TransformException(f'"{source_frame}" does not exist.')
            rotation, place = np.eye(3), np.zeros(3)
            for each in chain:
                q, t = each.rotation, each.translation
                turn = ours.Transform(np.array([q.x, q.y, q.z, q.w]), np.array([t.x, t.y, t.z]))
                rotation, place = turn.rotation() @ rotation, turn.apply(place)
            turned = dict(zip('xyzw', quaternion_of(rotation).tolist()))
            return TransformStamped(
                transform=Transform(
                    translation=Vector3(**dict(zip('xyz', place.tolist()))),
                    rotation=Quaternion(**turned),
                )
            )
        if time.nanoseconds == 99 * 10**9:
            raise TransformException('It would require extrapolation into the future.')
        return TransformStamped(
            transform=Transform(
                translation=Vector3(x=2.0 if source_frame == 'left' else 1.0),
                rotation=Quaternion(x=-0.5, y=0.5, z=-0.5, w=0.5),
            )
        )


class TransformListener:
    def __init__(self, buffer, node):
        self.node = node
        latched = QoSProfile(depth=9, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.subscriptions = [
            node.create_subscription(
                TFMessage, '/tf_static', partial(buffer.add, is_static=True), latched
            ),
            node.create_subscription(TFMessage, '/tf', partial(buffer.add, is_static=False), 100),
        ]

    def unregister(self):
        for each in self.subscriptions:
            self.node.destroy_subscription(each)


if __name__ == '__main__':
    stand_in = ModuleType('tf2_ros')
    for part in (TransformException, Buffer, TransformListener):
        setattr(stand_in, part.__name__, part)
    sys.modules['tf2_ros'] = stand_in
    has_inputs = any(argument.startswith('inputs:=') for argument in sys.argv)
    sys.exit(getattr(executables, 'tensor' if has_inputs else 'detections_3d')())
