"""Node that runs any network on images or tensors and publishes its output tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
import sys
from typing import Any

import numpy as np
from std_msgs.msg import Header

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.nodes.inference import Camera, InferenceNode, InferenceParameters
from trt_ros.progress import Reporter
from trt_ros.ros.dds.cdr_tensors import write_tensor_list
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node
from trt_ros.ros.qos import why_lost, why_silent
from trt_ros.ros.tensors import TensorStream
from trt_ros.runtime.backends import open_network
from trt_ros.runtime.options import PREPROCESSING, PipelineOptions
from trt_ros.runtime.runner import Runner
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.registry import TENSORS
from trt_ros.vision.frame import Frame
from trt_ros.vision.results import Tensors


@dataclass(frozen=True)
class TensorInputParameters:
    """Parameters of the network's input."""

    input: str = param(
        'image',
        'Input topic: `image` (preprocessed) or `tensors` (one tensor per network input).',
        choices=('image', 'tensors'),
    )


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class TensorParameters(InferenceParameters, TensorInputParameters, PipelineOptions):
    """Parameters of the tensor node, which are also the options of its pipeline."""


class TensorNode(InferenceNode):
    """A node that runs any network, with the TensorList messages of Isaac ROS."""

    Parameters = TensorParameters
    families = TENSORS

    def __init__(self, name: str = 'tensor', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._runner: Runner | None = None

    def advertise(self, camera: Camera) -> Callable[[np.ndarray], None]:
        """Create the publishers of a camera's results."""
        return serialized_publish(self, camera.publisher(self._message_type, 'tensors'))

    def publish(
        self,
        outputs: Callable[[np.ndarray], None],
        result: Tensors,
        header: Header,
        frame: Frame | None,
    ) -> None:
        """Publish the output tensors of one run; `frame` is None for input tensors."""
        outputs(
            write_tensor_list(result, (header.stamp.sec, header.stamp.nanosec), header.frame_id)
        )

    # With input tensors there are no images and no pipeline.

    def image_topics(self) -> tuple[str, ...]:
        """Return the image topics; 'image' alone for input tensors, which have one source."""
        return super().image_topics() if self.parameters.input == 'image' else ('image',)

    def open(self) -> Iterable[str]:
        """Open the pipeline or, for input tensors, the network; return log lines."""
        self._message_type = tensor_list_type()
        if self.parameters.input == 'image':
            return super().open()
        if self.parameters.unified_memory == 'on':
            raise ParameterError(
                'unified_memory is on, but input is tensors.',
                cause='Only images are read in place; tensors are copied to the GPU.',
                remedy='Set unified_memory to auto or off.',
            )
        self._warn_about_ignored()
        self.while_configured.callback(self._clear_runner)
        runner, _, backend_line = open_network(
            self.parameters, Reporter(self.report, self.cancelled)
        )
        self._runner = self.while_configured.enter_context(closing(runner))
        runner.on_fault(self.fail)
        unsupported = [str(spec) for spec in runner.inputs if spec.dtype == 'bfloat16']
        if unsupported:
            raise TensorMismatchError(
                f'Unsupported network inputs: {"; ".join(unsupported)}.',
                cause='A TensorList has no bfloat16 type.',
                remedy='Export the network with float32 or float16 inputs.',
            )
        lines: tuple[str, ...] = ()
        if all(min(spec.shape, default=1) > 0 for spec in runner.inputs):
            zeros = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in runner.inputs}
            runner.infer(zeros)
            lines = runner.settle_threads(zeros)
        return (
            backend_line,
            *lines,
            *runner.log_lines,
            *map(str, (*runner.inputs, *runner.outputs)),
        )

    def activate(self) -> None:
        """Subscribe to the images or the tensors."""
        if self._runner is None:
            super().activate()
        else:
            self.while_active.enter_context(
                closing(
                    TensorStream(
                        self,
                        self._message_type,
                        self._counts,
                        self._on_tensors,
                        is_wanted=self.cameras[0].is_wanted,
                    )
                )
            )

    def _on_tensors(self, header: Header, tensors: Mapping[str, np.ndarray]) -> None:
        runner = self._runner
        assert runner is not None
        with self._counts.timed('infer'):
            result = runner.infer(converted(tensors, runner.inputs))
        with self._counts.timed('publish'):
            self.publish(self.cameras[0].outputs, result, header, None)
        self._counts.publish()

    def _warn_about_ignored(self) -> None:
        # Only a warning, because one parameter file may serve both inputs.
        about_images = {
            *PREPROCESSING,
            'image_transport',
            'image_topics',
            'batch_wait_ms',
            'max_batch_size',
            'frames_in_flight',
        }
        ignored = [
            each.name
            for each in fields(self.parameters)
            if each.name in about_images and getattr(self.parameters, each.name) != each.default
        ]
        if ignored:
            self.get_logger().warning(
                f'Parameters without effect on input tensors: {", ".join(ignored)}.'
            )

    def why_no_input(self, topic: str) -> str:
        """Return the resolved topic and the likely reason why it has no messages."""
        if self._runner is None:
            return super().why_no_input(topic)
        why = why_silent(self, 'tensors', 'isaac_ros_tensor_list_interfaces/msg/TensorList')
        return f'on {self.resolve_topic_name("tensors")}: {why}'

    def why_input_lost(self, topic: str) -> str:
        """Return the resolved topic and the likely reason why its messages are lost."""
        if self._runner is None:
            return super().why_input_lost(topic)
        return f'on {self.resolve_topic_name("tensors")}: {why_lost(self, "tensors")}'

    def _clear_runner(self) -> None:
        self._runner = None


def tensor_list_type() -> type:
    """
    Return the class of TensorList.

    :raises ParameterError: when the message is not installed.
    """
    try:
        from isaac_ros_tensor_list_interfaces.msg import TensorList
    except ImportError as error:
        raise ParameterError(
            'Package isaac_ros_tensor_list_interfaces is not installed.',
            cause=str(error),
            remedy='Build them with the workspace, from its root: colcon build --base-paths src '
            'src/trt_ros/standalone/interfaces/isaac_ros_tensor_list_interfaces, '
            "and source it again. NVIDIA's isaac_ros_common has the same package.",
        ) from error
    tensor_list: type = TensorList
    return tensor_list


def converted(
    tensors: Mapping[str, np.ndarray], inputs: tuple[TensorSpec, ...]
) -> dict[str, np.ndarray]:
    """
    Convert tensors to the dtypes of the network's inputs, C-contiguous, within one kind of dtype.

    A single tensor is assigned to a single input under any name.
    """
    if len(inputs) == len(tensors) == 1:
        tensors = dict(zip([inputs[0].name], tensors.values()))
    dtypes = {spec.name: np.dtype(spec.dtype) for spec in inputs}
    result = {}
    for name, tensor in tensors.items():
        dtype = dtypes.get(name, tensor.dtype)
        if dtype.kind != tensor.dtype.kind and dtype.kind != 'b':
            dtype = tensor.dtype.newbyteorder('=')  # The runner rejects it with an error.
        result[name] = np.ascontiguousarray(tensor, dtype).reshape(tensor.shape)
    return result


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal stops it."""
    return run_node(TensorNode, args)


if __name__ == '__main__':
    sys.exit(main())
