"""Node that runs any network on images and tensors and publishes its output tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from std_msgs.msg import Header
from std_srvs.srv import Trigger
from vision_msgs.msg import Detection2DArray

from trt_ros.errors import ParameterError
from trt_ros.nodes.bound_inputs import BoundInputs
from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.regions import ObjectResults, RegionNode, RegionParameters
from trt_ros.ros.diagnostics import FrameCounts
from trt_ros.ros.inputs import InputStream
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node
from trt_ros.ros.tensors import FORMATS, TensorFormat, open_format
from trt_ros.runtime.bindings import OTHERS
from trt_ros.runtime.options import PREPROCESSING, PipelineOptions, RegionOptions
from trt_ros.vision.decoders.registry import TENSORS
from trt_ros.vision.frame import Frame
from trt_ros.vision.results import Tensors


@dataclass(frozen=True)
class TensorInputParameters:
    """Parameters of the network's input."""

    input: str = param(
        'image',
        'Input topic without `inputs`: `image` (preprocessed) or `tensors` (one tensor per '
        'network input).',
        choices=('image', 'tensors'),
    )
    tensor_format: str = param(
        'auto',
        'Messages of tensors: TensorList of Isaac ROS 4 and earlier (isaac) or of Isaac ROS 5 '
        '(isaac5), or one std_msgs multi-array per tensor (multiarray); auto uses the first that '
        'is installed.',
        choices=FORMATS,
    )


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class TensorParameters(
    InferenceParameters, RegionParameters, TensorInputParameters, PipelineOptions
):
    """Parameters of the tensor node, which are also the options of its pipeline."""


class TensorNode(RegionNode):
    """A node that runs any network on images and tensors, or on detected objects."""

    Parameters = TensorParameters
    families = TENSORS

    def __init__(self, name: str = 'tensor', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._format: TensorFormat | None = None
        self._bound: BoundInputs | None = None

    def advertise(self, camera: Camera) -> SimpleNamespace:
        """Create the publishers of a camera's results."""
        assert self._format is not None
        outputs = SimpleNamespace(
            tensors=self._format.advertise(self, camera.publisher, self.pipeline.outputs)
        )
        if self.parameters.regions:
            outputs.detections = camera.publisher(Detection2DArray, 'detections').publish
        return outputs

    def publish(
        self, outputs: SimpleNamespace, result: Tensors, header: Header, frame: Frame | None
    ) -> None:
        """Publish the output tensors of one run; `frame` is None with bindings."""
        outputs.tensors(result, header)

    def publish_objects(
        self, outputs: SimpleNamespace, found: ObjectResults, header: Header
    ) -> None:
        """Publish the detections of one image that were run, and a row per detection."""
        outputs.detections(Detection2DArray(header=header, detections=found.objects.detections))
        names = found.results[0] if found.results else ()
        outputs.tensors(
            {name: np.concatenate([each[name] for each in found.results]) for name in names},
            header,
        )

    # With bindings there is one run per set of messages, and no batches.

    def options(self) -> PipelineOptions:
        """Return the options of the pipeline, with the binding that `input: tensors` is."""
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

    def image_topics(self) -> tuple[str, ...]:
        """Return the image topics; 'image' alone with bindings, which have one result."""
        return ('image',) if self.options().inputs else super().image_topics()

    def open(self) -> Iterable[str]:
        """Open the pipeline and choose the messages; return log lines."""
        parameters: TensorParameters = self.parameters
        texts = self.options().inputs
        self.while_configured.callback(self._clear_inputs)
        self._format = open_format(parameters.tensor_format)
        synchronization = parameters.describe_synchronization()
        lines = [*super().open(), f'tensor format: {self._format.name}']
        if texts:
            self._bound = BoundInputs(self, self.pipeline, texts, self._format, self._counts)
            lines += self._bound.log_lines
            if len(self._bound.topics) > 1 or parameters.rate_hz:
                lines.append(f'synchronization: {synchronization}')
        return lines

    def activate(self) -> None:
        """Subscribe to the images and tensors."""
        bound = self._bound
        if bound is None:
            super().activate()
            return
        (camera,) = self.cameras
        stream = self.while_active.enter_context(
            closing(
                bound.open_stream(
                    lambda result, header: self.publish(camera.outputs, result, header, None),
                    camera.is_wanted,
                )
            )
        )
        if bound.has_state:
            self._offer_reset(stream)

    def _offer_reset(self, stream: InputStream) -> None:
        def reset(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            stream.reset()
            response.success, response.message = True, 'The next run starts with zero states.'
            return response

        service = self.create_service(Trigger, '~/reset', reset)
        self.while_active.callback(self.between_callbacks, lambda: self.destroy_service(service))

    def without_effect(self) -> set[str]:
        """Return the names of parameters that have no effect on the configured inputs."""
        if self._bound is None:
            return super().without_effect()
        ignored = {each.name for each in fields(RegionOptions)}
        ignored |= {'image_topics', 'batch_wait_ms', 'max_batch_size'}
        if not self._bound.has_images:
            ignored |= {*PREPROCESSING, 'image_transport'}
        return ignored

    def why_no_input(self, topic: str) -> str:
        """Return the resolved topic and the likely reason why it has no messages."""
        bound = self._bound
        return bound.why_no_input(topic) if bound else super().why_no_input(topic)

    def why_input_lost(self, topic: str) -> str:
        """Return the resolved topic and the likely reason why its messages are lost."""
        bound = self._bound
        return bound.why_input_lost(topic) if bound else super().why_input_lost(topic)

    def why_no_result(self) -> str:
        """Return the inputs whose messages found no partner, and a remedy."""
        return self._bound.why_no_result() if self._bound else super().why_no_result()

    def _counts_by_topic(self) -> Mapping[str, FrameCounts]:
        return self._bound.counts_by_topic() if self._bound else super()._counts_by_topic()

    def _clear_inputs(self) -> None:
        self._bound = self._format = None
        self._counts.noun = 'image'


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal stops it."""
    return run_node(TensorNode, args)


if __name__ == '__main__':
    sys.exit(main())
