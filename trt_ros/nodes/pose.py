"""Node that detects objects and their keypoints in images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import sys
from types import SimpleNamespace
from typing import Any

from sensor_msgs.msg import Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray, ObjectHypothesis, ObjectHypothesisWithPose

from trt_ros.draw import draw_result
from trt_ros.nodes.drawing import DrawingParameters
from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.labeled import (
    THRESHOLD_NAMES,
    ClassIdParameters,
    ObjectNode,
    ThresholdParameters,
)
from trt_ros.nodes.regions import ObjectResults, RegionNode
from trt_ros.ros.dds.transport import should_publish
from trt_ros.ros.messages import (
    ImageSender,
    detection_publish,
    to_detection_array,
)
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node
from trt_ros.runtime.options import LabeledOptions, RegionOptions
from trt_ros.vision.decoders.registry import POSES
from trt_ros.vision.frame import Frame
from trt_ros.vision.keypoints import NAMES, keypoint_boxes
from trt_ros.vision.labels import name_of
from trt_ros.vision.results import Poses


@dataclass(frozen=True)
class KeypointParameters:
    """Parameters of the published keypoints."""

    keypoint_threshold: float = param(
        0.5, 'Minimum visibility score of a published keypoint.', between=(0.0, 1.0), mutable=True
    )
    keypoint_names: tuple[str, ...] = param(
        (),
        'Keypoint names in index order; empty uses those of COCO for 17 keypoints, of '
        'COCO-WholeBody for 133, of a hand for 21, else the indices.',
    )


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class PoseParameters(
    InferenceParameters,
    RegionOptions,
    DrawingParameters,
    KeypointParameters,
    ClassIdParameters,
    ThresholdParameters,
    LabeledOptions,
):
    """Parameters of the pose node, which are also the options of its pipeline."""


class PoseNode(RegionNode, ObjectNode):
    """
    A node that publishes bounding boxes and keypoints, of whole images or of detected objects.

    Keypoints are published as a Detection2DArray: vision_msgs has no message for them.
    """

    Parameters = PoseParameters
    families = POSES

    def __init__(self, name: str = 'pose', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def ignored_parameters(self) -> set[str]:
        """Return the names of parameters that have no effect; regions have the given classes."""
        return super().ignored_parameters() | (
            THRESHOLD_NAMES if self.parameters.regions else set()
        )

    def advertise(self, camera: Camera) -> SimpleNamespace:
        """Create the publishers of a camera's results."""
        detections = camera.publisher(Detection2DArray, 'detections')
        keypoints = camera.publisher(Detection2DArray, 'keypoints')
        count = self.pipeline.decoder.head.keypoint_count
        self._keypoint_names = self.parameters.keypoint_names or NAMES.get(count or 0, ())
        return SimpleNamespace(
            objects=detections.publish,
            detections=detection_publish(self, detections, self.pipeline.class_names),
            named_keypoints=keypoints.publish,
            keypoints=detection_publish(self, keypoints, self._keypoint_names),
            overlay=ImageSender(self, camera.publisher(Image, 'overlay')),
            regions=self._region_publish(camera),
        )

    def _region_publish(self, camera: Camera) -> Callable[..., None] | None:
        """Return a function that publishes the regions of objects; None: there are none."""
        if not self.pipeline.decoder.head.proposes_regions or self.parameters.regions:
            return None
        regions = camera.publisher(Detection2DArray, 'regions')
        return detection_publish(self, regions, self.pipeline.class_names)

    def publish(
        self, outputs: SimpleNamespace, result: Poses, header: Header, frame: Frame
    ) -> None:
        """Publish the result of one image."""
        outputs.detections(result.detections, header, self.parameters.class_id_format)
        if outputs.regions:
            outputs.regions(result.regions, header, self.parameters.class_id_format)
        points, indices = keypoint_boxes(result, self.parameters.keypoint_threshold)
        outputs.keypoints(points, header, 'name', indices)
        self._draw(outputs, result, header, frame)

    def publish_objects(
        self, outputs: SimpleNamespace, found: ObjectResults, header: Header
    ) -> None:
        """Publish the detections of one image that were run, and their keypoints and classes."""
        detections = found.objects.detections
        if self.pipeline.decoder.class_count:
            self._add_classes(found)
        outputs.objects(Detection2DArray(header=header, detections=detections))
        poses = Poses.join(found.results)
        points, indices = keypoint_boxes(poses, self.parameters.keypoint_threshold)
        ids = [each.id for each in detections]
        if any(ids):
            message = to_detection_array(
                points, header, self._keypoint_names, class_id_format='name'
            )
            for keypoint, index in zip(message.detections, indices.tolist()):
                keypoint.id = ids[index] or str(index)
            outputs.named_keypoints(message)
        else:
            outputs.keypoints(points, header, 'name', indices)
        self._draw(outputs, poses, header, found.frame)

    def _add_classes(self, found: ObjectResults) -> None:
        """Add the class of each pose to the results of its detection."""
        names = self.pipeline.class_names if self.parameters.class_id_format == 'name' else ()
        for detection, pose in zip(found.objects.detections, found.results):
            kinds = zip(pose.detections.labels.tolist(), pose.detections.scores.tolist())
            detection.results = [
                *detection.results,
                *(
                    ObjectHypothesisWithPose(
                        hypothesis=ObjectHypothesis(class_id=name_of(names, label), score=score)
                    )
                    for label, score in kinds
                ),
            ]

    def _draw(self, outputs: SimpleNamespace, result: Poses, header: Header, frame: Frame) -> None:
        if should_publish(outputs.overlay.publisher):
            parameters: PoseParameters = self.parameters
            draw_result(
                parameters.begin_drawing(outputs.overlay, header, frame),
                result,
                self.pipeline.class_names,
                keypoint_names=parameters.keypoint_names,
                min_visibility=parameters.keypoint_threshold,
                style=parameters.style(),
            )
            outputs.overlay.send()


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal stops it."""
    return run_node(PoseNode, args)


if __name__ == '__main__':
    sys.exit(main())
