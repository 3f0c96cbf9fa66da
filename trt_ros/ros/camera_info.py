"""A camera's calibration: as camera_calibration writes it, and as it comes beside images."""

from __future__ import annotations

from pathlib import Path

from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Header
import yaml

from trt_ros.errors import ParameterError
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.qos import overridden


def load_calibration(path: str) -> CameraInfo:
    """
    Read a calibration file.

    :raises ParameterError: when it cannot be read, or is no calibration.
    """
    try:
        values = yaml.safe_load(Path(path).expanduser().read_text())
        return CameraInfo(
            width=values['image_width'], height=values['image_height'],
            distortion_model=values['distortion_model'],
            d=_floats(values, 'distortion_coefficients'),
            k=_floats(values, 'camera_matrix', 9), r=_floats(values, 'rectification_matrix', 9),
            p=_floats(values, 'projection_matrix', 12))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError,
            ValueError) as error:
        raise ParameterError(
            f'The calibration {path!r} cannot be used.', cause=repr(error),
            remedy='Give a YAML file as camera_calibration writes it.') from error


def camera_info_for(
        calibration: CameraInfo | None, header: Header, image_wh: tuple[int, int]) -> CameraInfo:
    """
    Say how the camera of one image projects.

    :returns: the calibration under the image's header. Where there is none for an image of this
        size, K is all zeros, which means uncalibrated.
    """
    if calibration is None or (calibration.width, calibration.height) != image_wh:
        return CameraInfo(header=header, width=image_wh[0], height=image_wh[1])
    return CameraInfo(
        header=header, width=calibration.width, height=calibration.height,
        distortion_model=calibration.distortion_model, d=calibration.d, k=calibration.k,
        r=calibration.r, p=calibration.p)


class CameraInfoStream:
    """
    The newest calibration that comes beside the images of a topic; takes from now until close().

    Its topic is `camera_info` in the images' own namespace, unless that is remapped.
    """

    def __init__(self, node: ManagedNode, image_topic: str = 'image') -> None:
        self._node, self._newest = node, CameraInfo()
        topic = camera_info_topic(node, image_topic)
        # Best effort takes from any publisher.
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._subscription = node.create_subscription(
            CameraInfo, topic, self._keep, overridden(node, Subscription, topic, qos))

    def close(self) -> None:
        self._node.between_callbacks(
            lambda: self._node.destroy_subscription(self._subscription))

    def info_for(self, header: Header, image_wh: tuple[int, int]) -> CameraInfo | None:
        """Return the calibration under an image's header; None where none fits its size."""
        newest = self._newest
        if (newest.width, newest.height) != image_wh:
            return None
        return CameraInfo(
            header=header, width=newest.width, height=newest.height,
            distortion_model=newest.distortion_model, d=newest.d, k=newest.k, r=newest.r,
            p=newest.p, binning_x=newest.binning_x, binning_y=newest.binning_y, roi=newest.roi)

    def _keep(self, info: CameraInfo) -> None:
        self._newest = info


def camera_info_topic(node: Node, image_topic: str = 'image') -> str:
    """Name the topic of calibrations beside a topic of images; both may be remapped."""
    name = image_topic[:image_topic.rfind('/') + 1] + 'camera_info'
    remapped = node.resolve_topic_name(name)
    if remapped != node.resolve_topic_name(name, only_expand=True):
        return remapped
    return node.resolve_topic_name(image_topic).rpartition('/')[0] + '/camera_info'


def _floats(values: dict, name: str, count: int | None = None) -> list[float]:
    numbers = [float(value) for value in values[name]['data']]
    if count is not None and len(numbers) != count:
        raise ValueError(f'{name} has {len(numbers)} numbers, not {count}')
    return numbers
