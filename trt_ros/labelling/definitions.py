"""Definitions of the messages of results, as MCAP stores them."""

_STAMPED = 'std_msgs/Header header\n'
_FIELDS = {
    'builtin_interfaces/Time': 'int32 sec\nuint32 nanosec\n',
    'std_msgs/Header': 'builtin_interfaces/Time stamp\nstring frame_id\n',
    'geometry_msgs/Point': 'float64 x\nfloat64 y\nfloat64 z\n',
    'geometry_msgs/Quaternion': 'float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1\n',
    'geometry_msgs/Pose': 'geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n',
    'geometry_msgs/PoseWithCovariance': 'geometry_msgs/Pose pose\nfloat64[36] covariance\n',
    'vision_msgs/Point2D': 'float64 x\nfloat64 y\n',
    'vision_msgs/Pose2D': 'vision_msgs/Point2D position\nfloat64 theta\n',
    'vision_msgs/BoundingBox2D': ('vision_msgs/Pose2D center\nfloat64 size_x\nfloat64 size_y\n'),
    'vision_msgs/ObjectHypothesis': 'string class_id\nfloat64 score\n',
    'vision_msgs/ObjectHypothesisWithPose': (
        'vision_msgs/ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose\n'
    ),
    'vision_msgs/Detection2D': (
        _STAMPED + 'vision_msgs/ObjectHypothesisWithPose[] results\n'
        'vision_msgs/BoundingBox2D bbox\nstring id\n'
    ),
    'vision_msgs/Detection2DArray': _STAMPED + 'vision_msgs/Detection2D[] detections\n',
    'vision_msgs/Classification': _STAMPED + 'vision_msgs/ObjectHypothesis[] results\n',
    'sensor_msgs/Image': (
        _STAMPED + 'uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\n'
        'uint32 step\nuint8[] data\n'
    ),
}


def definition_of(message_type: str) -> bytes:
    """Return the definition of 'PACKAGE/msg/NAME' with those of its parts, as 'ros2msg'."""
    root = message_type.replace('/msg/', '/')
    names = [root]
    for name in names:  # Grows meanwhile.
        for line in _FIELDS[name].splitlines():
            kind = line.split(' ')[0].partition('[')[0]
            if kind in _FIELDS and kind not in names:
                names.append(kind)
    separator = '=' * 80
    parts = [f'{separator}\nMSG: {name}\n{_FIELDS[name]}' for name in names[1:]]
    return ''.join([_FIELDS[root], *parts]).encode()
