"""Results as the serialized messages that the nodes would publish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
import struct
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.ros.dds.cdr import ENCAPSULATION, ImageWriter, append_number, append_text
from trt_ros.ros.dds.cdr_detections import DetectionWriter
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.decoders.registry import (
    CLASSIFIERS,
    DEPTHS,
    DETECTORS,
    ORIENTED,
    POSES,
    SEGMENTERS,
)
from trt_ros.vision.decoders.semantic import MaskHeads
from trt_ros.vision.keypoints import NAMES, keypoint_boxes
from trt_ros.vision.labels import name_of
from trt_ros.vision.results import mask_dtype

DETECTIONS, IMAGE = 'vision_msgs/msg/Detection2DArray', 'sensor_msgs/msg/Image'
CLASSIFICATION = 'vision_msgs/msg/Classification'

_FAMILIES_BY_NODE: dict[str, tuple[Any, ...]] = {
    'detector': (*DETECTORS, *ORIENTED),
    'classifier': CLASSIFIERS,
    'segmenter': SEGMENTERS,
    'pose': POSES,
    'depth': DEPTHS,
}
_KEYPOINT_THRESHOLD = 0.5  # The defaults of the nodes.
_MAX_CLASSES = 5


@dataclass(frozen=True)
class ImageHeader:
    """
    Header and size of an image.

    :param stamp: seconds, nanoseconds.
    """

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
        self.node = next(
            (
                node
                for node, families in _FAMILIES_BY_NODE.items()
                if name in (family.name for family in families)
            ),
            '',
        )
        if not self.node or isinstance(head, MaskHeads):
            raise ParameterError(
                f'The results of decoder {name} cannot be written to a recording.',
                cause='' if self.node else 'They are tensors.',
                remedy='Choose one output with --outputs.'
                if self.node
                else 'Choose a network of another task, such as detection or segmentation.',
            )
        self._names = pipeline.class_names
        self._detections = DetectionWriter(self._names)
        self._images: dict[str, ImageWriter] = {}
        self._is_wide = False
        self.topics = {
            'detector': {'detections': DETECTIONS},
            'classifier': {'classification': CLASSIFICATION},
            'segmenter': {'mask': IMAGE},
            'pose': {'detections': DETECTIONS, 'keypoints': DETECTIONS},
            'depth': {'depth': IMAGE},
        }[self.node]
        if self.node == 'pose':
            count = getattr(head, 'keypoint_count', None)
            self._keypoints = DetectionWriter(NAMES.get(count or 0, ()))
        self._has_instances = head.finds_instances
        if self._has_instances:
            classes = pipeline.decoder.class_count or len(self._names)
            self._is_wide = not classes or mask_dtype(classes + 1) is np.uint16
            self.topics = {'mask': IMAGE, 'instances': IMAGE, 'detections': DETECTIONS}

    def write(self, result: Any, header: ImageHeader) -> Iterator[tuple[str, memoryview]]:
        """Yield topic and serialized message; a message is valid until the next one."""
        if self.node == 'classifier':
            yield 'classification', self._classification(result, header)
        elif self.node == 'depth':
            yield 'depth', self._image('depth', header, '32FC1', result.values)
        elif self.node == 'detector':
            yield 'detections', self._boxes(self._detections, result, header)
        elif self.node == 'pose':
            yield 'detections', self._boxes(self._detections, result.detections, header)
            points, indices = keypoint_boxes(result, _KEYPOINT_THRESHOLD)
            yield 'keypoints', self._boxes(self._keypoints, points, header, indices)
        elif self._has_instances:
            dtype = np.uint16 if self._is_wide else np.uint8
            labels = result.paint((result.detections.labels + 1).astype(dtype))
            yield 'mask', self._mask('mask', header, labels)
            numbers = result.paint(np.arange(1, len(result) + 1, dtype=np.uint16))
            yield 'instances', self._image('instances', header, 'mono16', numbers)
            yield 'detections', self._boxes(self._detections, result.detections, header)
        else:
            yield 'mask', self._mask('mask', header, result.labels)

    def _boxes(
        self,
        writer: DetectionWriter,
        found: Any,
        header: ImageHeader,
        ids: np.ndarray | None = None,
    ) -> memoryview:
        return writer.write(
            found, header.stamp, header.frame_id, class_id_format='name', ids=ids
        ).data

    def _mask(self, topic: str, header: ImageHeader, labels: np.ndarray) -> memoryview:
        encoding = 'mono8' if labels.dtype == np.uint8 else 'mono16'
        return self._image(topic, header, encoding, labels)

    def _image(
        self, topic: str, header: ImageHeader, encoding: str, values: np.ndarray
    ) -> memoryview:
        dtype = np.dtype({'mono8': 'u1', 'mono16': '<u2', '32FC1': '<f4'}[encoding])
        writer = self._images.setdefault(topic, ImageWriter())
        pixels = writer.begin(
            header.stamp, header.frame_id, header.wh, encoding, channels=dtype.itemsize
        )
        pixels[:] = np.ascontiguousarray(values, dtype)[..., None].view(np.uint8)
        return writer.message.data

    def _classification(self, result: Any, header: ImageHeader) -> memoryview:
        message = bytearray(ENCAPSULATION + struct.pack('<iI', *header.stamp))
        append_text(message, header.frame_id)
        best = result.top(_MAX_CLASSES)
        append_number(message, len(best))
        for label, score in zip(best.tolist(), result.scores[best].tolist()):
            append_text(message, name_of(self._names, label))
            message += bytes(-(len(message) - len(ENCAPSULATION)) % 8)
            message += struct.pack('<d', score)
        return memoryview(message)
