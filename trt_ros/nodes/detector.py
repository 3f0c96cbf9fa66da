"""Node that detects objects in images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import sys
from typing import Any

from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.labelled import ClassIdParameters, ObjectNode, ThresholdParameters
from trt_ros.ros.messages import detection_publish
from trt_ros.ros.process import run_node
from trt_ros.runtime.options import LabelledOptions
from trt_ros.vision.decoders.registry import FAMILIES, ORIENTED
from trt_ros.vision.detections import Detections
from trt_ros.vision.frame import Frame
from trt_ros.vision.results import OrientedBoxes


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class DetectorParameters(
    InferenceParameters, ClassIdParameters, ThresholdParameters, LabelledOptions
):
    """Parameters of the detector node, which are also the options of its pipeline."""


class DetectorNode(ObjectNode):
    """A node that publishes bounding boxes, axis-aligned or oriented."""

    Parameters = DetectorParameters
    families = (*FAMILIES, *ORIENTED)

    def __init__(self, name: str = 'detector', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def advertise(self, camera: Camera) -> Callable[..., None]:
        """Create the publishers of a camera's results."""
        return detection_publish(
            self, camera.publisher(Detection2DArray, 'detections'), self.pipeline.class_names
        )

    def publish(
        self,
        outputs: Callable[..., None],
        result: Detections | OrientedBoxes,
        header: Header,
        frame: Frame,
    ) -> None:
        """Publish the result of one image."""
        outputs(result, header, self.parameters.class_id_format)


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal stops it."""
    return run_node(DetectorNode, args)


if __name__ == '__main__':
    sys.exit(main())
