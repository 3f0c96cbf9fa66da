"""Topics and messages of recordings, whatever their format."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trt_ros.errors import BadFrameError


@dataclass(frozen=True)
class RecordedTopic:
    """
    A topic of a recording.

    :param message_type: as in 'sensor_msgs/msg/Image'.
    :param count: number of its messages.
    :param schema_encoding: 'ros2msg', 'ros2idl' or another, or '' without a definition.
    :param definition: of the message, as that encoding has it.
    :param metadata: of its MCAP channel, such as `offered_qos_profiles`.
    :param encoding: of its messages.
    """

    name: str
    message_type: str
    count: int = 0
    schema_encoding: str = ''
    definition: bytes = b''
    metadata: Mapping[str, str] = field(default_factory=dict)
    encoding: str = 'cdr'


class RecordedMessage(NamedTuple):
    """A message of a recording: (N,) uint8, at a time that is negative before 1970."""

    topic: str
    time_ns: int
    data: np.ndarray
    publish_ns: int
    sequence: int


class Attachment(NamedTuple):
    """A file or metadata within a recording, as a record of MCAP: its opcode and content."""

    opcode: int
    content: bytes


def int64(value: int) -> int:
    """Return the signed number of 64 bits, as rosbag2 writes times before 1970."""
    return value - (1 << 64) if value >> 63 else value


def damaged(cause: str) -> BadFrameError:
    """Return an error of the content of a recording."""
    return BadFrameError('damaged recording', cause)
