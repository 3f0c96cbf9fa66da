"""
A node with a stand-in of tf2_ros: detections_3d, or tensor where it has inputs.

From each frame, a quarter turn to x forward, y left and z up, and 1 m forward, 2 m from the frame
`left`; none at second 99.
"""

import sys
from types import ModuleType

from geometry_msgs.msg import Quaternion, Transform, TransformStamped, Vector3

from trt_ros import executables


class TransformException(Exception):
    pass


class Buffer:
    def lookup_transform(self, target_frame, source_frame, time, timeout):
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

    def unregister(self):
        pass


if __name__ == '__main__':
    stand_in = ModuleType('tf2_ros')
    for part in (TransformException, Buffer, TransformListener):
        setattr(stand_in, part.__name__, part)
    sys.modules['tf2_ros'] = stand_in
    has_inputs = any(argument.startswith('inputs:=') for argument in sys.argv)
    sys.exit(getattr(executables, 'tensor' if has_inputs else 'detections_3d')())
