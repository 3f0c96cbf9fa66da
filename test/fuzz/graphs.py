"""Graphs from an image to the output of a detector."""

from collections.abc import Iterable

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper, parser

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

IMAGE = (1, 3, 64, 64)

HEAD = (1, 7, 84)  # What a YOLOv8 of three classes answers on such an image.

MEAN = 's = ReduceMean <keepdims = 0> (images) '


def parsed(nodes: Iterable[NodeProto | str]) -> list[NodeProto]:
    """Return nodes, of which some are in the text format of ONNX."""
    found = []
    for each in nodes:
        is_text = isinstance(each, str)
        found += parser.parse_graph(f'g () => () {{ {each} }}').node if is_text else [each]
    return found


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
        parsed(nodes),
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


node = helper.make_node


def headed(*nodes, weights=None, **others):
    """Return the model of nodes that end in the scalar `sum`, spread over a head."""
    to_head = node('Expand', ['sum', 'head_shape'], ['output0'])
    weights = dict(weights or {})
    weights.setdefault('head_shape', np.array(HEAD, np.int64))
    return model([*nodes, to_head], weights=weights, **others)


def averaged(*nodes, **others):
    """Return the model of the mean of the last node's output, or of the image, over a head."""
    nodes = parsed(nodes)
    last = nodes[-1].output[0] if nodes else 'images'
    return headed(*nodes, node('ReduceMean', [last], ['sum'], keepdims=0), **others)


def added(*nodes, **others):
    """Return the model of the image's mean plus the last node's output, over a head."""
    nodes = parsed(nodes)
    return headed(*nodes, MEAN, f'sum = Add(s, {nodes[-1].output[0]})', **others)


def detector(**changes):
    """Return a small detector that is right: sum of convolved pixels, spread over a head."""
    weights = {'w': np.full((4, 3, 3, 3), 0.01, np.float32)}
    conv = {
        'kernel_shape': [3, 3],
        'strides': [2, 2],
        'pads': [1, 1, 1, 1],
        'group': 1,
        'dilations': [1, 1],
        **changes,
    }
    return averaged(node('Conv', ['images', 'w'], ['c'], **conv), weights=weights)
