"""Node for semantic and instance segmentation of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from trt_ros.draw import draw_result
from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.labelled import ClassIdParameters, ObjectNode, ThresholdParameters
from trt_ros.ros.dds.transport import should_publish
from trt_ros.ros.messages import ImageSender, detection_publish
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node
from trt_ros.runtime.options import LabelledOptions
from trt_ros.vision.decoders.instances import InstanceHead
from trt_ros.vision.decoders.registry import SEGMENTERS
from trt_ros.vision.frame import Frame, to_colour
from trt_ros.vision.results import ClassMask, Instances


@dataclass(frozen=True)
class MaskParameters:
    """Parameters of the overlay image."""

    overlay_opacity: float = param(
        0.5,
        'Opacity of the mask colours in ~/overlay.',
        between=(0.0, 1.0),
        mutable=True,
    )


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class SegmenterParameters(
    InferenceParameters, MaskParameters, ClassIdParameters, ThresholdParameters, LabelledOptions
):
    """Parameters of the segmenter node, which are also the options of its pipeline."""


class SegmenterNode(ObjectNode):
    """
    A node that publishes the class of each pixel.

    In the mask of an instance segmentation network, 0 is background and the other values are class
    index + 1; in that of a semantic segmentation network, values are class indices. ~/label_info
    maps the values to class names.
    """

    Parameters = SegmenterParameters
    families = SEGMENTERS

    def __init__(self, name: str = 'segmenter', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def class_map(self) -> Mapping[int, str]:
        """Return class names by mask value."""
        if not self._has_instances:
            return super().class_map()
        return {0: 'background', **dict(enumerate(self.pipeline.class_names, 1))}

    @property
    def _has_instances(self) -> bool:
        return isinstance(self.pipeline.decoder.head, InstanceHead)

    def advertise(self, camera: Camera) -> SimpleNamespace:
        """Create the publishers of a camera's results."""
        outputs = SimpleNamespace(
            mask=ImageSender(self, camera.publisher(Image, 'mask')),
            overlay=ImageSender(self, camera.publisher(Image, 'overlay')),
        )
        if self._has_instances:
            count = self.pipeline.decoder.class_count or len(self.pipeline.class_names)
            outputs.mask_dtype = np.dtype(np.uint8 if 0 < count < 256 else np.uint16)
            outputs.instances = ImageSender(self, camera.publisher(Image, 'instances'))
            outputs.detections = detection_publish(
                self, camera.publisher(Detection2DArray, 'detections'), self.pipeline.class_names
            )
        return outputs

    def publish(
        self, outputs: SimpleNamespace, result: Instances | ClassMask, header: Header, frame: Frame
    ) -> None:
        """Publish the result of one image."""
        if isinstance(result, Instances):
            mask = result.paint((result.detections.labels + 1).astype(outputs.mask_dtype))
            if should_publish(outputs.instances.publisher):
                outputs.instances.begin(header, frame.wh, 'mono16')[:] = result.paint(
                    np.arange(1, len(result) + 1, dtype=np.uint16)
                )
                outputs.instances.send()
            outputs.detections(result.detections, header, self.parameters.class_id_format)
        else:
            mask = result.labels
        encoding = 'mono8' if mask.dtype == np.uint8 else 'mono16'
        outputs.mask.begin(header, frame.wh, encoding)[:] = mask
        outputs.mask.send()
        if should_publish(outputs.overlay.publisher):
            pixels = outputs.overlay.begin(header, frame.wh)
            pixels[:] = to_colour(frame, 'bgr')
            draw_result(
                pixels, result, self.pipeline.class_names, opacity=self.parameters.overlay_opacity
            )
            outputs.overlay.send()


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal stops it."""
    return run_node(SegmenterNode, args)


if __name__ == '__main__':
    sys.exit(main())
