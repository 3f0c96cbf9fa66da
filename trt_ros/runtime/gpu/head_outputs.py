"""Outputs of a network as the layouts of its head read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trt_ros.runtime.gpu.decode import OutputSlice
from trt_ros.runtime.gpu.decode_boxes import GpuBoxes
from trt_ros.runtime.gpu.decode_classes import GpuClasses
from trt_ros.runtime.gpu.decode_dense import GpuDense, GpuMasks
from trt_ros.runtime.gpu.tensorrt_context import Shape


@dataclass(frozen=True)
class HeadOutputs:
    """
    Shapes and dtypes of the outputs of a network.

    :param shapes: for the present inputs.
    :param input_hw: size of the network's images.
    """

    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    input_hw: tuple[int, int]

    def slice(self, output: str, start: int, row: int, column: int = 1) -> OutputSlice:
        """Return a slice of an output, see `OutputSlice`."""
        return OutputSlice(output, self.dtypes[output], start, row, column)

    def rows(self, *outputs: str) -> list[tuple[int, int]]:
        """Return the last two axes of some outputs: rows and values."""
        return [(self.shapes[name][-2], self.shapes[name][-1]) for name in outputs]


#: By class of the head: the GPU decoder for a head and its outputs, None where there is none.
Layouts = Mapping[
    type,
    Callable[[Any, HeadOutputs], GpuBoxes | GpuDense | GpuMasks | GpuClasses | None],
]
