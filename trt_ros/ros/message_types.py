"""Message types by their names."""

from importlib import import_module
import re
from typing import Any

from trt_ros.errors import ParameterError

_NAME = re.compile(r'[a-z][a-z0-9_]*/msg/[A-Z][A-Za-z0-9]*')


def message_class(name: str, remedy: str = '') -> Any:
    """Return the class of 'sensor_msgs/msg/Imu'; raise ParameterError if it is not installed."""
    if not _NAME.fullmatch(name):
        raise ParameterError(
            f'{name!r} is no message type.', remedy='Write it like sensor_msgs/msg/Imu.'
        )
    package, _, kind = name.partition('/msg/')
    try:
        return getattr(import_module(f'{package}.msg'), kind)
    except (ImportError, AttributeError) as error:
        raise ParameterError(
            f'The message type {name} is not installed.',
            cause=str(error),
            remedy=remedy or f'Correct it, or install and source the package {package}.',
        ) from error
