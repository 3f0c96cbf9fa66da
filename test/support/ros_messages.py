"""Messages of the tests of the nodes."""

from functools import partial

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header

from trt_ros.ros.dds.cdr_tensors import read_tensor_list, write_tensor_list

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
RED, GREEN, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 0)
#: Second whose transforms nodes/patient_transforms.py does not wait for.
MISSING_SECOND = 3
#: Rotation from x right, y down, z forward to x forward, y left, z up.
TO_FORWARD = (-0.5, 0.5, -0.5, 0.5)


def picture(image_wh=(128, 128), xyxy=(32, 16, 96, 64), rgb=RED):
    """Draw a rectangle of one color on black: (height, width, 3) uint8 RGB."""
    pixels = np.zeros((image_wh[1], image_wh[0], 3), np.uint8)
    left, top, right, bottom = xyxy
    pixels[top:bottom, left:right] = rgb
    return pixels


def as_image(pixels, encoding, *, stamp=0, size_wh=(), step=0):
    """Make a sensor_msgs/Image; `step` defaults to no padding, `stamp` identifies the frame."""
    rows = pixels.reshape(len(pixels), -1).view(np.uint8)
    width, height = size_wh or (pixels.shape[1], pixels.shape[0])
    if step:
        # Padding of a bright value: whoever reads it as pixels sees it.
        rows = np.pad(rows, ((0, 0), (0, step - rows.shape[1])), constant_values=255)
    return Image(
        header=Header(stamp=Time(sec=stamp, nanosec=7), frame_id='front_camera'),
        height=height,
        width=width,
        step=rows.shape[1],
        encoding=encoding,
        data=rows.tobytes(),
    )


def half_and_half(left, right, image_wh=(64, 48), dtype=np.uint8):
    pixels = np.zeros((image_wh[1], image_wh[0], *np.shape(left)), dtype)
    pixels[:, : image_wh[0] // 2], pixels[:, image_wh[0] // 2 :] = left, right
    return pixels


def pixels_of(image):
    dtype, channels = {
        'mono8': ('u1', 1),
        'mono16': ('<u2', 1),
        '32FC1': ('<f4', 1),
        'bgr8': ('u1', 3),
    }[image.encoding]
    assert image.step == image.width * channels * np.dtype(dtype).itemsize
    shape = (image.height, image.width, channels)[: 3 if channels > 1 else 2]
    return np.frombuffer(bytes(image.data), dtype).reshape(shape)


def stamped(message, stamp, frame_id=''):
    """Set the stamp in seconds."""
    message.header.stamp.sec = int(stamp)
    message.header.stamp.nanosec = round((stamp - int(stamp)) * 1e9)
    message.header.frame_id = frame_id
    return message


def at(stamp):
    return lambda message: (
        message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec == (pytest.approx(stamp))
    )


def transform(parent, child, *, stamp=0, place=(0, 0, 0), turn=(0, 0, 0, 1)):
    """Make a TransformStamped; `turn` is a quaternion x, y, z, w."""
    from geometry_msgs.msg import Quaternion, Transform, TransformStamped, Vector3

    moved = Transform(
        translation=Vector3(**dict(zip('xyz', map(float, place)))),
        rotation=Quaternion(**dict(zip('xyzw', map(float, turn)))),
    )
    return stamped(TransformStamped(child_frame_id=child, transform=moved), stamp, parent)


def detection(x, y=100, width=40, height=80, *, theta=0.0, score=0.9, class_id='thing', id=''):
    """Build a Detection2D around a center; a score of None leaves the class out."""
    from vision_msgs.msg import (
        BoundingBox2D,
        Detection2D,
        ObjectHypothesis,
        ObjectHypothesisWithPose,
        Point2D,
        Pose2D,
    )

    found = Detection2D(
        bbox=BoundingBox2D(
            center=Pose2D(position=Point2D(x=float(x), y=float(y)), theta=theta),
            size_x=float(width),
            size_y=float(height),
        ),
        id=id,
    )
    if score is not None:
        hypothesis = ObjectHypothesis(class_id=class_id, score=score)
        found.results = [ObjectHypothesisWithPose(hypothesis=hypothesis)]
    return found


def camera_info(camera, frame_id=''):
    """Return the calibration of a camera, Intrinsics."""
    width, height = camera.image_wh
    k = [camera.fx, 0.0, camera.cx, 0.0, camera.fy, camera.cy, 0.0, 0.0, 1.0]
    return CameraInfo(header=Header(frame_id=frame_id), width=width, height=height, k=k)


def tensor_list(stamp, frame_id='base', **tensors):
    from isaac_ros_tensor_list_interfaces.msg import TensorList

    written = write_tensor_list(tensors, (0, 0), '')
    return stamped(deserialize_message(written.tobytes(), TensorList), stamp, frame_id)


def serialized(message):
    return np.frombuffer(serialize_message(message), np.uint8)


def read_tensors(message):
    view = read_tensor_list(serialized(message))
    return {name: values.tolist() for name, values in view.value.items()}


def classes_of(info):
    """Return ids and names of a LabelInfo."""
    return [(each.class_id, each.class_name) for each in info.class_map]


def follow_clock(peer, publish_clock, seconds):
    """Publish a time until a node in the domain has it: messages of /clock may be lost."""
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    def is_known():
        publish_clock()
        return any(each.header.stamp.sec == int(seconds) for each in inbox.messages)

    peer.wait_until(is_known, f'{seconds} s at the node')
    peer.close_inbox(inbox)


def diagnostics(peer, name):
    """Return a function that waits for values of a node's diagnostics."""
    return partial(wait_for_values, peer.inbox(DiagnosticArray, '/diagnostics'), f'{name}: image')


def values_of(array):
    return {each.key: each.value for each in array.status[0].values}


def wait_for_values(inbox, name, **expected):
    """Return the first status of this name in the diagnostics that has these values."""

    def matches(array):
        return array.status[0].name == name and expected.items() <= values_of(array).items()

    return inbox.wait_for(matches, f'{name}: {expected}').status[0]


def next_diagnostics(peer, inbox, name):
    """Return the diagnostics under this name of a time after this call."""
    seen = len(inbox.messages)

    def fresh():
        own = [array for array in inbox.messages[seen:] if array.status[0].name == name]
        return own[1:]  # The first may have been on its way.

    return peer.wait_until(fresh, 'diagnostics')[0]
