"""Node that runs any network on images and tensors and publishes its output tensors."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from rclpy.publisher import Publisher
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from trt_ros.errors import ParameterError
from trt_ros.families.registry import TENSORS
from trt_ros.model.bindings import OTHERS
from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.regions import ObjectResults, RegionNode
from trt_ros.results.arrays import Tensors
from trt_ros.ros.codecs import open_format
from trt_ros.ros.codecs.tensors import Publish, TensorFormat
from trt_ros.ros.dds.cdr_points import FLOAT32
from trt_ros.ros.messages import PointSender
from trt_ros.ros.parameters import param
from trt_ros.runtime.options import PipelineOptions, RegionOptions
from trt_ros.vision.frame import Frame


@dataclass(frozen=True)
class TensorParameters(InferenceParameters, RegionOptions, PipelineOptions):
    """Parameters of the tensor node, which are also the options of its pipeline."""

    input: str = param(
        'image',
        'Input topic without `inputs`: `image` (preprocessed) or `tensors` (one tensor per '
        'network input).',
        choices=('image', 'tensors'),
    )


class TensorOutputs(NamedTuple):
    """The publishers of one camera; `detections` with regions, `keypoints` of such outputs."""

    tensors: Publish
    detections: Publisher | None
    keypoints: PointSender | None


class TensorNode(RegionNode):
    """A node that runs any network on images and tensors, or on detected objects."""

    Parameters = TensorParameters
    families = TENSORS
    _format: TensorFormat | None = None

    def advertise(self, camera: Camera) -> TensorOutputs:
        assert self._format is not None
        return TensorOutputs(
            self._format.advertise(self, camera.publisher, self.pipeline.outputs),
            camera.publisher(Detection2DArray, 'detections') if self.parameters.regions else None,
            self._keypoint_sender(camera),
        )

    def _keypoint_sender(self, camera: Camera) -> PointSender | None:
        """Return the publisher of keypoints with descriptors; None without such outputs."""
        shapes = {each.name: each.shape for each in self.pipeline.outputs}
        count, size = (*shapes.get('descriptors', ()), 0, 0, 0)[1:3]
        wanted = {'keypoints': (1, count, 2), 'scores': (1, count)}
        if not size or any(shapes.get(name) != shape for name, shape in wanted.items()):
            if {'descriptors', *wanted} <= set(shapes):
                self.get_logger().info(
                    'No ~/points: they need keypoints (1, K, 2), scores (1, K) and descriptors '
                    f'(1, K, D), got {", ".join(map(str, self.pipeline.outputs))}.',
                    once=True,
                )
            return None
        fields = ('score', FLOAT32, 1), ('descriptor', FLOAT32, size)
        return PointSender(self, camera.publisher(PointCloud2, 'points'), *fields)

    def publish(
        self, outputs: TensorOutputs, result: Tensors, header: Header, frame: Frame | None
    ) -> None:
        outputs.tensors(result, header)
        if outputs.keypoints is not None and outputs.keypoints.is_wanted():
            is_found = result['scores'][0] > 0
            points = outputs.keypoints.begin(header, (int(is_found.sum()), 1))[0]
            parts = (result[name][0][is_found] for name in ('keypoints', 'scores', 'descriptors'))
            points[:, :2], points[:, 3], points[:, 4:] = parts
            points[:, 2] = 0
            outputs.keypoints.send()

    def publish_objects(
        self, outputs: TensorOutputs, found: ObjectResults, header: Header
    ) -> None:
        assert outputs.detections is not None
        detections = found.objects.detections
        outputs.detections.publish(Detection2DArray(header=header, detections=detections))
        names = found.results[0] if found.results else ()
        outputs.tensors(
            {name: np.concatenate([each[name] for each in found.results]) for name in names},
            header,
        )

    def options(self) -> PipelineOptions:
        parameters: TensorParameters = self.parameters
        if parameters.input == 'image':
            return parameters
        if parameters.regions:
            raise ParameterError(
                'input is tensors, but regions is true.',
                cause='Regions are cut out of images.',
                remedy='Leave input out.',
            )
        if parameters.inputs:
            raise ParameterError(
                'input is tensors, but inputs has bindings.',
                remedy='Leave input out, and bind tensors with INPUT=tensor:TOPIC in inputs.',
            )
        return replace(parameters, inputs=(f'{OTHERS}=tensor:tensors',))

    def open(self) -> Iterable[str]:
        self.while_configured.callback(setattr, self, '_format', None)
        self._format = open_format(self.parameters.tensor_format)
        return [*super().open(), f'tensor format: {self._format.name}']

    def ignored_parameters(self) -> set[str]:
        return super().ignored_parameters() - {'tensor_format'}
