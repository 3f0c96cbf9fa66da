"""What all nodes share that run a network on images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from std_msgs.msg import Header

from trt_ros.progress import NowAndThen, Progress
from trt_ros.ros.diagnostics import Diagnostics, FrameCounts
from trt_ros.ros.images import ImageInputParameters, ImageStream, why_no_image
from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.parameters import param
from trt_ros.ros.qos import PRESETS, preset_profile
from trt_ros.ros.rcl import MemoryHooks
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.family import Family
from trt_ros.vision.frame import Frame


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class InferenceParameters(NodeParameters, ImageInputParameters):
    """What every such node has, beside the options that open its pipeline."""

    lazy: bool = param(
        False, 'Look at images only while somebody subscribes to a result.', mutable=True)
    output_qos_preset: str = param(
        'default', "QoS that the results are offered with, by ROS's name for it.",
        choices=PRESETS[1:])


class InferenceNode(ManagedNode):
    """
    Opens a pipeline at configure, takes images while active.

    A subclass names its `Parameters`, which are also its pipeline's options, and its `families`,
    and fills in `advertise` and `publish`.

    :param open_pipeline: what configure opens the pipeline with; tests hand in a fake's.
    """

    families: ClassVar[tuple[Family, ...]]

    def __init__(
            self, name: str, *, open_pipeline: Callable[..., Pipeline] | None = None,
            **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._open_pipeline = open_pipeline or partial(Pipeline.open, families=self.families)
        self.pipeline: Pipeline | None = None
        self._progress: Progress | None = None
        self._results: list[Publisher] = []
        self._counts = FrameCounts()
        Diagnostics(
            self, self._counts, task='image', facts=self._facts,
            why_no_image=lambda _: self.why_no_input())

    # What a subclass fills in.

    def advertise(self) -> None:
        """Create what `pipeline`'s results are published with; raise to fail."""

    def infer(self, frame: Frame) -> Any:
        """Run the pipeline on one image."""
        return self.pipeline.infer(frame)

    def publish(self, result: Any, header: Header, frame: Frame) -> None:
        """
        Publish what was found.

        :param header: the image's own.
        """

    def why_no_input(self) -> str:
        """Name the topic that an active node takes its input from, and why none may come."""
        return why_no_image(self)

    # What a subclass uses.

    def result_publisher(
            self, message_type: type, topic: str, qos: QoSProfile | None = None) -> Publisher:
        """Create a publisher of results: while nobody subscribes to any, a lazy node rests."""
        publisher = self.publisher(
            message_type, topic, qos or preset_profile(self.parameters.output_qos_preset))
        self._results.append(publisher)
        return publisher

    def configure(self) -> None:
        self._is_due = NowAndThen()
        self.while_configured.callback(self._forget)
        for line in self.open():
            self.get_logger().info(line)
        self._progress = None
        self.advertise()

    def open(self) -> Iterable[str]:
        """Open what infers, telling `report`; return lines for the log."""
        self.pipeline = self.while_configured.enter_context(closing(self._open_pipeline(
            self.parameters, on_progress=self.report, cancelled=self.cancelled)))
        self.pipeline.tell_fault(self.fail)
        return self.pipeline.story

    def activate(self) -> None:
        self.while_active.enter_context(closing(
            ImageStream(self, self._counts, self._on_frame, is_wanted=self._is_wanted,
                        hooks=MemoryHooks(self.pipeline.register, self.pipeline.unregister))))

    def _is_wanted(self) -> bool:
        return not self.parameters.lazy or any(
            publisher.get_subscription_count() for publisher in self._results)

    def _on_frame(self, header: Header, frame: Frame) -> None:
        with self._counts.timed('infer'):
            result = self.infer(frame)
        with self._counts.timed('publish'):
            self.publish(result, header, frame)
        self._counts.publish()

    def report(self, progress: Progress) -> None:
        self._progress = progress
        if self._is_due(progress):
            self.get_logger().info(str(progress))

    def _facts(self) -> Mapping[str, str]:
        facts = {'model': self.get_parameter('model_path').value}
        pipeline, progress = self.pipeline, self._progress
        if pipeline is not None:
            facts.update(backend=pipeline.backend, decoder=pipeline.decoder.name)
            facts.update(pipeline.facts())
        elif progress is not None:
            facts['progress'] = str(progress)
        return facts

    def _forget(self) -> None:
        self.pipeline = self._progress = None
        self._results = []
