"""Graphs from an image to the output of a detector."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

IMAGE = (1, 3, 64, 64)

HEAD = (1, 7, 84)  # What a YOLOv8 of three classes answers on such an image.


def model(
    nodes,
    *,
    weights=None,
    image=IMAGE,
    head=HEAD,
    kind=FLOAT,
    opset=17,
    functions=(),
    metadata=None,
    domains=(),
    more_weights=(),
    more_inputs=(),
):
    """Return the ModelProto of a graph from `images` to `output0`."""
    graph = helper.make_graph(
        nodes,
        'hostile',
        [helper.make_tensor_value_info('images', kind, image), *more_inputs],
        [helper.make_tensor_value_info('output0', FLOAT, head)],
        [
            *(
                numpy_helper.from_array(np.asarray(value), name)
                for name, value in (weights or {}).items()
            ),
            *more_weights,
        ],
    )
    made = helper.make_model(
        graph,
        ir_version=9,
        functions=list(functions),
        opset_imports=[
            helper.make_opsetid('', opset),
            *(helper.make_opsetid(domain, 1) for domain in domains),
        ],
    )
    helper.set_model_props(made, metadata or {'names': "['a', 'b', 'c']"})
    return made


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def to_head(source='sum'):
    """Bring a scalar into the form of the head."""
    return [node('Expand', [source, 'head_shape'], ['output0'])]


HEAD_SHAPE = {'head_shape': np.array(HEAD, np.int64)}


def detector(**changes):
    """Return a small detector that is right: sum of convolved pixels, spread over a head."""
    weights = {'w': np.full((4, 3, 3, 3), 0.01, np.float32), **HEAD_SHAPE}
    conv = {
        'kernel_shape': [3, 3],
        'strides': [2, 2],
        'pads': [1, 1, 1, 1],
        'group': 1,
        'dilations': [1, 1],
    }
    conv.update(changes)
    conv = {name: value for name, value in conv.items() if value is not None}
    return model(
        [
            node('Conv', ['images', 'w'], ['c'], **conv),
            node('ReduceMean', ['c'], ['sum'], keepdims=0),
            *to_head(),
        ],
        weights=weights,
    )
