"""Base classes of open networks."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from trt_ros.errors import ModelError, TensorMismatchError
from trt_ros.model.bundle import Port
from trt_ros.progress import Reporter
from trt_ros.tensors import Arrays, TensorSpec


class Network:
    """
    An open network; the caller that opened it closes it.

    :ivar backend: name of the backend that runs it ('onnxruntime', 'tensorrt', 'tensorrt_rtx',
        'triton'); that of an engine file may differ from the parameter `backend`.
    :ivar inputs: in the network's own order, as are `outputs`.
    :ivar metadata: of the ONNX file.
    :ivar log_lines: lines for the log.
    :ivar bindings: of inputs that the options do not bind.
    :ivar default_outputs: names of the outputs to use; () for all.
    :ivar keeps_inputs: whether inputs that a run does not give keep their last value.
    :ivar frequency: of the runs in Hz; 0.0 if unknown.
    :ivar commands: outputs whose kind or elements are known, by name.
    """

    backend: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: Mapping[str, str]
    log_lines: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()
    default_outputs: tuple[str, ...] = ()
    keeps_inputs: bool = False
    frequency: float = 0.0
    commands: Mapping[str, Port] = MappingProxyType({})

    def compiling(self, report: Reporter) -> AbstractContextManager[None]:
        """Return a context for the first runs, where the next start finds what they compile."""
        return nullcontext()

    def close(self) -> None:
        """Release all resources; may be called twice."""
        raise NotImplementedError


class Runner(Network):
    """
    An open network that runs from arrays to arrays.

    :cvar overlaps: whether runs of several threads gain from overlapping.
    :cvar arrays_only: whether preprocessing and decoding run on the CPU, whatever the backend.
    """

    overlaps = arrays_only = False

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        """
        Run the network once.

        :param tensors: one array per input, C-contiguous, of the input's dtype and shape.
        :returns: one array per output; valid until the next call.
        :raises TensorMismatchError: when an input is missing, or has another shape or dtype.
        :raises ClosedError: after close().
        """
        raise NotImplementedError

    def diagnostics(self) -> dict[str, str]:
        """Return values for /diagnostics by their key."""
        return {}

    def tune_threads(self, tensors: Arrays) -> tuple[str, ...]:
        """Choose CPU threads for inputs after a first infer(); return lines for the log."""
        return ()


def tensor_specs(
    ports: Iterable[Any],
    kind: str,
    dtypes: Mapping[str, str],
    mode: Literal['input', 'output'],
    owner: object,
) -> tuple[TensorSpec, ...]:
    """
    Return inputs or outputs as a library describes them; raise ModelError for an unknown type.

    :param ports: objects with `name`, `shape` and a type.
    :param kind: name of the attribute of the type, of which `dtypes` has the NumPy name.
    :param owner: of the ports, for the error.
    """
    specs = []
    for each in ports:
        dtype = dtypes.get(getattr(each, kind))
        if dtype is None:
            raise ModelError(
                f'The {mode} {each.name} of {owner} has the type {getattr(each, kind)}, which '
                'NumPy lacks.',
                remedy='Export with float32 or float16 inputs and outputs.',
            )
        shape = tuple(size if isinstance(size, int) else -1 for size in each.shape)
        specs.append(TensorSpec(each.name, shape, dtype, mode))
    return tuple(specs)


class CopyingRunner(Runner):
    """
    An open network whose outputs stay valid; `close` closes it, too.

    :param like: has the inputs and outputs in its place; the network may lack some of the inputs.
    """

    def __init__(self, network: Runner, like: Runner | None = None) -> None:
        self._network, like = network, like or network
        self.backend, self.metadata = like.backend, like.metadata
        self.inputs, self.outputs = like.inputs, like.outputs

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        given = {spec.name: tensors[spec.name] for spec in self._network.inputs}
        return {name: np.array(value) for name, value in self._network.infer(given).items()}

    def close(self) -> None:
        self._network.close()


def check_inputs(specs: Sequence[TensorSpec], tensors: Arrays) -> None:
    """Raise TensorMismatchError if `tensors` are not the network's inputs."""
    for spec in specs:
        tensor = tensors.get(spec.name)
        if tensor is None:
            raise TensorMismatchError(
                f'The input {spec} is missing.',
                cause=f'The inputs given are: {", ".join(tensors) or "none"}.',
                remedy=f'Pass an array named {spec.name!r}.',
            )
        if not spec.accepts(tensor):
            shape = ', '.join(str(size) for size in tensor.shape)
            raise TensorMismatchError(
                f'The network takes {spec}, but {spec.name} came as ({shape}) {tensor.dtype}.',
                remedy='Pass an array of that shape and type.',
            )
    if len(tensors) > len(specs):
        unknown = sorted(tensors.keys() - {spec.name for spec in specs})
        raise TensorMismatchError(
            f'The network has no input named {", ".join(unknown)}.',
            cause=f'It takes {"; ".join(str(spec) for spec in specs)}.',
            remedy='Pass only these.',
        )
