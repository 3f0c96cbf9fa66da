"""The trained network of the demo as networks of other preprocessings and tasks."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.save_network import save
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
    before = [
        helper.make_node('Mul', [name, 'factor'], ['scaled']),
        helper.make_node('Add', ['scaled', 'offset'], ['shifted']),
        helper.make_node('Gather', ['shifted', 'order'], ['normalized'], axis=1),
    ]
    after = []
    if task != 'detect':
        logits = [node.input[0] for node in graph.node if node.op_type == 'Sigmoid'][-1]
        constants |= {
            'counts': np.array([side**2 for side in SIDES]),
            'none': np.zeros((1, 1, SIDES[0], SIDES[0]), np.float32),
        }
        rows, cells, grown = (
            [f'{name}{side}' for side in SIDES] for name in ('rows', 'cells', 'grown')
        )
        levels = []
        for row, cell, large, side in zip(rows, cells, grown, SIDES):
            factor = SIDES[0] / side
            constants[f'shape{side}'] = np.array([1, CLASSES, side, side])
            constants[f'factor{side}'] = np.array([1, 1, factor, factor], np.float32)
            levels += [
                helper.make_node('Reshape', [row, f'shape{side}'], [cell]),
                helper.make_node('Resize', [cell, '', f'factor{side}'], [large], mode='linear'),
            ]
        after = {
            'segment': [
                helper.make_node('Split', [logits, 'counts'], rows, axis=2),
                *levels,
                helper.make_node('Max', grown, ['best']),
                helper.make_node('Concat', ['none', 'best'], ['logits'], axis=1),
            ],
            'classify': [
                helper.make_node('ReduceMax', [logits], ['best'], axes=[2], keepdims=0),
                helper.make_node('Softmax', ['best'], ['scores'], axis=1),
            ],
        }[task]
        sizes = [1, CLASSES + 1, SIDES[0], SIDES[0]] if task == 'segment' else [1, CLASSES]
        output = after[-1].output[0]
        del graph.output[:], model.metadata_props[:]
        graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, sizes))
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()
    )
    save(model, path)
    return path
