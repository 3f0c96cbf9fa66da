"""
A node with a stand-in of tf2_ros: detections_3d, or tensor where it has inputs.

To odom, the transforms are those on /tf_static. Else, from each frame, a quarter turn to x
forward, y left and z up, and 1 m forward, 2 m from the frame `left`; none at second 99.
"""

import sys
from types import ModuleType

from geometry_msgs.msg import Quaternion, Transform, TransformStamped, Vector3
from rclpy.qos import DurabilityPolicy, QoSProfile
from tf2_msgs.msg import TFMessage

from trt_ros import executables


class TransformException(Exception):
    pass


class Buffer:
    def __init__(self):
        self.static = {}

    def lookup_transform(self, target_frame, source_frame, time, timeout):
        if target_frame == 'odom':
            if source_frame not in self.static:
                raise TransformException(f'"{source_frame}" does not exist.')
            return self.static[source_frame]
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
        self.subscription = node.create_subscription(
            TFMessage,
            '/tf_static',
            lambda message: buffer.static.update(
                {each.child_frame_id: each for each in message.transforms}
            ),
            latched,
        )

    def unregister(self):
        self.node.destroy_subscription(self.subscription)


if __name__ == '__main__':
    stand_in = ModuleType('tf2_ros')
    for part in (TransformException, Buffer, TransformListener):
        setattr(stand_in, part.__name__, part)
    sys.modules['tf2_ros'] = stand_in
    has_inputs = any(argument.startswith('inputs:=') for argument in sys.argv)
    sys.exit(getattr(executables, 'tensor' if has_inputs else 'detections_3d')())
