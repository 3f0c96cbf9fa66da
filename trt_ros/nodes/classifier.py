"""Node that classifies images."""

from dataclasses import dataclass

from rclpy.publisher import Publisher
from std_msgs.msg import Header
from vision_msgs.msg import Classification as ClassificationMessage
from vision_msgs.msg import Detection2DArray, ObjectHypothesis

from trt_ros.families.registry import CLASSIFIERS
from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.labeled import ClassIdParameters, LabeledNode
from trt_ros.nodes.regions import ObjectResults, RegionNode, add_results
from trt_ros.results.classes import Classification
from trt_ros.ros.parameters import mutable_param
from trt_ros.runtime.options import LabeledOptions, RegionOptions
from trt_ros.vision.frame import Frame


@dataclass(frozen=True)
class ClassifierParameters(InferenceParameters, RegionOptions, ClassIdParameters, LabeledOptions):
    """Parameters of the classifier node, which are also the options of its pipeline."""

    score_threshold: float = mutable_param(
        0.0, 'Minimum score of a published class.', between=(0.0, 1.0)
    )
    max_classes: int = mutable_param(
        5, 'Maximum number of classes per image, highest scores first.', between=(1, 65536)
    )


class ClassifierNode(RegionNode, LabeledNode):
    """
    A node that publishes class scores of whole images, or of detected objects.

    The detections of `regions` are published with the classes of each object added.
    """

    Parameters = ClassifierParameters
    families = CLASSIFIERS

    def advertise(self, camera: Camera) -> Publisher:
        if self.parameters.regions:
            return camera.publisher(Detection2DArray, 'detections')
        return camera.publisher(ClassificationMessage, 'classification')

    def publish(
        self, outputs: Publisher, result: Classification, header: Header, frame: Frame
    ) -> None:
        outputs.publish(ClassificationMessage(header=header, results=self._best(result)))

    def publish_objects(self, outputs: Publisher, found: ObjectResults, header: Header) -> None:
        for detection, result in zip(found.objects.detections, found.results):
            add_results(detection, self._best(result))
        found.objects.message.header = header
        outputs.publish(found.objects.message)

    def _best(self, result: Classification) -> list[ObjectHypothesis]:
        parameters = self.parameters
        best = result.best(parameters.max_classes, class_id_format=parameters.class_id_format)
        return [
            ObjectHypothesis(class_id=name, score=score)
            for name, score in best
            if score >= parameters.score_threshold
        ]
