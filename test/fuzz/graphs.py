"""Graphs from an image to the output of a detector."""

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


def headed(*nodes, weights=None, **others):
    """Return the model of nodes that end in the scalar `sum`, spread over a head."""
    to_head = node('Expand', ['sum', 'head_shape'], ['output0'])
    weights = dict(weights or {})
    weights.setdefault('head_shape', np.array(HEAD, np.int64))
    return model([*nodes, to_head], weights=weights, **others)


def mean(source='images', target='sum', **attributes):
    return node('ReduceMean', [source], [target], **{'keepdims': 0, **attributes})


def averaged(*nodes, **others):
    """Return the model of the mean of the last node's output, or of the image, over a head."""
    return headed(*nodes, mean(nodes[-1].output[0] if nodes else 'images'), **others)


def added(*nodes, **others):
    """Return the model of the image's mean plus the last node's output, over a head."""
    return headed(
        *nodes, mean(target='s'), node('Add', ['s', nodes[-1].output[0]], ['sum']), **others
    )


def detector(**changes):
    """Return a small detector that is right: sum of convolved pixels, spread over a head."""
    weights = {'w': np.full((4, 3, 3, 3), 0.01, np.float32)}
    conv = {
        'kernel_shape': [3, 3],
        'strides': [2, 2],
        'pads': [1, 1, 1, 1],
        'group': 1,
        'dilations': [1, 1],
    }
    conv.update(changes)
    conv = {name: value for name, value in conv.items() if value is not None}
    return averaged(node('Conv', ['images', 'w'], ['c'], **conv), weights=weights)
