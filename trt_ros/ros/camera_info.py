"""A camera's calibration, as camera_calibration writes it to YAML."""

from __future__ import annotations

from pathlib import Path

from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Header
import yaml

from trt_ros.errors import ParameterError


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


def _floats(values: dict, name: str, count: int | None = None) -> list[float]:
    numbers = [float(value) for value in values[name]['data']]
    if count is not None and len(numbers) != count:
        raise ValueError(f'{name} has {len(numbers)} numbers, not {count}')
    return numbers
