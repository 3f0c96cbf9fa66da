"""Search for the first layer at which two runs of a network differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trt_ros.engine.builder.onnx_marks import LayerGraph

LAYERS_PER_BUILD = 32  # Each output that is read prevents a fusion.

#: Returns per name, and per output of the network, why the tensor differs, '' where it does not.
Measure = Callable[[Sequence[str]], Mapping[str, str]]


def first_layer(
    graph: LayerGraph, measure: Measure, *, per_build: int = LAYERS_PER_BUILD
) -> tuple[str, dict[str, str]]:
    """
    Find a layer that differs although everything that it is computed from agrees.

    Layers spread evenly over the network are measured first, then those between the first that
    differs and those that agree, so that a network of N layers takes about
    log(N) / log(`per_build`) builds.

    :returns: name of the layer's output, '' where no tensor differs, and all that was measured.
    """
    known = dict(measure(_spread(graph.layers, per_build)))
    layer = _first_upstream(graph, _first_difference(graph, known), known)
    while layer:
        todo = _to_measure(graph, layer, known)
        if not todo:
            break
        known.update(measure(_spread(todo, per_build)))
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
    """Return at most `count` names at equal distances, the last one included."""
    if len(names) <= count:
        return list(names)
    return [names[(index + 1) * len(names) // count - 1] for index in range(count)]
