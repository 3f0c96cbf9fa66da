"""CDR serialization of detections, written by NumPy and read in place."""

from collections.abc import Sequence
import itertools
import struct

import numpy as np

from trt_ros.results.boxes import Objects
from trt_ros.results.labels import name_of
from trt_ros.ros.dds import cdr
from trt_ros.ros.dds.memory import Pool

# From its score on, a vision_msgs/Detection2D with one result is 49 doubles and an id: score;
# pose: position 3, orientation 4, covariance 36; box: center x, y, theta, width, height.
_DOUBLES = np.zeros(49, '<f8')
_DOUBLES[7] = 1.0  # w of the orientation, as the message's own default.
_BOX = -5 * 8  # Where the box begins, in bytes from the end of the doubles.
_NO_ID = struct.pack('<I4x', 1)
# Offsets of the score and the columns of rotated_boxes(), in doubles from the end of the doubles.
_SCORE_AND_BOX = np.array([-49, -5, -4, -2, -1, -3])

_LAYOUTS_KEPT = 32
_MAX_CLASSES_NBYTES = 1 << 20  # Of a layout; 2000 classes.

#: Class id, score, box (center x, y, angle, width, height) and id, as in the message.
Entry = tuple[str, float, tuple[float, ...], str]


def read_detections(message: np.ndarray) -> list[Entry]:
    """Read the highest-scoring result of each detection, '' and 0 without; see read_image()."""
    fields = cdr.Fields(message)
    fields.stamp()
    fields.text('frame_id')
    return [_read_detection(fields) for _ in range(fields.number('detections'))]


def _read_detection(fields: cdr.Fields) -> Entry:
    fields.numbers('stamp', 'I', 2)
    fields.text('frame_id')
    results = [
        (fields.text('class_id'), fields.numbers('score and pose', 'd', 44)[0])
        for _ in range(fields.number('results'))
    ]
    # NaN only if there is no other score.
    class_id, score = max(
        results, key=lambda result: (result[1] == result[1], result[1]), default=('', 0.0)
    )
    box = fields.numbers('bbox', 'd', 5)
    return class_id, score, box, fields.text('id')


class DetectionWriter:
    """
    A writer of serialized vision_msgs/Detection2DArray messages.

    The constant bytes of each class are cached, and the numbers are filled in. Each message reuses
    the memory of the previous one, unless that is still referenced.
    """

    def __init__(self) -> None:
        self._class_names: Sequence[str] = ()
        self._pool = Pool()
        # By frame_id and class_id_format: the bytes before the first detection, and those of a
        # detection up to its id, by its beginning (0 or 4 bytes after a multiple of 8) and label.
        # They have zeros in place of numbers, and end at a multiple of 8.
        self._layouts: dict[tuple[str, str], tuple[bytes, dict[int, _ByLabel]]] = {}

    def write(
        self, found: Objects, stamp: cdr.Stamp, frame_id: str, *, class_id_format: str
    ) -> np.ndarray:
        """Serialize the boxes of objects, best score first, to (N,) uint8."""
        if found.class_names is not self._class_names:
            self._layouts.clear()
            self._class_names = found.class_names
        key = frame_id, class_id_format
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= _LAYOUTS_KEPT:  # The frame_id changes with every image.
                self._layouts.clear()
            names = self._class_names if class_id_format == 'name' else ()
            start = cdr.begin_message((0, 0), frame_id)
            cdr.append_aligned(start, 'I', 0)
            by_label = {offset: _ByLabel(frame_id, names, offset) for offset in (0, 4)}
            layout = self._layouts[key] = bytes(start), by_label
        head, by_offset = layout
        count, classes = len(found), found.region_classes(class_id_format)
        places = _SCORE_AND_BOX[None].repeat(count, axis=0)
        id_fields = list(map(_id_field, found.ids_as_text())) or [_NO_ID] * count
        parts = [head]
        offset = (len(head) - 4) % 8
        for i, (label, id_field) in enumerate(zip(found.labels.tolist(), id_fields)):
            more = classes[i] if classes else ()
            part = by_offset[offset][label, len(more)]
            if more:
                results = b''.join(itertools.starmap(_result, more))
                part = part[:_BOX] + results + part[_BOX:]
                places[i, 0] -= len(results) // 8
            parts += part, id_field
            offset = len(id_field) % 8
        # The block begins 4 bytes before the message, which aligns its doubles in memory.
        text = b''.join(parts)
        raw = self._pool.take((4 + len(text) + 7) // 8 * 8)
        message = raw[4 : 4 + len(text)]
        message.data[:] = text
        cdr.STAMP.pack_into(message.data, len(cdr.ENCAPSULATION), *stamp)
        if not count:
            return message
        block, words = raw.view('<f8'), raw.view('<u4')
        words[len(head) // 4] = count
        ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts))) + 4
        starts, doubles_end = ends[:-1:2] // 4, ends[1::2] // 8
        words[starts], words[starts + 1] = stamp[0] & 0xFFFFFFFF, stamp[1]
        values = np.empty((count, 6))
        values[:, 0] = found.scores
        values[:, 1:] = found.rotated_boxes()
        block[doubles_end[:, None] + places] = values
        # The padding of the last id does not belong to the message.
        id_nbytes = 4 + int.from_bytes(id_fields[-1][:4], 'little')
        return message[: len(text) - len(id_fields[-1]) + id_nbytes]


def _result(name: str, score: float) -> bytes:
    result = bytearray()
    cdr.append_text(result, name)
    result += bytes(-len(result) % 8)
    return bytes(result) + struct.pack('<d', score) + _DOUBLES[1:44].tobytes()


def _id_field(identity: str) -> bytes:
    text = identity.encode() + b'\0'
    return struct.pack('<I', len(text)) + text + bytes(-len(text) % 4)


class _ByLabel(dict[tuple[int, int], bytes]):
    """By label and number of further results, which are inserted before the box."""

    nbytes = 0

    def __init__(self, frame_id: str, class_names: Sequence[str], offset: int) -> None:
        self._frame_id, self._class_names, self._offset = frame_id, class_names, offset

    def __missing__(self, key: tuple[int, int]) -> bytes:
        label, more = key
        detection = bytearray(self._offset + 8)
        cdr.append_text(detection, self._frame_id)
        cdr.append_aligned(detection, 'I', 1 + more)
        cdr.append_text(detection, name_of(self._class_names, label))
        detection += bytes(-len(detection) % 8)
        detection += _DOUBLES.tobytes()
        part = bytes(detection[self._offset :])
        if self.nbytes + len(part) > _MAX_CLASSES_NBYTES:  # The classes change with every image.
            self.clear()
            self.nbytes = 0
        self.nbytes += len(part)
        self[key] = part
        return part
