"""Results as the serialized messages that the nodes would publish."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.families.mismatches import TASKS
from trt_ros.results.arrays import Depth
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.results.classes import Classification
from trt_ros.results.labels import name_of
from trt_ros.results.masks import ClassMask, Instances, mask_dtype
from trt_ros.results.poses import NAMES, Poses
from trt_ros.ros.dds.cdr import ImageWriter, append_aligned, append_text, begin_message
from trt_ros.ros.dds.cdr_detections import DetectionWriter
from trt_ros.runtime.pipeline import Pipeline

DETECTIONS, IMAGE = 'vision_msgs/msg/Detection2DArray', 'sensor_msgs/msg/Image'
CLASSIFICATION = 'vision_msgs/msg/Classification'

_KEYPOINT_THRESHOLD = 0.5  # The defaults of the nodes.
MAX_CLASSES = 5
_TOPICS = {
    'detector': {'detections': DETECTIONS},
    'classifier': {'classification': CLASSIFICATION},
    'segmenter': {'mask': IMAGE},
    'pose': {'detections': DETECTIONS, 'keypoints': DETECTIONS},
    'depth': {'depth': IMAGE},
}


@dataclass(frozen=True)
class ImageHeader:
    """Header and size of an image; `stamp`: seconds, nanoseconds."""

    stamp: tuple[int, int]
    frame_id: str
    wh: tuple[int, int]


class ResultMessages:
    """
    A converter of the results of a pipeline to messages.

    :raises ParameterError: when the results have no messages, or several masks.
    :ivar node: name of the node that would publish them, as in 'detector'.
    :ivar topics: message type by topic below the node's name.
    """

    def __init__(self, pipeline: Pipeline[Any]) -> None:
        name, head = pipeline.decoder.name, pipeline.decoder.head
        self.node = TASKS[pipeline.decoder.task].node
        has_topics = self.node in _TOPICS
        if not has_topics or len(head.classes_by_output) > 1:
            raise ParameterError(
                f'The results of decoder {name} cannot be written to a recording.',
                cause='' if has_topics else 'They are tensors.',
                remedy='Choose one output with --outputs.'
                if has_topics
                else 'Choose a network of another task, such as detection or segmentation.',
            )
        self._detections, self._keypoints = DetectionWriter(), DetectionWriter()
        self._images: dict[str, ImageWriter] = {}
        self.topics = _TOPICS[self.node]
        self._keypoint_names = NAMES.get(head.keypoint_count or 0, ())
        if head.finds_instances:
            classes = pipeline.decoder.class_count or len(pipeline.class_names)
            self._mask_dtype = mask_dtype(classes + 1) if classes else np.uint16
            self.topics = {'mask': IMAGE, 'instances': IMAGE, 'detections': DETECTIONS}

    @singledispatchmethod
    def write(self, result: Result, header: ImageHeader) -> Iterator[tuple[str, memoryview]]:
        """Yield topic and serialized message; a message is valid until the next one."""
        raise NotImplementedError

    @write.register
    def _(self, result: Objects, header: ImageHeader) -> Iterator[tuple[str, memoryview]]:
        yield 'detections', self._boxes(self._detections, result, header)

    @write.register
    def _(self, result: Poses, header: ImageHeader) -> Iterator[tuple[str, memoryview]]:
        yield 'detections', self._boxes(self._detections, result, header)
        points = result.keypoint_boxes(_KEYPOINT_THRESHOLD, self._keypoint_names)
        yield 'keypoints', self._boxes(self._keypoints, points, header)

    @write.register
    def _(self, result: Instances, header: ImageHeader) -> Iterator[tuple[str, memoryview]]:
        [mask] = result.class_masks(self._mask_dtype)
        yield from self.write(mask, header)
        yield 'instances', self._image('instances', header, result.numbers())
        yield 'detections', self._boxes(self._detections, result, header)

    @write.register
    def _(self, result: ClassMask, header: ImageHeader) -> Iterator[tuple[str, memoryview]]:
        yield 'mask', self._image('mask', header, result.labels)

    @write.register
    def _(self, result: Depth, header: ImageHeader) -> Iterator[tuple[str, memoryview]]:
        yield 'depth', self._image('depth', header, result.values)

    @write.register
    def _(self, result: Classification, header: ImageHeader) -> Iterator[tuple[str, memoryview]]:
        message = begin_message(header.stamp, header.frame_id)
        best = result.top(MAX_CLASSES)
        append_aligned(message, 'I', len(best))
        for label, score in zip(best.tolist(), result.scores[best].tolist()):
            append_text(message, name_of(result.class_names, label))
            append_aligned(message, 'd', score)
        yield 'classification', memoryview(message)

    def _boxes(self, writer: DetectionWriter, found: Objects, header: ImageHeader) -> memoryview:
        message = writer.write(found, header.stamp, header.frame_id, class_id_format='name')
        return message.data

    def _image(self, topic: str, header: ImageHeader, values: np.ndarray) -> memoryview:
        encoding = {'u1': 'mono8', 'u2': 'mono16', 'f4': '32FC1'}[values.dtype.str[1:]]
        writer = self._images.setdefault(topic, ImageWriter())
        pixels = writer.begin(
            header.stamp, header.frame_id, header.wh, encoding, channels=values.dtype.itemsize
        )
        little_endian = values.dtype.newbyteorder('<')
        pixels[:] = np.ascontiguousarray(values, little_endian)[..., None].view(np.uint8)
        return writer.message.data
