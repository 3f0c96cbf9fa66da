"""Images in, boxes out."""

from __future__ import annotations

from dataclasses import dataclass
import sys
from typing import Any

from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray, LabelInfo

from trt_ros.nodes.inference import InferenceNode, InferenceParameters
from trt_ros.ros.messages import LATCHED, detection_publish, to_label_info
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node
from trt_ros.runtime.options import LabelledOptions
from trt_ros.vision.decoder import FAMILIES, ORIENTED
from trt_ros.vision.detections import Detections
from trt_ros.vision.frame import Frame
from trt_ros.vision.results import OrientedBoxes


@dataclass(frozen=True)
class ThresholdParameters:
    """Which objects are published."""

    score_threshold: float = param(
        0.25, 'Drop detections scored below this.', between=(0.0, 1.0), mutable=True)
    iou_threshold: float = param(
        0.45, 'Overlap (intersection over union) above which the weaker of two boxes of a '
        'class goes.', between=(0.0, 1.0), mutable=True)
    max_detections: int = param(
        100, 'Publish the best so many of an image; on a GPU at most 1024.', between=(1, 10000),
        mutable=True)

    def thresholds(self) -> dict[str, Any]:
        """Return them as Pipeline.infer takes them."""
        return {'score_threshold': self.score_threshold, 'iou_threshold': self.iou_threshold,
                'max_detections': self.max_detections}


@dataclass(frozen=True)
class ClassIdParameters:
    """How classes are said."""

    class_id_format: str = param(
        'name', 'What class_id holds.', choices=('name', 'index'), mutable=True)


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class DetectorParameters(
        InferenceParameters, ClassIdParameters, ThresholdParameters, LabelledOptions):
    """All of the detector's parameters; as LabelledOptions they also open its pipeline."""


class DetectorNode(InferenceNode):
    """Finds objects in images; boxes may be rotated."""

    Parameters = DetectorParameters
    families = (*FAMILIES, *ORIENTED)

    def __init__(self, name: str = 'detector', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def advertise(self) -> None:
        self._publish_detections = detection_publish(
            self, self.result_publisher(Detection2DArray, '~/detections'),
            self.pipeline.class_names)
        self._label_info = self.publisher(LabelInfo, '~/label_info', LATCHED)
        self.parameters_changed()

    def parameters_changed(self) -> None:
        header = Header(stamp=self.get_clock().now().to_msg())
        self._label_info.publish(to_label_info(
            header, self.pipeline.class_names, self.parameters.score_threshold))

    def infer(self, frame: Frame) -> Detections | OrientedBoxes:
        return self.pipeline.infer(frame, **self.parameters.thresholds())

    def publish(
            self, result: Detections | OrientedBoxes, header: Header, frame: Frame) -> None:
        self._publish_detections(result, header, self.parameters.class_id_format)


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(DetectorNode, args)


if __name__ == '__main__':
    sys.exit(main())
