"""Images in, boxes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
import sys
from typing import Any

from rclpy.qos import QoSProfile
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray, LabelInfo

from trt_ros.progress import NowAndThen, Progress
from trt_ros.ros.diagnostics import Diagnostics, FrameCounts
from trt_ros.ros.images import ImageInputParameters, ImageStream, why_no_image
from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.messages import LATCHED, detection_publish, to_label_info
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node
from trt_ros.ros.rcl import MemoryHooks
from trt_ros.runtime.options import LabelledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame


@dataclass(frozen=True)
class DetectionParameters:
    """Which detections are published, and how their classes are said."""

    score_threshold: float = param(
        0.25, 'Drop detections scored below this.', between=(0.0, 1.0), mutable=True)
    iou_threshold: float = param(
        0.45, 'Overlap (intersection over union) above which the weaker of two boxes of a '
        'class goes.', between=(0.0, 1.0), mutable=True)
    max_detections: int = param(
        100, 'Publish the best so many of an image; on a GPU at most 1024.', between=(1, 10000),
        mutable=True)
    class_id_format: str = param(
        'name', 'What class_id holds.', choices=('name', 'index'), mutable=True)
    lazy: bool = param(
        False, 'Look at images only while somebody subscribes to the detections.', mutable=True)


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class DetectorParameters(
        NodeParameters, ImageInputParameters, DetectionParameters, LabelledOptions):
    """All of the detector's parameters; as LabelledOptions they also open its pipeline."""


class DetectorNode(ManagedNode):
    """
    Finds objects in images.

    :param open_pipeline: what configure opens the pipeline with; tests hand in a fake's.
    """

    Parameters = DetectorParameters

    def __init__(
            self, name: str = 'detector', *,
            open_pipeline: Callable[..., Pipeline] = Pipeline.open, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._open_pipeline = open_pipeline
        self._pipeline: Pipeline | None = None
        self._progress: Progress | None = None
        self._counts = FrameCounts()
        Diagnostics(
            self, self._counts, task='image', facts=self._facts, why_no_image=why_no_image)

    def configure(self) -> None:
        self._is_due = NowAndThen()
        self.while_configured.callback(self._forget_pipeline)
        self._pipeline = self.while_configured.enter_context(closing(self._open_pipeline(
            self.parameters, on_progress=self._report, cancelled=self.cancelled)))
        self._pipeline.tell_fault(self.fail)
        self._progress = None
        for line in self._pipeline.story:
            self.get_logger().info(line)
        self._detections = self.publisher(
            Detection2DArray, '~/detections', QoSProfile(depth=10))
        self._publish_detections = detection_publish(
            self, self._detections, self._pipeline.class_names)
        self._label_info = self.publisher(LabelInfo, '~/label_info', LATCHED)
        self.parameters_changed()

    def activate(self) -> None:
        self.while_active.enter_context(closing(
            ImageStream(self, self._counts, self._on_frame, is_wanted=self._is_wanted,
                        hooks=MemoryHooks(self._pipeline.register, self._pipeline.unregister))))

    def parameters_changed(self) -> None:
        header = Header(stamp=self.get_clock().now().to_msg())
        self._label_info.publish(to_label_info(
            header, self._pipeline.class_names, self.parameters.score_threshold))

    def _is_wanted(self) -> bool:
        return not self.parameters.lazy or self._detections.get_subscription_count() > 0

    def _on_frame(self, header: Header, frame: Frame) -> None:
        parameters = self.parameters  # One set for the whole frame.
        found = self._pipeline.infer(
            frame, score_threshold=parameters.score_threshold,
            iou_threshold=parameters.iou_threshold, max_detections=parameters.max_detections)
        self._publish_detections(found, header, parameters.class_id_format)
        self._counts.publish()

    def _report(self, progress: Progress) -> None:
        self._progress = progress
        if self._is_due(progress):
            self.get_logger().info(str(progress))

    def _facts(self) -> Mapping[str, str]:
        facts = {'model': self.get_parameter('model_path').value}
        pipeline, progress = self._pipeline, self._progress
        if pipeline is not None:
            facts.update(backend=pipeline.backend, decoder=pipeline.decoder.name)
            facts.update(pipeline.facts())
        elif progress is not None:
            facts['progress'] = str(progress)
        return facts

    def _forget_pipeline(self) -> None:
        self._pipeline = self._progress = None


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(DetectorNode, args)


if __name__ == '__main__':
    sys.exit(main())
