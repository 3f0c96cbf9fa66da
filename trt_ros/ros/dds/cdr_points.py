"""CDR serialization of point clouds, written in place."""

import numpy as np

from trt_ros.ros.dds.cdr import ENCAPSULATION, append_number, append_text
from trt_ros.ros.dds.memory import Pool

#: Values of sensor_msgs/PointField.
UINT32, FLOAT32 = 6, 7
XYZ = (('x', FLOAT32), ('y', FLOAT32), ('z', FLOAT32))


class PointWriter:
    """
    A writer of serialized sensor_msgs/PointCloud2 messages, whose fields have 4 bytes each.

    Each message reuses the memory of the previous one, unless that is still referenced.

    :param fields: name and data type of the fields, XYZ first.
    """

    def __init__(self, fields: tuple[tuple[str, int], ...]) -> None:
        self._fields, self._pool = fields, Pool()
        self.message: np.ndarray = np.empty(0, np.uint8)

    def begin(
        self, stamp: tuple[int, int], frame_id: str, cloud_wh: tuple[int, int]
    ) -> np.ndarray:
        """Write all fields but the points; return these, (height, width, fields), to fill."""
        width, height = cloud_wh
        head = self._head(stamp, frame_id, cloud_wh)
        nbytes = 4 * len(self._fields) * width * height
        self.message = self.message[:0]  # Frees the memory of the last one.
        pad = -len(head) % 16  # Aligns the points in memory.
        raw = self._pool.take(pad + len(head) + nbytes + 1)
        self.message = message = raw[pad:]
        message[: len(head)] = np.frombuffer(head, np.uint8)
        message[-1] = 0  # is_dense: NaN may occur.
        return np.ndarray(
            (height, width, len(self._fields)), np.dtype('<f4'), raw, pad + len(head)
        )

    def _head(self, stamp: tuple[int, int], frame_id: str, cloud_wh: tuple[int, int]) -> bytearray:
        width, height = cloud_wh
        head = bytearray(ENCAPSULATION)
        for number in stamp:
            append_number(head, number & 0xFFFFFFFF)
        append_text(head, frame_id)
        append_number(head, height)
        append_number(head, width)
        append_number(head, len(self._fields))
        for offset, (name, datatype) in enumerate(self._fields):
            append_text(head, name)
            append_number(head, 4 * offset)
            head.append(datatype)
            append_number(head, 1)
        head.append(0)  # is_bigendian
        step = 4 * len(self._fields)
        append_number(head, step)
        append_number(head, step * width)
        append_number(head, step * width * height)
        return head
