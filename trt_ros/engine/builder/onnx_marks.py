"""Intermediate tensors of an ONNX model as additional outputs, to compare it layer by layer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from trt_ros.engine.builder.onnx_check import refuse_beyond_protobuf
from trt_ros.engine.builder.onnx_nodes import (
    QUANTIZING,
    inlined,
    live_tensors,
    title,
    used,
    values_of,
)


@dataclass(frozen=True)
class Layer:
    """A node of the model by the name of one output; `node`: its own, or its first output."""

    output: str
    op: str
    node: str

    def __str__(self) -> str:
        return f'{self.op} {self.node} (output {self.output})'


class LayerGraph:
    """
    Layers of a model, each named by an output, in topological order.

    :ivar layers: names of the layers that can be compared: float values that depend on the
        inputs. Outputs of Q/DQ nodes are left out, since reading one would prevent its fusion.
    :ivar nodes: the layer of each tensor, whether it can be compared or not.
    :ivar parents: per tensor, the closest of `layers` that it is computed from.
    :ivar outputs: names of the outputs of the model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model = inlined(model)
        floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
        self._values = {
            name: value
            for name, value in values_of(model).items()
            if value.type.tensor_type.elem_type in floats
        }
        live = live_tensors(model.graph)
        self.outputs = {value.name for value in model.graph.output}
        self.layers: list[str] = []
        self.nodes: dict[str, Layer] = {}
        self.parents: dict[str, tuple[str, ...]] = {}
        sources: dict[str, tuple[str, ...]] = {}
        for node in model.graph.node:
            parents = tuple(
                dict.fromkeys(each for name in used(node) for each in sources.get(name, ()))
            )
            for name in filter(None, node.output):
                self.nodes[name] = Layer(name, node.op_type, title(node))
                self.parents[name] = sources[name] = parents
                if name in live and name in self._values and node.op_type not in QUANTIZING:
                    self.layers.append(name)
                    sources[name] = (name,)

    @classmethod
    def read(cls, path: Path) -> LayerGraph:
        """Load a model with its weights; raise ModelError if it is too large."""
        refuse_beyond_protobuf(path, 'be compared layer by layer', 'Remove --layers.')
        return cls(onnx.load(str(path)))

    def upstream(self, name: str, *, without: Collection[str] = ()) -> set[str]:
        """
        Return the layers that a tensor is computed from.

        :param without: layers to leave out, and what only they are computed from.
        """
        found: set[str] = set()
        pending = [name]
        while pending:
            for parent in self.parents.get(pending.pop(), ()):
                if parent not in found and parent not in without:
                    found.add(parent)
                    pending.append(parent)
        return found

    def write(self, path: Path, outputs: Iterable[str]) -> None:
        """Write the model with more outputs, names of `layers`, to one file."""
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        model.graph.output.extend(
            self._values[name] for name in outputs if name not in self.outputs
        )
        onnx.save(model, str(path))
