"""What all nodes share that run a network on images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from rclpy.exceptions import InvalidTopicNameException
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from std_msgs.msg import Header

from trt_ros.errors import ParameterError
from trt_ros.progress import Progress, ProgressThrottle
from trt_ros.ros.dds.rcl import MemoryHooks
from trt_ros.ros.diagnostics import CameraCounts, Diagnostics, FrameCounts
from trt_ros.ros.images import (
    ImageStream,
    ImageTopic,
    ImageTopicsParameters,
    why_images_lost,
    why_no_image,
)
from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.parameters import param
from trt_ros.ros.qos import PRESETS, preset_profile
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.decoders.family import Family
from trt_ros.vision.frame import Frame


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class InferenceParameters(NodeParameters, ImageTopicsParameters):
    """What every such node has, beside the options that open its pipeline."""

    lazy: bool = param(
        False, 'Whether to process images only while a result topic has subscribers.', mutable=True
    )
    output_qos_preset: str = param(
        'default',
        'ROS QoS profile of the result publishers.',
        choices=PRESETS[1:],
    )


class Camera:
    """
    A topic that a node takes images from, and where what is found in them goes.

    :param topic: as for create_subscription().
    :param prefix: of the topics of its results, below the node's name: '' or 'front/image_raw/'.
    :ivar outputs: what `advertise` has returned for it.
    """

    def __init__(self, node: InferenceNode, topic: str, prefix: str, counts: FrameCounts) -> None:
        self.topic, self.counts = topic, counts
        self.outputs: Any = None
        self._node, self._prefix = node, prefix
        self._publishers: list[Publisher] = []

    def publisher(self, message_type: type, name: str, qos: QoSProfile | None = None) -> Publisher:
        """
        Create a publisher of results: while nobody subscribes to any, a lazy node rests.

        :param name: 'detections' is ~/detections, or, of several cameras, ~/TOPIC/detections.
        """
        node = self._node
        publisher = node.publisher(
            message_type,
            f'~/{self._prefix}{name}',
            qos or preset_profile(node.parameters.output_qos_preset),
        )
        self._publishers.append(publisher)
        return publisher

    def is_wanted(self) -> bool:
        """Tell whether there is somebody to infer for."""
        return not self._node.parameters.lazy or any(
            publisher.get_subscription_count() for publisher in self._publishers
        )


class InferenceNode(ManagedNode):
    """
    Opens a pipeline at configure, takes images of one camera or several while active.

    A subclass names its `Parameters`, which are also its pipeline's options, and its `families`,
    and fills in `advertise` and `publish`.

    :param open_pipeline: what configure opens the pipeline with; tests hand in a fake's.
    :ivar cameras: one of the topic `image`, or those of `image_topics`; while configured.
    """

    families: ClassVar[tuple[Family, ...]]

    def __init__(
        self, name: str, *, open_pipeline: Callable[..., Pipeline] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(name, **kwargs)
        self._open_pipeline = open_pipeline or partial(Pipeline.open, families=self.families)
        self.pipeline: Pipeline | None = None
        self._progress: Progress | None = None
        self.cameras: tuple[Camera, ...] = ()
        self._counts = FrameCounts()
        Diagnostics(
            self,
            self._counts,
            task='image',
            diagnostics=self._diagnostics,
            why_no_image=lambda _, topic: self.why_no_input(topic),
            why_lost=lambda _, topic: self.why_input_lost(topic),
            cameras=self._counts_by_topic,
        )

    # What a subclass fills in.

    def advertise(self, camera: Camera) -> Any:
        """Create what results of a camera are published with, and return it; raise to fail."""

    def infer(self, frames: list[Frame]) -> Sequence[Any]:
        """Run the pipeline on some images, of a camera each."""
        return self.pipeline.infer_all(frames)

    def publish(self, outputs: Any, result: Any, header: Header, frame: Frame) -> None:
        """
        Publish what was found.

        :param outputs: what `advertise` has returned for the camera.
        :param header: the image's own.
        """

    def image_topics(self) -> tuple[str, ...]:
        """Name the topics that images come from, as for create_subscription()."""
        return self.parameters.image_topics or ('image',)

    def why_no_input(self, topic: str) -> str:
        """Name a topic that an active node takes its input from, and why none may come."""
        return why_no_image(self, topic)

    def why_input_lost(self, topic: str) -> str:
        """Name a topic that an active node takes its input from, and why some may be lost."""
        return why_images_lost(self, topic)

    # What a subclass uses.

    def configure(self) -> None:
        self._is_due = ProgressThrottle()
        self.while_configured.callback(self._forget)
        cameras = self._make_cameras()
        for line in self.open():
            self.get_logger().info(line)
        self._progress = None
        for camera in cameras:
            camera.outputs = self.advertise(camera)
        self.cameras = cameras

    def _make_cameras(self) -> tuple[Camera, ...]:
        topics = self.image_topics()
        if topics == ('image',):
            return (Camera(self, 'image', '', self._counts),)
        names = []
        for topic in topics:
            try:
                names.append(self.resolve_topic_name(topic))
            except (InvalidTopicNameException, RuntimeError) as error:
                raise ParameterError(f'image_topics names {topic!r}.', cause=str(error)) from error
        if len(set(names)) < len(names):
            raise ParameterError(
                f'image_topics names a topic twice: {", ".join(names)}.',
                remedy='Name each camera once.',
            )
        return tuple(
            Camera(self, topic, f'{topic.strip("~/")}/', CameraCounts(self._counts))
            for topic in topics
        )

    def open(self) -> Iterable[str]:
        """Open what infers, telling `report`; return lines for the log."""
        self.pipeline = self.while_configured.enter_context(
            closing(
                self._open_pipeline(
                    self.parameters,
                    on_progress=self.report,
                    cancelled=self.cancelled,
                    batch=self.parameters.batch_size(),
                )
            )
        )
        self.pipeline.on_fault(self.fail)
        return self.pipeline.log_lines

    def activate(self) -> None:
        pipeline = self.pipeline
        self.while_active.enter_context(
            closing(
                ImageStream(
                    self,
                    self._counts,
                    [
                        ImageTopic(
                            camera.topic,
                            camera.counts,
                            partial(self.publish, camera.outputs),
                            camera.is_wanted,
                        )
                        for camera in self.cameras
                    ],
                    self.infer,
                    max_batch=min(pipeline.max_batch, self.parameters.batch_size()),
                    hooks=MemoryHooks(pipeline.register, pipeline.unregister),
                )
            )
        )

    def report(self, progress: Progress) -> None:
        self._progress = progress
        if self._is_due(progress):
            self.get_logger().info(str(progress))

    def _diagnostics(self) -> Mapping[str, str]:
        diagnostics = {'model': self.get_parameter('model_path').value}
        pipeline, progress = self.pipeline, self._progress
        if pipeline is not None:
            diagnostics.update(backend=pipeline.backend, decoder=pipeline.decoder.name)
            diagnostics.update(pipeline.diagnostics())
        elif progress is not None:
            diagnostics['progress'] = str(progress)
        return diagnostics

    def _counts_by_topic(self) -> Mapping[str, FrameCounts]:
        return {
            camera.topic: camera.counts
            for camera in self.cameras
            if camera.counts is not self._counts
        }

    def _forget(self) -> None:
        self.pipeline = self._progress = None
        self.cameras = ()
