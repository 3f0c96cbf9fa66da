"""Base classes of the nodes whose networks have classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from std_msgs.msg import Header
from vision_msgs.msg import LabelInfo, VisionClass

from trt_ros.model.run_inputs import RunInputs
from trt_ros.nodes.inference import InferenceNode
from trt_ros.results.boxes import Objects
from trt_ros.ros.parameters import mutable_param
from trt_ros.ros.qos import LATCHED
from trt_ros.runtime.future import Future
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import ThresholdOptions, Thresholds

FULL_FRAMES = 'frames that reached max_detections'
THRESHOLD_NAMES = frozenset(each.name for each in fields(ThresholdOptions))


@dataclass(frozen=True)
class ClassIdParameters:
    """Parameters of published class ids."""

    class_id_format: str = mutable_param(
        'name',
        'Content of the class_id fields: class name or class index.',
        choices=('name', 'index'),
    )


class LabeledNode(InferenceNode):
    """A node that publishes its class names on ~/label_info; `score_threshold` is a parameter."""

    def class_maps(self) -> Mapping[str, Mapping[int, str]]:
        """Return class names by published number, by prefix of the topic label_info."""
        return {'': dict(enumerate(self.pipeline.class_names))}

    def label_threshold(self) -> float:
        """Return the minimum score of the published classes."""
        return float(self.parameters.score_threshold)

    def configure(self) -> None:
        super().configure()
        self._label_infos = {
            prefix: self.publisher(LabelInfo, f'~/{prefix}label_info', LATCHED)
            for prefix in self.class_maps()
        }
        self.parameters_changed()

    def parameters_changed(self) -> None:
        header = Header(stamp=self.get_clock().now().to_msg())
        for prefix, class_map in self.class_maps().items():
            classes = [VisionClass(class_id=each, class_name=n) for each, n in class_map.items()]
            self._label_infos[prefix].publish(
                LabelInfo(header=header, threshold=self.label_threshold(), class_map=classes)
            )


class ObjectNode(LabeledNode):
    """A node that detects objects, with ThresholdOptions and, configured, `class_thresholds`."""

    def parameters_changed(self) -> None:
        self._counts.note(FULL_FRAMES, 0)
        resolve = self.pipeline.resolve_classes
        self.class_thresholds: Thresholds = resolve(self.parameters.thresholds())
        # One object for all runs: the GPU keeps what depends on it.
        self._run_thresholds = resolve(self.thresholds())
        super().parameters_changed()

    def thresholds(self) -> Thresholds:
        """Return the thresholds of the pipeline."""
        thresholds: Thresholds = self.parameters.thresholds()
        return thresholds

    def start(self, frames: list[Frame]) -> Future[Sequence[Any]]:
        return self.pipeline.start_batch(frames, self._run_thresholds)

    def infer_inputs(self, inputs: RunInputs) -> Any:
        return self.pipeline.infer(inputs, self._run_thresholds)

    def published(self, result: Any) -> None:
        limit = min(self._run_thresholds.max_detections, self.pipeline.max_detections)
        if isinstance(result, Objects) and len(result) >= limit:
            self._counts.note(FULL_FRAMES)
