"""Comparison of an engine with ONNX Runtime layer by layer, up to the first that differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trt_ros.errors import TrtRosError
from trt_ros.runtime.agreement import Agreement, agreements
from trt_ros.tensors import Arrays

if TYPE_CHECKING:
    from trt_ros.engine.builder.onnx_marks import LayerGraph

LAYERS_PER_BUILD = 32  # Each output that is read prevents a fusion.

#: Returns per name, and per output of the network, why the tensor differs, '' where it does not.
Measure = Callable[[Sequence[str]], Mapping[str, str]]


def first_layer(graph: LayerGraph, measure: Measure) -> tuple[str, dict[str, str]]:
    """
    Find a layer that differs although everything that it is computed from agrees.

    Layers spread evenly over the network are measured first, then those between: for N layers,
    log(N) / log(LAYERS_PER_BUILD) builds.

    :returns: name of the layer's output, '' where no tensor differs, and all that was measured.
    """
    known = dict(measure(_spread(graph.layers, LAYERS_PER_BUILD)))
    layer = _first_upstream(graph, _first_difference(graph, known), known)
    while layer:
        todo = _to_measure(graph, layer, known)
        if not todo:
            break
        known.update(measure(_spread(todo, LAYERS_PER_BUILD)))
        layer = _first_upstream(graph, layer, known)
    return layer, known


def _first_upstream(graph: LayerGraph, layer: str, known: Mapping[str, str]) -> str:
    """Return the first tensor that differs among a layer and those that it is computed from."""
    reachable = _suspects(graph, layer, known) | {layer}
    return next((name for name in graph.parents if name in reachable and known.get(name)), '')


def _first_difference(graph: LayerGraph, known: Mapping[str, str]) -> str:
    """Return the first output that differs, or the first layer where all outputs agree."""
    different = [name for name in graph.parents if known.get(name)]
    return next((name for name in different if name in graph.outputs), next(iter(different), ''))


def _suspects(graph: LayerGraph, layer: str, known: Mapping[str, str]) -> set[str]:
    """Return the layers upstream, except those behind layers that agree."""
    return graph.upstream(layer, without={name for name, why in known.items() if not why})


def _to_measure(graph: LayerGraph, layer: str, known: Mapping[str, str]) -> list[str]:
    """Return unmeasured layers upstream, in topological order; empty once all parents agree."""
    suspects = _suspects(graph, layer, known)
    cleared: set[str] = set()  # Values that agree were probably computed from such.
    for name in known:
        if not known[name]:
            cleared |= graph.upstream(name)
    likely = [name for name in graph.layers if name in suspects - cleared and name not in known]
    return likely or [name for name in graph.parents[layer] if name not in known]


def _spread(names: Sequence[str], count: int) -> list[str]:
    if len(names) <= count:
        return list(names)
    return [names[(index + 1) * len(names) // count - 1] for index in range(count)]


#: Opens a model file with the library that is compared; the second path is a folder for engines.
Open = Callable[[Path, Path], Any]


@dataclass
class LayerReport:
    """Result of a search; texts are '' where nothing differs, or nothing failed."""

    first: str = ''
    node: str = ''
    reason: str = ''
    measured: int = 0
    error: str = ''
    agreements: dict[str, Agreement] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return lines to print."""
        if self.error:
            return [f'The search for the layer failed. {self.error}']
        if self.first:
            return [
                f'first layer that differs: {self.first}: {self.reason}; the layers before it '
                f'agree ({self.measured} compared)'
            ]
        return [
            f'no layer differs of the {self.measured} that were compared. If an output does, '
            'a fused kernel is the likely cause: reading a layer prevents its fusion'
        ]


def compare_layers(
    model: Path, tensors: Arrays, open_ours: Open, *, min_cosine: float, in_reference: bool = False
) -> LayerReport:
    """Find the first layer that differs from ONNX Runtime, or is not finite `in_reference`."""
    from trt_ros.engine.builder.onnx_marks import LayerGraph
    from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner

    report = LayerReport()
    with TemporaryDirectory(prefix='trt_ros') as name:
        folder = Path(name)
        try:
            graph = LayerGraph.read(model)

            def measure(layers: Sequence[str]) -> dict[str, str]:
                path = folder / 'layers.onnx'
                graph.write(path, layers)
                with closing(OnnxRuntimeRunner.open(path)) as reference:
                    want = reference.infer(tensors)
                if in_reference:
                    found = agreements(want, want)
                    report.agreements |= found
                    return {key: each.problem(min_cosine) for key, each in found.items()}
                with closing(open_ours(path, folder / 'engines')) as ours:
                    found = agreements(
                        ours.infer({spec.name: tensors[spec.name] for spec in ours.inputs}), want
                    )
                report.agreements |= found
                return {
                    key: each.problem(min_cosine, of_layer=True) for key, each in found.items()
                }

            first, known = first_layer(graph, measure)
        except TrtRosError as error:
            report.error = str(error)
            return report
    report.measured = len(known)
    if first:
        layer = graph.nodes[first]
        report.first, report.node, report.reason = str(layer), layer.node, known[first]
    return report
