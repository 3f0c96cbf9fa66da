"""Bundles on a GPU: the engines of all networks, which run in one captured graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
import math

import numpy as np

from trt_ros.cuda.calls import check, runtime
from trt_ros.cuda.memory import DeviceBuffer, copy_async
from trt_ros.engine.engine import Engine
from trt_ros.model.bundle import Bundle, Group
from trt_ros.profiling import mark
from trt_ros.runtime.bundle import describe_bundle
from trt_ros.runtime.gpu.captured_graph import Stage
from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
from trt_ros.runtime.gpu.tensorrt_context import Contexts, Execution, activation_nbytes
from trt_ros.tensors import Shape, item_nbytes

ALIGNMENT = 256  # Of the addresses of tensors, in bytes.


class TensorRTBundle(TensorRTRunner):
    """The networks of a bundle on one GPU as one network, which owns them."""

    engine: BundleEngine

    def __init__(self, bundle: Bundle, members: Mapping[str, TensorRTRunner]) -> None:
        first = next(iter(members.values()))
        engines = {name: member.engine for name, member in members.items()}
        super().__init__(
            first.gpu,
            BundleEngine(bundle, engines),
            options=first.options,
            use_graph=first.use_graph,
        )
        describe_bundle(self, bundle, members)
        self._bundle, self._members = bundle, members

    def has_kernels(self) -> bool:
        return all(member.has_kernels() for member in self._members.values())

    def open_contexts(self, activations: DeviceBuffer | None = None) -> Contexts:
        return BundleContexts(self._bundle, self.engine, self._members)


class BundleEngine(Engine):
    """The engines of a bundle, which it owns, as one; all use one account of memory."""

    def __init__(self, bundle: Bundle, engines: Mapping[str, Engine]) -> None:
        self._engines = engines
        first = next(iter(engines.values()))
        self.library, self.path, self.account = first.library, bundle.path, first.account
        for engine in engines.values():
            if engine is not first:
                self.account.add('engine', engine.account.device['engine'])
                engine.account = self.account
        self.inputs, self.outputs = bundle.inputs, bundle.outputs
        self.metadata, self.profiles = {}, ()
        self.diagnostics = {
            f'{key} of {name}': value
            for name, engine in engines.items()
            for key, value in engine.diagnostics.items()
        }

    @property
    def users(self) -> int:
        """Number of open engines that share the most shared one of them."""
        return max(engine.users for engine in self._engines.values())

    def retire(self) -> None:
        for engine in self._engines.values():
            engine.retire()

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()


class BundleContexts(Contexts):
    """Factory of the contexts of a bundle, all of which use the same activation memory."""

    def __init__(
        self, bundle: Bundle, engine: BundleEngine, members: Mapping[str, TensorRTRunner]
    ) -> None:
        self._bundle, self.engine = bundle, engine
        nbytes = max(activation_nbytes(member.engine.handle) for member in members.values())
        with ExitStack() as undo:
            activations = DeviceBuffer(nbytes, 'activations', engine.account)
            undo.callback(activations.close)
            self._contexts: dict[str, Contexts] = {}
            for name, member in members.items():
                self._contexts[name] = member.open_contexts(activations)
                undo.callback(self._contexts[name].close)
            self._owned = undo.pop_all()

    def new(self, shapes: Mapping[str, Shape]) -> Execution:
        """Create a context per network; a bundle has fixed shapes."""
        executions: dict[str, Execution] = {}
        with ExitStack() as undo:
            for name, contexts in self._contexts.items():
                inputs = self._bundle.networks[name].inputs
                executions[name] = contexts.new(
                    {port: each.spec.shape for port, each in inputs.items()}
                )
                undo.callback(executions[name].close)
            made = BundleExecution(self._bundle, self.engine, executions)
            undo.pop_all()
            return made

    def save_cache(self) -> None:
        for contexts in self._contexts.values():
            contexts.save_cache()

    def close(self) -> None:
        self._owned.close()


class BundleExecution(Execution):
    """Contexts of a bundle's networks; an output and the inputs it flows to are one tensor."""

    def __init__(
        self, bundle: Bundle, engine: Engine, executions: Mapping[str, Execution]
    ) -> None:
        self._bundle, self._executions = bundle, executions
        self._held: Sequence[Group] = ()
        self._ids = {name: each for each, name in bundle.names.items()}
        self._addresses: dict[str, int] = {}
        self._targets: dict[str, list[str]] = {}
        for target, source in bundle.flow.items():
            self._targets.setdefault(source, []).append(target)
        inputs, outputs = bundle.ports('input'), bundle.ports('output')
        #: Second memory of outputs that are carried to the next step of a loop.
        self._scratch: dict[str, DeviceBuffer] = {}
        #: Memory of the values of each step, and the bytes from one to the next.
        self._values: dict[str, tuple[DeviceBuffer, int]] = {}
        with ExitStack() as undo:
            undo.callback(self._close_contexts)
            for group in bundle.groups:
                for output in set(group.carry.values()):
                    spec = outputs[output].spec
                    nbytes = math.prod(spec.shape) * item_nbytes(spec.dtype)
                    buffer = DeviceBuffer(nbytes, 'states', engine.account)
                    undo.callback(buffer.close)
                    self._scratch[output] = buffer
                for name, values in group.values.items():
                    nbytes = math.prod(inputs[name].spec.shape) * values.itemsize
                    stride = -(-nbytes // ALIGNMENT) * ALIGNMENT
                    padded = np.zeros((group.steps, stride), np.uint8)
                    padded[:, :nbytes] = values.reshape(group.steps, -1).view(np.uint8)
                    buffer = DeviceBuffer(padded.nbytes, 'tensors', engine.account)
                    undo.callback(buffer.close)
                    copy_async(buffer.ptr, padded.ctypes.data, padded.nbytes, 0)
                    check(runtime().cudaStreamSynchronize(0), 'write the values of a loop')
                    self._values[name] = buffer, stride
            self._owned = undo.pop_all()

    def _close_contexts(self) -> None:
        for each in self._executions.values():
            each.close()

    def shape_of(self, name: str) -> Shape:
        network, _, port = self._ids[name].partition('/')
        return self._executions[network].shape_of(port)

    def bind(self, name: str, address: int) -> None:
        each = self._ids[name]
        self._addresses[each] = address
        self._bind(each, address)

    def _bind(self, name: str, address: int) -> None:
        """Set the address of an input, or of an output and the inputs that it flows to."""
        for each in (name, *self._targets.get(name, ())):
            network, _, port = each.partition('/')
            self._executions[network].bind(port, address)

    def hold(self, names: Collection[str]) -> None:
        self._held = self._bundle.groups_of({self._ids[name] for name in names})

    def enqueue_held(self, stream: int) -> None:
        for group in self._held:
            self._run(group, stream)

    def stages(self) -> list[Stage]:
        return [
            (f'inference {", ".join(group.networks)}', partial(self._run, group))
            for group in self._bundle.groups
            if group not in self._held
        ]

    def enqueue(self, stream: int) -> None:
        for group in self._bundle.groups:
            self._run(group, stream)

    def _run(self, group: Group, stream: int) -> None:
        for step in range(group.steps):
            self._bind_step(group, step)
            for network in group.networks:
                with mark(network):
                    self._executions[network].enqueue(stream)

    def _bind_step(self, group: Group, step: int) -> None:
        """Set the addresses of a step: outputs alternate, so that the last one has its own."""
        for name, (buffer, stride) in self._values.items():
            if name in group.values:
                self._bind(name, buffer.ptr + step * stride)
        for output in set(group.carry.values()):
            self._bind(output, self._carried(group, output, step))
        for name, output in group.carry.items():
            own = self._addresses[self._bundle.flow.get(name, name)]
            self._bind(name, self._carried(group, output, step - 1) if step else own)

    def _carried(self, group: Group, output: str, step: int) -> int:
        """Return the address of an output of a step."""
        is_own = (group.steps - 1 - step) % 2 == 0
        return self._addresses[output] if is_own else self._scratch[output].ptr

    def why_not_capturable(self, stream: int) -> str:
        reasons = (
            (name, each.why_not_capturable(stream)) for name, each in self._executions.items()
        )
        return next((f'{name}: {reason}' for name, reason in reasons if reason), '')

    def close(self) -> None:
        self._owned.close()
