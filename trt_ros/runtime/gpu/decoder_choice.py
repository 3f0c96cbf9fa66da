"""Choice of the GPU decoder for the head of a decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trt_ros.decode.choice import Decoder
from trt_ros.runtime.gpu import layouts_of_boxes, layouts_of_pixels
from trt_ros.runtime.gpu.decode import GpuDecoder
from trt_ros.runtime.gpu.head_outputs import HeadOutputs, Layouts
from trt_ros.runtime.gpu.tensorrt_context import Shape
from trt_ros.tensors import TensorSpec

_LAYOUTS: Layouts = {
    **layouts_of_boxes.LAYOUTS,
    **layouts_of_pixels.LAYOUTS,
}


def gpu_decoder(
    decoder: Decoder[Any],
    outputs: Sequence[TensorSpec],
    shapes: Mapping[str, Shape],
    input_hw: tuple[int, int],
) -> GpuDecoder | None:
    """
    Return the GPU decoder that equals `decoder`; None where only the CPU can decode.

    Inconsistent shapes are left to the CPU decoder too, which reports the error.

    :param shapes: shapes of the outputs for the present inputs.
    :param input_hw: size of the network's images.
    """
    layout = _LAYOUTS.get(type(decoder.head))
    if layout is None:
        return None
    dtypes = {spec.name: spec.dtype for spec in outputs}
    found = layout(decoder.head, HeadOutputs(shapes, dtypes, input_hw))
    return found if found is not None and found.is_supported else None
