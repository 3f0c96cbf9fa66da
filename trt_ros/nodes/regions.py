"""Base class of the nodes that run a network on images or on detected objects."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from std_msgs.msg import Header
from vision_msgs.msg import (
    Detection2D,
    Detection2DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
)

from trt_ros.errors import ParameterError
from trt_ros.nodes.inference import InferenceNode
from trt_ros.nodes.inputs import NodeInputs
from trt_ros.ros.codecs.detections import DetectionCodec
from trt_ros.ros.codecs.images import image_codec
from trt_ros.ros.diagnostics import FrameCounts
from trt_ros.ros.regions import ChosenObjects, choose_objects
from trt_ros.ros.topic import Topic, without_partner
from trt_ros.runtime.future import Finished, Future
from trt_ros.vision.frame import Frame

DETECTIONS = 'detections'
SURPLUS = 'detections over max_regions'
INVALID = 'detections without an area in the image'


def add_results(detection: Detection2D, hypotheses: Iterable[ObjectHypothesis]) -> None:
    """Add the classes that a network gave an object to those of its detector."""
    more = [ObjectHypothesisWithPose(hypothesis=each) for each in hypotheses]
    detection.results = [*detection.results, *more]


class ObjectResults(NamedTuple):
    """The results of one image, one per object that is run."""

    objects: ChosenObjects
    results: Sequence[Any]
    frame: Frame


class RegionNode(InferenceNode):
    """
    A node that runs its network on images or, with `regions`, on the objects of `detections`.

    Its parameters include RegionOptions. A subclass also implements `publish_objects`.
    """

    def publish_objects(self, outputs: Any, found: ObjectResults, header: Header) -> None:
        """Publish the results of the objects of one image."""

    def configure(self) -> None:
        parameters = self.parameters
        if parameters.regions:
            self._counts.note(SURPLUS, 0)
            self._counts.note(INVALID, 0)
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
        super().configure()

    def make_inputs(self) -> NodeInputs:
        return RegionInputs(self) if self.parameters.regions else super().make_inputs()

    def batch_size(self) -> int:
        parameters = self.parameters
        return int(parameters.max_regions) if parameters.regions else super().batch_size()

    def infer_objects(self, frame: Frame, message: Detection2DArray) -> ObjectResults:
        """Run the network on the objects of an image."""
        objects = choose_objects(message, frame.wh, self.parameters.max_regions)
        if objects.invalid:
            self._counts.note(INVALID, objects.invalid)
        if objects.surplus:
            self._counts.note(SURPLUS, objects.surplus)
            self.get_logger().warning(
                f'{objects.surplus} detections of an image exceed max_regions = '
                f'{self.parameters.max_regions}: those with the lowest scores are not run.',
                throttle_duration_sec=10.0,
            )
        return ObjectResults(objects, self.pipeline.infer_regions(frame, objects.boxes), frame)


class RegionInputs(NodeInputs):
    """Images with the detections in them, whose objects are run."""

    def __init__(self, node: RegionNode) -> None:
        self._node = node
        self.topics = [
            Topic(node, 'image', image_codec(node), FrameCounts(node.cameras[0].counts)),
            Topic(node, DETECTIONS, DetectionCodec(node, DETECTIONS), FrameCounts()),
        ]

    def start(self, sets: list[list[Any]]) -> Future[Sequence[ObjectResults]]:
        return Finished([self._node.infer_objects(*values) for values in sets])

    def publish(self, number: int, result: Any, header: Header, values: list[Any]) -> None:
        self._node.publish_objects(self._node.cameras[0].outputs, result, header)

    def ignored_parameters(self) -> set[str]:
        return {'batch_wait_ms', 'max_batch_size', 'tensor_format'}

    def why_no_result(self) -> str:
        return without_partner(self._node, self.topics, 'detections need the stamp of their image')
