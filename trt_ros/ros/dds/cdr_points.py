"""CDR serialization of point clouds, written in place."""

import numpy as np

from trt_ros.ros.dds.cdr import Stamp, append_aligned, append_text, begin_message
from trt_ros.ros.dds.memory import Pool

#: Values of sensor_msgs/PointField.
UINT32, FLOAT32 = 6, 7
#: Name, data type and number of values.
Field = tuple[str, int, int]
XYZ: tuple[Field, ...] = (('x', FLOAT32, 1), ('y', FLOAT32, 1), ('z', FLOAT32, 1))


class PointWriter:
    """
    A writer of serialized sensor_msgs/PointCloud2 messages, whose values have 4 bytes each.

    Each message reuses the memory of the previous one, unless that is still referenced.

    :param fields: XYZ first.
    """

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self._fields, self._pool = fields, Pool()
        self.message: np.ndarray = np.empty(0, np.uint8)

    def begin(self, stamp: Stamp, frame_id: str, cloud_wh: tuple[int, int]) -> np.ndarray:
        """Write all fields but the points; return these, (height, width, values), to fill."""
        width, height = cloud_wh
        head = begin_message(stamp, frame_id)
        append_aligned(head, 'I', height, width, len(self._fields))
        offset = 0
        for name, datatype, count in self._fields:
            append_text(head, name)
            append_aligned(head, 'I', offset)
            head.append(datatype)
            append_aligned(head, 'I', count)
            offset += 4 * count
        head.append(0)  # is_bigendian
        nbytes = offset * width * height
        append_aligned(head, 'I', offset, offset * width, nbytes)
        self.message = self.message[:0]  # Frees the memory of the last one.
        pad = -len(head) % 16  # Aligns the points in memory.
        raw = self._pool.take(pad + len(head) + nbytes + 1)
        self.message = message = raw[pad:]
        message[: len(head)] = np.frombuffer(head, np.uint8)
        message[-1] = 0  # is_dense: NaN may occur.
        return np.ndarray((height, width, offset // 4), np.dtype('<f4'), raw, pad + len(head))
