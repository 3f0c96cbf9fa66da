"""Recordings written by rosbags."""

from pathlib import Path

import cv2
import numpy as np
from rosbags.rosbag2 import CompressionFormat, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

STORE = get_typestore(Stores.ROS2_JAZZY)
for name in ('foxglove_msgs/msg/CompressedVideo', 'ffmpeg_image_transport_msgs/msg/FFMPEGPacket'):
    path = Path(__file__).parents[2] / 'standalone/interfaces' / f'{name}.msg'
    STORE.register(get_types_from_msg(path.read_text(), name))
START_NS = 1_700_000_000_000_000_000
STEP_NS = 100_000_000


def header(index: int, frame_id='camera'):
    """Return a std_msgs/Header stamped 1 ms before the time of recording."""
    time = STORE.types['builtin_interfaces/msg/Time']
    stamp_ns = START_NS + index * STEP_NS - 1_000_000
    return STORE.types['std_msgs/msg/Header'](
        stamp=time(sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9), frame_id=frame_id
    )


def raw_image(index: int, pixels: np.ndarray, encoding='bgr8'):
    height, width = pixels.shape[:2]
    return STORE.types['sensor_msgs/msg/Image'](
        header=header(index),
        height=height,
        width=width,
        encoding=encoding,
        is_bigendian=0,
        step=pixels[0].nbytes,
        data=np.ascontiguousarray(pixels).reshape(-1).view(np.uint8),
    )


def compressed_image(index: int, pixels: np.ndarray, encoding='bgr8'):
    return STORE.types['sensor_msgs/msg/CompressedImage'](
        header=header(index),
        format=f'{encoding}; png compressed {encoding}',
        data=cv2.imencode('.png', pixels)[1],
    )


def video_packet(index: int, data: np.ndarray, codec: str, pts: int | None = None):
    """Return a CompressedVideo, or with `pts` an FFMPEGPacket; `index` is that of its picture."""
    if pts is None:
        return STORE.types['foxglove_msgs/msg/CompressedVideo'](
            timestamp=header(index).stamp, frame_id='camera', data=data, format=codec
        )
    return STORE.types['ffmpeg_image_transport_msgs/msg/FFMPEGPacket'](
        header=header(index),
        width=0,
        height=0,
        encoding=f'{codec};yuv420p;bgr8;bgr8',
        pts=pts,
        flags=0,
        is_bigendian=False,
        data=data,
    )


def text_message(text: str):
    return STORE.types['std_msgs/msg/String'](data=text)


def write_recording(folder: Path, messages, storage='mcap', qos=None, compression=None) -> Path:
    """
    Write (topic, index, message) at START_NS + index * STEP_NS.

    :param qos: lists of QoS profiles by topic.
    :param compression: a CompressionMode of rosbags, with zstd.
    :returns: the folder, which also holds the one file FOLDER/NAME.mcap or .db3.
    """
    plugin = StoragePlugin.MCAP if storage == 'mcap' else StoragePlugin.SQLITE3
    writer = Writer(folder, version=9, storage_plugin=plugin)
    if compression is not None:
        writer.set_compression(compression, CompressionFormat.ZSTD)
    with writer:
        connections = {}
        for topic, index, message in messages:
            kind = message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(
                    topic, kind, typestore=STORE, offered_qos_profiles=(qos or {}).get(topic, ())
                )
            writer.write(
                connections[topic], START_NS + index * STEP_NS, STORE.serialize_cdr(message, kind)
            )
    return folder


def storage_file(folder: Path) -> Path:
    """Return the one .mcap or .db3 file of a recording."""
    (path,) = (each for each in folder.iterdir() if each.suffix in ('.mcap', '.db3'))
    return path
