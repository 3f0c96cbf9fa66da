"""Networks of a few ONNX nodes, written to files."""

from collections.abc import Mapping, Sequence
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from trt_ros.runtime.cpu.checked_runner import PassedChecks

#: Of two images, a tensor and a state, for `save_text`.
POLICY = (
    '(float[1, 3, 8, 8] left, float[1, 3, 8, 8] right, float[1, 4] q, float[1] h) => '
    '(float[1, 3, 8, 8] difference, float[1, 4] action, float[1] hn) <float[1] one = {1}> '
    '{ difference = Sub(left, right) action = Add(q, h) hn = Add(h, one) }'
)


def save(model: onnx.ModelProto, path: Path | str) -> None:
    """
    Write a network, and record in the cache of the tests that it was checked on this machine.

    Otherwise its first start takes a process that loads it, see CheckedRunner.
    """
    onnx.save(model, path)
    shapes = {
        each.name: [size.dim_value for size in each.type.tensor_type.shape.dim]
        for each in model.graph.input
    }
    if 'XDG_CACHE_HOME' in os.environ and all(map(all, shapes.values())):
        checks = PassedChecks(Path(path), '')
        text = ' '.join(f'{name}{shapes[name]}' for name in sorted(shapes))
        if text not in checks.passed:
            checks.add(text)


def nodes_of(text: str) -> Sequence[onnx.NodeProto]:
    """Read nodes in the text format of ONNX, as in 'y = Add(x, one) z = Neg(y)'."""
    return onnx.parser.parse_graph(f'net () => () {{ {text} }}').node


def save_network(
    path: Path,
    nodes: Sequence[onnx.NodeProto] | str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """
    Check a network, write it, and return its path.

    :param nodes: maybe in the text format of ONNX, see `nodes_of`.
    :param inputs: by name, a shape of float32 or [dtype of ONNX, shape]; outputs too.
    """

    def infos(tensors: Mapping[str, Any]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(
                name, *(each if isinstance(each, list) else (TensorProto.FLOAT, each))
            )
            for name, each in tensors.items()
        ]

    graph = helper.make_graph(
        nodes_of(nodes) if isinstance(nodes, str) else nodes,
        'net',
        infos(inputs),
        infos(outputs),
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
    helper.set_model_props(model, dict(metadata or {}))
    onnx.checker.check_model(model, full_check=True)
    save(model, path)
    return str(path)


def parse_network(
    graph: str,
    *,
    constants: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
    opset: int = 17,
    ir_version: int = 8,
) -> onnx.ModelProto:
    """
    Return a network in the text format of ONNX, as in '(float[2] x) => (..) { .. }'.

    :param constants: beside those of the text; float64 becomes float32.
    """
    head = f'<ir_version: {ir_version}, opset_import: ["": {opset}]>'
    model = onnx.parser.parse_model(f'{head}\nnetwork {graph}')
    for name, value in (constants or {}).items():
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    helper.set_model_props(model, dict(metadata or {}))
    return model


def save_text(path: Path, graph: str, **others: Any) -> Path:
    """Write a network in the text format of ONNX, see parse_network; return its path."""
    save(parse_network(graph, **others), path)
    return path


def save_texts(folder: Path, graphs: Mapping[str, str]) -> dict[str, str]:
    """Write networks in the text format of ONNX; return their paths by name."""
    return {name: str(save_text(folder / f'{name}.onnx', text)) for name, text in graphs.items()}


def save_mean(path: Path, shape: tuple[int, ...]) -> str:
    """Write a network of one image whose output of that shape holds the image's mean."""
    return save_network(
        path,
        'mean = ReduceMean <keepdims = 0> (images) scores = Add(mean, zeros)',
        {'images': (1, 3, 32, 32)},
        {'scores': shape},
        constants={'zeros': np.zeros(shape, np.float32)},
    )


def save_pool(path: Path) -> str:
    """
    Write a network of any number of points, which it pools: `points`, `valid` and their `count`.

    `pooled` is their sum weighted by a softmax, which leaves out those that are not `valid`.
    """
    nodes = (
        'column = MatMul(points, w) scores = Squeeze(column, last) '
        'masked = Where(valid, scores, low) weights = Softmax <axis = 1> (masked) '
        'row = Unsqueeze(weights, first) mean = MatMul(row, points) '
        'number = Cast <to = 1> (count) pooled = Mul(mean, number)'
    )
    return save_network(
        path,
        nodes,
        {
            'points': (1, 'n', 2),
            'valid': [TensorProto.BOOL, (1, 'n')],
            'count': [TensorProto.INT64, (1,)],
        },
        {'pooled': (1, 1, 2)},
        constants={
            'w': np.array([[0.5], [-1.5]], np.float32),
            'low': np.array(-1e4, np.float32),
            'last': np.array([2]),
            'first': np.array([1]),
        },
    )
