"""Base class of the nodes that run a network on images or on detected objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields
import threading
from typing import Any, NamedTuple

import numpy as np
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from trt_ros.errors import ParameterError
from trt_ros.nodes.inference import InferenceNode
from trt_ros.ros.dds.cdr import read_stamp
from trt_ros.ros.dds.rcl import MemoryHooks
from trt_ros.ros.diagnostics import CameraCounts, FrameCounts
from trt_ros.ros.frames import to_frame
from trt_ros.ros.images import image_reader, image_topic
from trt_ros.ros.inputs import InputStream, InputTopic
from trt_ros.ros.qos import why_lost, why_silent
from trt_ros.ros.regions import ChosenObjects, choose_objects, read_objects
from trt_ros.ros.sync import NO_PARTNER
from trt_ros.runtime.options import RegionOptions
from trt_ros.vision.frame import Frame

DETECTIONS = 'detections'


class ObjectResults(NamedTuple):
    """
    The results of one image.

    :param results: one per object that is run, in their order.
    """

    objects: ChosenObjects
    results: Sequence[Any]
    frame: Frame


class RegionNode(InferenceNode):
    """
    A node that runs its network on images or, with `regions`, on the objects of `detections`.

    Its parameters include RegionOptions. A subclass also implements `publish_objects`.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self._topic_counts: dict[str, FrameCounts] = {}
        self._invalid = self._surplus = 0
        self._counting = threading.Lock()  # `frames_in_flight` calls overlap.
        super().__init__(name, **kwargs)

    def publish_objects(self, outputs: Any, found: ObjectResults, header: Header) -> None:
        """
        Publish the results of the objects of one image.

        :param outputs: return value of `advertise` for the camera.
        :param header: header of the image.
        """

    def configure(self) -> None:
        """Open the pipeline and create the publishers."""
        parameters = self.parameters
        if parameters.regions:
            if parameters.inputs:
                raise ParameterError(
                    f'inputs is {list(parameters.inputs)}, but regions is true.',
                    cause='Regions are cut out of the messages on the topic `image`.',
                    remedy='Leave inputs out, and remap `image`.',
                )
            if parameters.image_topics:
                raise ParameterError(
                    f'image_topics is {list(parameters.image_topics)}, but regions is true.',
                    cause='The detections of one camera are on the topic `detections`.',
                    remedy='Run one node per camera, with `image` and `detections` remapped.',
                )
            if parameters.rate_hz:
                raise ParameterError(
                    f'rate_hz is {parameters.rate_hz}, but regions is true.',
                    cause='The boxes of one image would be cut out of another image.',
                    remedy='Set rate_hz to 0.0: images and detections meet by stamp. max_rate_hz '
                    'limits the rate.',
                )
            self._topic_counts = {'image': CameraCounts(self._counts), DETECTIONS: FrameCounts()}
            self._topic_counts[DETECTIONS].noun = 'message'
            self.while_configured.callback(self._topic_counts.clear)
        super().configure()

    def open(self) -> Iterable[str]:
        """Open the pipeline; return log lines, with the kind of synchronization of regions."""
        lines = super().open()
        if not self.parameters.regions:
            return lines
        return [*lines, f'synchronization: {self.parameters.describe_synchronization()}']

    def ignored_parameters(self) -> set[str]:
        """Return the names of parameters that have no effect on the configured inputs."""
        if self.parameters.regions:
            return {'batch_wait_ms', 'max_batch_size', 'tensor_format'}
        return super().ignored_parameters() | {each.name for each in fields(RegionOptions)}

    def batch_size(self) -> int:
        """Return the maximum number of images or regions per run."""
        parameters = self.parameters
        return int(parameters.max_regions) if parameters.regions else super().batch_size()

    def activate(self) -> None:
        """Subscribe to the images and, with `regions`, to the detections."""
        if not self.parameters.regions:
            super().activate()
            return
        pipeline, [camera] = self.pipeline, self.cameras
        message_type, name = image_topic(self, self.parameters, 'image')
        read_image, max_pixels = image_reader(self), self.parameters.max_image_pixels

        def read(message: np.ndarray) -> tuple[Frame, str]:
            image = read_image(message)
            return to_frame(image, self.jpegs_on_gpu, max_pixels), image.frame_id

        self.while_active.enter_context(
            closing(
                InputStream(
                    self,
                    self._counts,
                    [
                        InputTopic(
                            name, message_type, self._topic_counts['image'], read_stamp, read
                        ),
                        InputTopic(
                            DETECTIONS,
                            Detection2DArray,
                            self._topic_counts[DETECTIONS],
                            read_stamp,
                            read_objects,
                        ),
                    ],
                    self._infer_objects,
                    lambda found, header: self.publish_objects(camera.outputs, found, header),
                    is_wanted=camera.is_wanted,
                    in_flight=self.parameters.frames_in_flight,
                    hooks=MemoryHooks(pipeline.device.register, pipeline.device.unregister),
                )
            )
        )

    def _infer_objects(self, contents: list[Any]) -> ObjectResults:
        frame, message = contents
        objects = choose_objects(message, frame.wh, self.parameters.max_regions)
        with self._counting:
            self._invalid += objects.invalid
            self._surplus += objects.surplus
        if objects.surplus:
            self.get_logger().warning(
                f'{objects.surplus} detections of an image exceed max_regions = '
                f'{self.parameters.max_regions}: those with the lowest scores are not run.',
                throttle_duration_sec=10.0,
            )
        return ObjectResults(objects, self.pipeline.infer_regions(frame, objects.boxes), frame)

    def why_no_input(self, topic: str) -> str:
        """Return the resolved topic and the likely reason why it has no messages."""
        if topic != DETECTIONS:
            return super().why_no_input(topic)
        why = why_silent(self, topic, 'vision_msgs/msg/Detection2DArray')
        return f'on {self.resolve_topic_name(topic)}: {why}'

    def why_input_lost(self, topic: str) -> str:
        """Return the resolved topic and the likely reason why its messages are lost."""
        if topic != DETECTIONS:
            return super().why_input_lost(topic)
        return f'on {self.resolve_topic_name(topic)}: {why_lost(self, topic)}'

    def why_no_result(self) -> str:
        """Return how many images and messages of detections found no partner."""
        counts = ', '.join(
            f'{self.resolve_topic_name(topic)} {each.dropped[NO_PARTNER]}'
            for topic, each in self._topic_counts.items()
            if each.dropped[NO_PARTNER]
        )
        if not counts:
            return super().why_no_result()
        return f'(messages without partner: {counts}; detections need the stamp of their image)'

    def _counts_by_topic(self) -> Mapping[str, FrameCounts]:
        return dict(self._topic_counts) or super()._counts_by_topic()

    def _diagnostics(self) -> Mapping[str, str]:
        diagnostics = dict(super()._diagnostics())
        if self._topic_counts:
            diagnostics['detections over max_regions'] = str(self._surplus)
            diagnostics['detections without an area in the image'] = str(self._invalid)
        return diagnostics
