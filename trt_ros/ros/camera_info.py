"""Camera calibration from files and from `camera_info` topics."""

from copy import copy
from functools import lru_cache
import math
from pathlib import Path
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.subscription import Subscription
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Header
import yaml

from trt_ros.errors import BadFrameError
from trt_ros.regular_file import MAX_TEXT_NBYTES, parsing, read_regular
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.qos import CALIBRATIONS, overridden
from trt_ros.vision.depth_points import Intrinsics
from trt_ros.vision.frame import Frame
from trt_ros.vision.lens import DISTORTION_MODELS, Lens

#: No camera has a focal length or a center beyond, nor one over it: results stay finite.
_MAX_PIXELS = 1e6
#: Maximum error of a rotation matrix, whose numbers have few digits in files.
_ROUNDING = 1e-2


class _PlainLoader(yaml.SafeLoader):
    """A YAML loader that refuses aliases, whose merges grow exponentially with the file size."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(
                None, None, 'YAML aliases are not allowed', self.peek_event().start_mark
            )
        return super().compose_node(parent, index)


def load_calibration(path: str) -> CameraInfo:
    """Load a calibration of camera_calibration; raise ParameterError if it is invalid."""
    remedy = 'Set it to a YAML file in the format of camera_calibration.'
    more = yaml.YAMLError, LookupError, ArithmeticError, AssertionError
    with parsing(f'Calibration file {path!r} cannot be loaded.', remedy, *more):
        text = read_regular(Path(path).expanduser(), MAX_TEXT_NBYTES).decode()
        values = yaml.load(text, _PlainLoader)
        return CameraInfo(
            width=_size(values, 'image_width'),
            height=_size(values, 'image_height'),
            distortion_model=str(values['distortion_model']),
            d=_floats(values, 'distortion_coefficients'),
            k=_floats(values, 'camera_matrix', 9),
            r=_floats(values, 'rectification_matrix', 9),
            p=_floats(values, 'projection_matrix', 12),
        )


def camera_info_for(
    calibration: CameraInfo | None, header: Header, image_wh: tuple[int, int]
) -> CameraInfo:
    """Return the calibration of an image with its header; K is zero without one for its size."""
    if calibration is None or (calibration.width, calibration.height) != image_wh:
        return CameraInfo(header=header, width=image_wh[0], height=image_wh[1])
    stamped = copy(calibration)
    stamped.header = header
    return stamped


def intrinsics_of(
    info: CameraInfo, topic: str, image_wh: tuple[int, int] | None = None
) -> Intrinsics:
    """
    Return the rectified camera of a CameraInfo: P, or K where P is zero (as simulators send it).

    P and K are those of the full image; region of interest and binning are taken into account.

    :param topic: its topic, for the error.
    :param image_wh: size of the image that it is to belong to.
    :raises BadFrameError: 'no calibration', when there is none or it is all zeros;
        'bad calibration', when the camera it describes cannot be, or is for another size.
    """
    p, k = info.p, info.k
    fx_fy_cx_cy = (p[0], p[5], p[2], p[6]) if p[0] else (k[0], k[4], k[2], k[5])
    camera = _camera_of(info, fx_fy_cx_cy, topic)
    if image_wh not in (None, camera.image_wh):
        given, known = ('{} × {}'.format(*wh) for wh in (image_wh, camera.image_wh))
        raise BadFrameError(
            'bad calibration',
            f'The image is {given}, but {topic} is for {known}.',
            remedy=f'Remap {topic} to the calibration of the image.',
        )
    return camera


def lens_of(info: CameraInfo, topic: str) -> Lens | None:
    """
    Return the lens of raw images from their CameraInfo; None where it changes nothing.

    :raises BadFrameError: as intrinsics_of(), and for another distortion model.
    """
    k, model, d = info.k, info.distortion_model or 'plumb_bob', list(info.d)
    target = intrinsics_of(info, topic)
    source = _camera_of(info, (k[0], k[4], k[2], k[5]), topic)
    used = DISTORTION_MODELS.get(model, 0)
    rotation = tuple(map(float, info.r)) if any(info.r) else (1, 0, 0, 0, 1, 0, 0, 0, 1)
    if any(d[used:]) or not all(map(math.isfinite, d)):
        raise BadFrameError(
            'bad calibration',
            f'The calibration on {topic} has an unsupported distortion: {model} {d}.',
            remedy=f'Calibrate with {", ".join(DISTORTION_MODELS)}, or rectify the images before.',
        )
    if not _is_rotation(rotation):
        raise BadFrameError(
            'bad calibration',
            f'R of the calibration on {topic} is no rotation: {list(rotation)}.',
            remedy=f'Calibrate the camera, or correct the publisher of {topic}.',
        )
    if source == target and not any(d) and rotation == (1, 0, 0, 0, 1, 0, 0, 0, 1):
        return None
    cameras = [(each.fx, each.fy, each.cx, each.cy) for each in (source, target)]
    padded = [*d, *[0.0] * 12][: 4 if model == 'equidistant' else 12]
    return Lens(cameras[0], tuple(padded), rotation, cameras[1], model)


@lru_cache(maxsize=8)
def _is_rotation(numbers: tuple[float, ...]) -> bool:
    r = np.reshape(numbers, (3, 3))
    if not (abs(r) <= 1 + _ROUNDING).all():  # Also of NaN.
        return False
    errors = abs(r @ r.T - np.eye(3))
    return bool(errors.max() < _ROUNDING and np.linalg.det(r) > 0)


def _camera_of(
    info: CameraInfo, camera: tuple[float, float, float, float], topic: str
) -> Intrinsics:
    """Return a camera of a CameraInfo; see intrinsics_of()."""
    fx, fy, cx, cy = camera
    across, down, roi = info.binning_x or 1, info.binning_y or 1, info.roi
    if not (fx and fy and info.width and info.height):
        raise BadFrameError(
            'no calibration',
            f'No calibration was received on {topic}, or it is all zeros.',
            remedy=f'Remap {topic} to the camera_info of a calibrated camera.',
        )
    fx, cx = fx / across, (cx - roi.x_offset) / across
    fy, cy = fy / down, (cy - roi.y_offset) / down
    # NaN compares false.
    is_focal = all(1 / _MAX_PIXELS < value < _MAX_PIXELS for value in (fx, fy))
    if not (is_focal and all(abs(value) < _MAX_PIXELS for value in (cx, cy))):
        raise BadFrameError(
            'bad calibration',
            f'The calibration on {topic} is not that of a camera: fx {fx:g}, fy {fy:g}, '
            f'cx {cx:g}, cy {cy:g} pixels.',
            remedy=f'Calibrate the camera, or correct the publisher of {topic}.',
        )
    size = (roi.width or info.width) // across, (roi.height or info.height) // down
    return Intrinsics(fx, fy, cx, cy, size)


class CameraInfoStream:
    """
    A subscription to the CameraInfo of an image topic while the node is active.

    The topic is `camera_info` in the namespace of the images, unless it is remapped.

    :param topic: the topic itself, as for create_subscription(); '' for that of `image_topic`.
    :ivar newest: the newest message; an empty one before the first.
    """

    def __init__(self, node: ManagedNode, image_topic: str = 'image', *, topic: str = '') -> None:
        self.newest = CameraInfo()
        self._lens: tuple[Any, tuple[int, int], Lens | None] = None, (0, 0), None
        self.topic = topic = topic or camera_info_topic(node, image_topic)
        qos = overridden(node, Subscription, topic, CALIBRATIONS)
        made = node.create_subscription(CameraInfo, topic, self._keep, qos)
        node.own(node.while_active, node.destroy_subscription, made)

    def with_lens(self, frame: Frame) -> Frame:
        """Return a raw image with its lens; raise BadFrameError without a calibration of it."""
        info, wh, lens = self._lens
        if info is not self.newest or wh != frame.wh:
            info, wh = self.newest, frame.wh
            intrinsics_of(info, self.topic, wh)
            found = lens_of(info, self.topic)
            # The same object for the same lens, which is compared per image.
            if found != lens:
                self._refuse_blind(found, wh)
                lens = found
            self._lens = info, wh, lens
        return frame if lens is None else frame.with_lens(lens)

    def _refuse_blind(self, lens: Lens | None, wh: tuple[int, int]) -> None:
        if lens is not None and not lens.covers(wh).any():
            raise BadFrameError(
                'bad calibration',
                f'An image rectified by {self.topic} shows nothing of the raw one.',
                cause='K, D, R and P do not belong together.',
                remedy=f'Calibrate the camera, or correct the publisher of {self.topic}.',
            )

    def _keep(self, info: CameraInfo) -> None:
        self.newest = info


def camera_info_topic(node: Node, image_topic: str = 'image') -> str:
    """Return the CameraInfo topic of an image topic; both may be remapped."""
    name = image_topic[: image_topic.rfind('/') + 1] + 'camera_info'
    remapped = node.resolve_topic_name(name)
    if remapped != node.resolve_topic_name(name, only_expand=True):
        return remapped
    return node.resolve_topic_name(image_topic).rpartition('/')[0] + '/camera_info'


def _size(values: dict, name: str) -> int:
    size = int(values[name])
    if not 0 < size < 1 << 32:  # rclpy checks types and ranges in debug builds only.
        raise ValueError(f'{name} is {size}')
    return size


def _floats(values: dict, name: str, count: int | None = None) -> list[float]:
    numbers = [float(value) for value in values[name]['data']]
    if count is not None and len(numbers) != count:
        raise ValueError(f'{name} has {len(numbers)} numbers, not {count}')
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f'{name} has numbers that are not finite')
    return numbers
