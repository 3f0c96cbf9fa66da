"""Node for semantic and instance segmentation of images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from std_msgs.msg import Header

from trt_ros.families.registry import SEGMENTERS
from trt_ros.nodes.drawing import DrawingParameters
from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.labeled import THRESHOLD_NAMES, ClassIdParameters, ObjectNode
from trt_ros.results.masks import ClassMask, ClassMasks, Instances, mask_dtype
from trt_ros.ros.codecs.tensors import topic_names
from trt_ros.ros.messages import DetectionSender, ImageSender
from trt_ros.ros.parameters import mutable_param
from trt_ros.runtime.options import LabeledOptions, MaskOptions
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import ThresholdOptions


@dataclass(frozen=True)
class SegmenterParameters(
    InferenceParameters,
    DrawingParameters,
    ClassIdParameters,
    ThresholdOptions,
    MaskOptions,
    LabeledOptions,
):
    """Parameters of the segmenter node, which are also the options of its pipeline."""

    overlay_opacity: float = mutable_param(
        0.5, 'Opacity of the mask colors in ~/overlay.', between=(0.0, 1.0)
    )


class SegmenterOutputs(NamedTuple):
    """
    The publishers of one camera.

    :param masks, confidences: by prefix of their topics.
    :param instances, detections: None for networks without instances.
    """

    masks: Mapping[str, ImageSender]
    confidences: Mapping[str, ImageSender]
    overlay: ImageSender
    mask_dtype: type[np.uint8] | type[np.uint16]
    instances: ImageSender | None = None
    detections: DetectionSender | None = None


class SegmenterNode(ObjectNode):
    """
    A node that publishes the class of each pixel.

    In the mask of an instance segmentation network, 0 is background and the other values are class
    index + 1; in that of a semantic segmentation network, values are class indices, or the maximum
    of the encoding for unlabeled pixels. ~/label_info maps the values to class names. Of several
    chosen outputs, the first is ~/mask and the others are ~/OUTPUT/mask, with ~/OUTPUT/label_info.
    """

    Parameters = SegmenterParameters
    families = SEGMENTERS

    def class_maps(self) -> Mapping[str, Mapping[int, str]]:
        head, names = self.pipeline.decoder.head, self.pipeline.class_names
        if len(head.classes_by_output) > 1:
            _, *others = head.classes_by_output
            prefixes = ['', *(f'{topic}/' for topic in topic_names(others).values())]
            of_each = head.names_by_output(names).values()
            return {prefix: dict(enumerate(each)) for prefix, each in zip(prefixes, of_each)}
        if self._has_instances:
            return {'': {0: 'background', **dict(enumerate(names, 1))}}
        return super().class_maps()

    def label_threshold(self) -> float:
        return super().label_threshold() if self._has_instances else 0.0

    def ignored_parameters(self) -> set[str]:
        return super().ignored_parameters() | (set() if self._has_instances else THRESHOLD_NAMES)

    @property
    def _has_instances(self) -> bool:
        return self.pipeline.decoder.head.finds_instances

    def advertise(self, camera: Camera) -> SegmenterOutputs:
        outputs = SegmenterOutputs(
            {prefix: camera.images(f'{prefix}mask') for prefix in self.class_maps()},
            {
                prefix: camera.images(f'{prefix}confidence')
                for prefix in (self.class_maps() if self.parameters.confidence else ())
            },
            camera.images('overlay'),
            np.uint16,
        )
        if not self._has_instances:
            return outputs
        count = self.pipeline.decoder.class_count or len(self.pipeline.class_names)
        return outputs._replace(
            mask_dtype=mask_dtype(count + 1) if count else np.uint16,
            instances=camera.images('instances'),
            detections=camera.objects('detections'),
        )

    def publish(
        self,
        outputs: SegmenterOutputs,
        result: Instances | ClassMask | ClassMasks,
        header: Header,
        frame: Frame,
    ) -> None:
        wants_confidence = any(each.is_wanted() for each in outputs.confidences.values())
        masks = result.class_masks(outputs.mask_dtype, with_confidence=wants_confidence)
        if isinstance(result, Instances) and outputs.instances and outputs.detections:
            if outputs.instances.is_wanted():
                outputs.instances.begin(header, frame.wh, 'mono16')[:] = result.numbers()
                outputs.instances.send()
            outputs.detections.send(result, header, self.parameters.class_id_format)
        for sender, mask in zip(outputs.masks.values(), masks):
            encoding = 'mono8' if mask.labels.dtype == np.uint8 else 'mono16'
            sender.begin(header, frame.wh, encoding)[:] = mask.labels
            sender.send()
        for sender, mask in zip(outputs.confidences.values(), masks):
            if sender.is_wanted() and mask.confidence is not None:
                sender.begin(header, frame.wh, 'mono8')[:] = mask.confidence
                sender.send()
        opacity = self.parameters.overlay_opacity
        self.parameters.publish_drawn(outputs.overlay, header, frame, result, opacity=opacity)
