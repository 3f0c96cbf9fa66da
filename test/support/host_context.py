"""Execution contexts that compute on the host, for the CUDA of test/unit/runtime/conftest.py."""

from collections.abc import Callable
from typing import Any

import numpy as np

from support.memory import array_at
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.vision.thresholds import Thresholds

Arrays = dict[str, np.ndarray]
ASKED = Thresholds(score=0.5, iou=0.5, max_detections=50)


class HostContext:
    """
    A context that enqueues `compute` on the arrays at its addresses at the time of a call.

    :param compute: called with the context and its arrays by name.
    :param shape_of: called with the context and the name of a tensor.
    """

    def __init__(
        self,
        engine: Any,
        compute: Callable[['HostContext', Arrays], Any],
        shape_of: Callable[['HostContext', str], tuple[int, ...]],
    ) -> None:
        self.engine, self.compute, self.shape_of = engine, compute, shape_of
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.gpu = engine.cuda.current

    def set_aux_streams(self, streams: list[int]) -> None:
        self.engine.given_streams.append(streams)

    def set_device_memory(self, ptr: int, nbytes: int) -> None:
        self.activations = (ptr, nbytes)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = tuple(shape)
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shape_of(self, name)

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def is_stream_capturable(self, stream: int) -> bool:
        return self.engine.is_capturable

    def execute_async_v3(self, stream: int) -> bool:
        cuda = self.engine.cuda
        assert cuda.current == self.gpu is not None, 'the engine runs on another GPU'
        arrays = {
            name: array_at(address, self.get_tensor_shape(name))
            for name, address in self.addresses.items()
        }
        self.engine.runs += 1
        cuda._put(lambda: self.compute(self, arrays))
        return not self.engine.refuses


def onnx_context(engine: Any, network: OnnxRuntimeRunner) -> HostContext:
    """Return a context that runs a network in ONNX Runtime, whose batch is that of its image."""
    shapes = {each.name: each.shape for each in (*network.inputs, *network.outputs)}

    def shape_of(context: HostContext, name: str) -> tuple[int, ...]:
        first, *others = shapes[name] or (None,)
        if first != -1:
            return shapes[name]
        return (context.shapes[network.inputs[0].name][0], *others)

    def compute(_: HostContext, arrays: Arrays) -> None:
        inputs = {spec.name: arrays[spec.name] for spec in network.inputs}
        for name, value in network.infer(inputs).items():
            arrays[name][:] = value

    context = HostContext(engine, compute, shape_of)
    context.network = network
    return context


def captured(pipeline: Any, slot: int = 0, batch: int = 1) -> Any:
    """Return the graphs that a slot of a GpuPipeline has captured for a batch."""
    slot = pipeline.slots.all[slot]
    return slot.captured(slot.buffers_for(batch))


def image_bytes(pipeline: Any, cuda: Any) -> bytes:
    """Return the images in the memory of the first slot, where its last graph reads them."""
    slot = pipeline.slots.all[0]
    address = slot.memory.pinned.ptr if slot.memory.image is None else slot.memory.image.ptr
    return bytes(cuda._memory[address])[slot._last.captured.addresses.images[0] - address :]
