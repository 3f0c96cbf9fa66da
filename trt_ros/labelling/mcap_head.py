"""The start of an MCAP file of results: provenance, definitions, attachments."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
import json
import struct
from typing import Any

from mcap import records
from mcap.data_stream import ReadDataStream, RecordBuilder

from trt_ros.labelling.provenance import changed_values
from trt_ros.recording.mcap_file import ATTACHMENT, MAGIC
from trt_ros.recording.messages import Attachment, RecordedTopic

_STAMPED = 'std_msgs/Header header\n'
_FIELDS = {
    'builtin_interfaces/Time': 'int32 sec\nuint32 nanosec\n',
    'std_msgs/Header': 'builtin_interfaces/Time stamp\nstring frame_id\n',
    'geometry_msgs/Point': 'float64 x\nfloat64 y\nfloat64 z\n',
    'geometry_msgs/Quaternion': 'float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1\n',
    'geometry_msgs/Pose': 'geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n',
    'geometry_msgs/PoseWithCovariance': 'geometry_msgs/Pose pose\nfloat64[36] covariance\n',
    'vision_msgs/Point2D': 'float64 x\nfloat64 y\n',
    'vision_msgs/Pose2D': 'vision_msgs/Point2D position\nfloat64 theta\n',
    'vision_msgs/BoundingBox2D': ('vision_msgs/Pose2D center\nfloat64 size_x\nfloat64 size_y\n'),
    'vision_msgs/ObjectHypothesis': 'string class_id\nfloat64 score\n',
    'vision_msgs/ObjectHypothesisWithPose': (
        'vision_msgs/ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose\n'
    ),
    'vision_msgs/Detection2D': (
        _STAMPED + 'vision_msgs/ObjectHypothesisWithPose[] results\n'
        'vision_msgs/BoundingBox2D bbox\nstring id\n'
    ),
    'vision_msgs/Detection2DArray': _STAMPED + 'vision_msgs/Detection2D[] detections\n',
    'vision_msgs/Classification': _STAMPED + 'vision_msgs/ObjectHypothesis[] results\n',
    'sensor_msgs/Image': (
        _STAMPED + 'uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\n'
        'uint32 step\nuint8[] data\n'
    ),
}


def definition_of(message_type: str) -> bytes:
    """Return the definition of 'PACKAGE/msg/NAME' with those of its parts, as 'ros2msg'."""
    root = message_type.replace('/msg/', '/')
    names = [root]
    for name in names:  # Grows meanwhile.
        for line in _FIELDS[name].splitlines():
            kind = line.split(' ')[0].partition('[')[0]
            if kind in _FIELDS and kind not in names:
                names.append(kind)
    separator = '=' * 80
    parts = [f'{separator}\nMSG: {name}\n{_FIELDS[name]}' for name in names[1:]]
    return ''.join([_FIELDS[root], *parts]).encode()


PROVENANCE = 'trt_ros'  # Name of the metadata record.


class McapHead:
    """The bytes before the messages, equal for equal arguments, and their summary."""

    def __init__(
        self,
        topics: Sequence[RecordedTopic],
        provenance: Mapping[str, Any],
        attachments: Iterable[Attachment],
    ) -> None:
        self._provenance = provenance
        values = {name: json.dumps(value, sort_keys=True) for name, value in provenance.items()}
        metadata = record_bytes(records.Metadata(PROVENANCE, values))
        data = bytearray(MAGIC + record_bytes(records.Header('ros2', 'trt_ros')))
        index: list[Any] = [records.MetadataIndex(len(data), len(metadata), PROVENANCE)]
        definitions = _definitions(topics)
        data += metadata + definitions
        for each in attachments:
            record = struct.pack('<BQ', each.opcode, len(each.content)) + each.content
            entry = _index(each, len(data), len(record))
            if entry.name != 'rosbag2':  # It counts the messages of the input.
                index.append(entry)
                data += record
        self.data, self.summary = bytes(data), definitions + b''.join(map(record_bytes, index))
        self.schema_count = len({(each.message_type, each.definition) for each in topics})
        self.metadata_count = sum(isinstance(each, records.MetadataIndex) for each in index)
        self.attachment_count = len(index) - self.metadata_count

    def difference(self, start: bytes) -> str:
        """Return how the provenance in the start of another file differs; '' if unknown."""
        old = dict[str, Any]()
        with suppress(Exception):  # Of any bytes.
            stream = ReadDataStream(BytesIO(start[len(MAGIC) :]))
            stream.read(1 + 8 + struct.unpack_from('<Q', start, len(MAGIC) + 1)[0] + 9)
            metadata = records.Metadata.read(stream).metadata
            old = {name: json.loads(text) for name, text in metadata.items()}
        return changed_values(old, self._provenance if old else {})


def record_bytes(record: Any) -> bytes:
    """Return a record of the package mcap as the bytes of a file."""
    builder = RecordBuilder()
    record.write(builder)
    return bytes(builder.end())  # type: ignore[no-untyped-call]


def _definitions(topics: Sequence[RecordedTopic]) -> bytes:
    schemas = dict[tuple[str, bytes], int]()
    data = b''
    for number, each in enumerate(topics, 1):
        key = each.message_type, each.definition
        if key not in schemas:
            schemas[key] = len(schemas) + 1
            schema = records.Schema(
                schemas[key], each.definition, each.schema_encoding, each.message_type
            )
            data += record_bytes(schema)
        metadata = dict(each.metadata)
        data += record_bytes(
            records.Channel(number, each.name, each.encoding, metadata, schemas[key])
        )
    return data


def _index(each: Attachment, offset: int, nbytes: int) -> Any:
    stream = ReadDataStream(BytesIO(each.content))
    if each.opcode != ATTACHMENT:
        return records.MetadataIndex(offset, nbytes, records.Metadata.read(stream).name)
    found = records.Attachment.read(stream)
    times, names = (found.log_time, found.create_time), (found.name, found.media_type)
    return records.AttachmentIndex(offset, nbytes, *times, len(found.data), *names)
