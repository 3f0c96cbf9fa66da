"""The seams between the nodes and whatever executes the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

ResultT_co = TypeVar('ResultT_co', covariant=True)


class Network(Protocol):
    """
    An open network; whoever opened it closes it.

    `inputs` and `outputs` are in the network's own order. `metadata` is the ONNX file's. `backend`
    is the name of what runs it ('onnxruntime', 'tensorrt', 'tensorrt_rtx'); that of an engine may
    be another than the parameter's.
    """

    @property
    def backend(self) -> str: ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def metadata(self) -> Mapping[str, str]: ...

    def close(self) -> None:
        """Give everything back; may be called twice."""
        ...


class Runner(Network, Protocol):
    """Runs one network from arrays to arrays."""

    def infer(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """
        Run the network once.

        :param tensors: one array an input, C-contiguous, of the input's dtype and shape.
        :returns: one array an output; valid until the next call.
        :raises TensorMismatchError: when an input is missing, or has another shape or dtype.
        :raises ClosedError: after close().
        """
        ...


class FrameRunner(Protocol[ResultT_co]):
    """
    Runs one network from frame to result, the whole way; owns the network.

    `log_lines` are what else the log should show. `max_batch` is the number of frames per run.
    """

    @property
    def log_lines(self) -> tuple[str, ...]: ...

    @property
    def max_batch(self) -> int: ...

    def warm_up(self) -> None:
        """Run on grey frames: allocate, and show whether it works."""
        ...

    def infer(self, frame: Frame, thresholds: Thresholds) -> ResultT_co:
        """
        Find what is in one image; the thresholds are for boxes.

        :returns: what its task finds, in the image's pixels.
        :raises BadFrameError: when the image cannot be read as its encoding says.
        :raises ClosedError: after close().
        """
        ...

    def infer_all(self, frames: Sequence[Frame], thresholds: Thresholds) -> Sequence[ResultT_co]:
        """
        Find what is in each of several images, in as few runs as the network allows.

        :param frames: of any sizes and encodings; maybe none.
        :returns: one result a frame.
        :raises BadFrameError: when one of them cannot be read as its encoding says.
        :raises ClosedError: after close().
        """
        ...

    def close(self) -> None:
        """Give everything back, the network too; may be called twice."""
        ...


def settle(runner: Runner, tensors: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Settle how many CPU threads run such tensors, where that is open; return log lines."""
    settle_threads = getattr(runner, 'settle_threads', None)
    return settle_threads(tensors) if settle_threads is not None else ()


def check_inputs(specs: Sequence[TensorSpec], tensors: Mapping[str, np.ndarray]) -> None:
    """
    Hold `tensors` against what the network takes.

    :raises TensorMismatchError: when an input is missing, unknown, or of another shape or dtype.
    """
    for spec in specs:
        tensor = tensors.get(spec.name)
        if tensor is None:
            raise TensorMismatchError(
                f'The input {spec} is missing.',
                cause=f'Given were {", ".join(tensors) or "no tensors"}.',
            )
        if not spec.accepts(tensor):
            shape = ', '.join(str(size) for size in tensor.shape)
            raise TensorMismatchError(
                f'The network takes {spec}, but {spec.name} came as ({shape}) {tensor.dtype}.'
            )
    if len(tensors) > len(specs):
        unknown = sorted(tensors.keys() - {spec.name for spec in specs})
        raise TensorMismatchError(
            f'The network has no input named {", ".join(unknown)}.',
            cause=f'It takes {"; ".join(str(spec) for spec in specs)}.',
        )
