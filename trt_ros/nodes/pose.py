"""Node that detects objects and their keypoints in images."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from rclpy.publisher import Publisher
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray, ObjectHypothesis

from trt_ros.errors import ParameterError
from trt_ros.families.registry import POSES
from trt_ros.nodes.drawing import DrawingParameters
from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.labeled import THRESHOLD_NAMES, ClassIdParameters, ObjectNode
from trt_ros.nodes.regions import ObjectResults, RegionNode, add_results
from trt_ros.results.boxes import Objects, OrientedBoxes
from trt_ros.results.labels import name_of
from trt_ros.results.poses import NAMES, Poses
from trt_ros.ros.messages import DetectionSender, ImageSender
from trt_ros.ros.parameters import mutable_param, param
from trt_ros.runtime.options import RegionOptions, TiledOptions
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import ThresholdOptions


@dataclass(frozen=True)
class PoseParameters(
    InferenceParameters,
    RegionOptions,
    DrawingParameters,
    ClassIdParameters,
    ThresholdOptions,
    TiledOptions,
):
    """Parameters of the pose node, which are also the options of its pipeline."""

    keypoint_threshold: float = mutable_param(
        0.5, 'Minimum visibility score of a published keypoint.', between=(0.0, 1.0)
    )
    keypoint_names: tuple[str, ...] = param(
        (),
        'Keypoint names in index order; empty uses those of COCO for 17 keypoints, of '
        'COCO-WholeBody for 133, of a hand for 21, else the indices.',
    )


class PoseOutputs(NamedTuple):
    """The publishers of one camera; `regions` of networks that propose some."""

    objects: Publisher
    detections: DetectionSender
    keypoints: DetectionSender
    overlay: ImageSender
    regions: DetectionSender | None


class PoseNode(RegionNode, ObjectNode):
    """
    A node that publishes bounding boxes and keypoints, of whole images or of detected objects.

    Keypoints are published as a Detection2DArray: vision_msgs has no message for them.
    """

    Parameters = PoseParameters
    families = POSES

    def ignored_parameters(self) -> set[str]:
        return super().ignored_parameters() | (
            THRESHOLD_NAMES if self.parameters.regions else set()
        )

    def configure(self) -> None:
        super().configure()
        network = self.pipeline.regions or self.pipeline
        if network.decoder.task != 'pose':
            raise ParameterError(
                f'The last network of the bundle is a {network.decoder.name}.',
                cause='Its results are no keypoints.',
                remedy='Use a network of keypoints, or run the node `detector`.',
            )

    def advertise(self, camera: Camera) -> PoseOutputs:
        detections = camera.publisher(Detection2DArray, 'detections')
        network = self.pipeline.regions or self.pipeline
        count = network.decoder.head.keypoint_count
        self._keypoint_names = self.parameters.keypoint_names or NAMES.get(count or 0, ())
        return PoseOutputs(
            detections,
            DetectionSender(self, detections),
            camera.objects('keypoints'),
            camera.images('overlay'),
            camera.objects('regions')
            if self.pipeline.decoder.head.proposes_regions and not self.parameters.regions
            else None,
        )

    def publish(self, outputs: PoseOutputs, result: Any, header: Header, frame: Frame) -> None:
        outputs.detections.send(result, header, self.parameters.class_id_format)
        if outputs.regions and isinstance(result, Poses) and result.regions is not None:
            regions = replace(result.regions, class_names=result.class_names)
            outputs.regions.send(regions, header, self.parameters.class_id_format)
        if self.pipeline.regions is not None:
            result = _of_regions(result)
        outputs.keypoints.send(self._keypoint_boxes(result), header, 'name')
        self._draw(outputs, result, header, frame)

    def publish_objects(self, outputs: PoseOutputs, found: ObjectResults, header: Header) -> None:
        detections = found.objects.detections
        if self.pipeline.decoder.class_count:
            self._add_classes(found)
        outputs.objects.publish(Detection2DArray(header=header, detections=detections))
        poses = Poses.join(found.results)
        ids = [
            each.id or str(index)
            for index, (each, pose) in enumerate(zip(detections, found.results))
            for _ in pose.keypoints
        ]
        named = poses.with_ids(np.array(ids, object))
        outputs.keypoints.send(self._keypoint_boxes(named), header, 'name')
        self._draw(outputs, poses, header, found.frame)

    def _keypoint_boxes(self, poses: Poses) -> OrientedBoxes:
        return poses.keypoint_boxes(self.parameters.keypoint_threshold, self._keypoint_names)

    def _add_classes(self, found: ObjectResults) -> None:
        """Add the class of each pose to the results of its detection."""
        names = self.pipeline.class_names if self.parameters.class_id_format == 'name' else ()
        for detection, pose in zip(found.objects.detections, found.results):
            kinds = zip(pose.detections.labels.tolist(), pose.detections.scores.tolist())
            add_results(
                detection,
                (
                    ObjectHypothesis(class_id=name_of(names, label), score=score)
                    for label, score in kinds
                ),
            )

    def _draw(self, outputs: PoseOutputs, result: Poses, header: Header, frame: Frame) -> None:
        parameters: PoseParameters = self.parameters
        parameters.publish_drawn(
            outputs.overlay,
            header,
            frame,
            result,
            keypoint_names=parameters.keypoint_names,
            min_visibility=parameters.keypoint_threshold,
        )


def _of_regions(found: Objects) -> Poses:
    """Return the keypoints that a second network found in each object, with its index as id."""
    results = enumerate(found.region_results)
    run = {str(index): each for index, each in results if isinstance(each, Poses)}
    return Poses.join(list(run.values())).with_ids(np.array(list(run), object))
