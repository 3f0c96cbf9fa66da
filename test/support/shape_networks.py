"""The trained network of the demo as networks of other preprocessings and tasks."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.save_network import nodes_of, save
from trt_ros.demo import MODEL

SIDES, CLASSES = (40, 20, 10), 6  # Cells per side of each stride.


def save_shapes(
    path: Path,
    task: str = 'detect',
    *,
    scale: float = 1 / 255,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    order: str = 'rgb',
) -> Path:
    """
    Write the network that takes pixels of a normalization, instead of RGB from 0 to 1.

    :param task: 'detect'; 'segment': the logits of its classes per cell, after a background of 0;
        'classify': their maxima over all cells, as probabilities.
    """
    model = onnx.load(MODEL)
    graph = model.graph
    constants: dict[str, np.ndarray] = {
        'factor': (np.array(std, np.float32) / (255 * scale)).reshape(1, 3, 1, 1),
        'offset': (np.array(mean, np.float32) / (255 * scale)).reshape(1, 3, 1, 1),
        'order': np.array([2, 1, 0] if order == 'bgr' else [0, 1, 2]),
    }
    name = graph.input[0].name
    for node in graph.node:
        node.input[:] = ['normalized' if each == name else each for each in node.input]
    before = f'scaled = Mul({name}, factor) shifted = Add(scaled, offset) '
    before += 'normalized = Gather <axis = 1> (shifted, order)'
    after = []
    if task == 'classify':
        sizes = {'scores': [1, CLASSES]}
        after = nodes_of(
            'best = ReduceMax <axes = [2], keepdims = 0> (raw) scores = Softmax <axis = 1> (best)'
        )
    elif task == 'segment':
        sizes = {'logits': [1, CLASSES + 1, SIDES[0], SIDES[0]]}
        constants |= {
            'counts': np.array([side**2 for side in SIDES]),
            'none': np.zeros((1, 1, SIDES[0], SIDES[0]), np.float32),
        }
        rows, grown = (', '.join(f'{each}{side}' for side in SIDES) for each in ('rows', 'grown'))
        text = f'{rows} = Split <axis = 2> (raw, counts) '
        for side in SIDES:
            factor = SIDES[0] / side
            constants[f'shape{side}'] = np.array([1, CLASSES, side, side])
            constants[f'factor{side}'] = np.array([1, 1, factor, factor], np.float32)
            text += f'cells{side} = Reshape(rows{side}, shape{side}) '
            text += f'grown{side} = Resize <mode = "linear"> (cells{side}, "", factor{side}) '
        after = nodes_of(f'{text} best = Max({grown}) logits = Concat <axis = 1> (none, best)')
    if after:
        # A name that text cannot have.
        after[0].input[0] = [each.input[0] for each in graph.node if each.op_type == 'Sigmoid'][-1]
        del graph.output[:], model.metadata_props[:]
        ((output, shape),) = sizes.items()
        graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))
    nodes = [*nodes_of(before), *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()
    )
    save(model, path)
    return path
