"""Signs written as comparisons, which TensorRT for RTX computes rightly."""

from __future__ import annotations

from typing import Any

from trt_ros.engine.builder.onnx_check import nodes


def expand_signs(model: Any) -> int:
    """
    Replace Sign of floats by comparisons in place; results stay the same, NaN too.

    tensorrt_rtx 1.5 takes the product of values and the sign of one of them for the absolute
    values, where it fuses them into what follows, as in policies that turn quaternions to w >= 0
    (seen on an H100: test/gpu/test_graph_bundles.py).

    :returns: number of replaced nodes.
    """
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    if not any(node.op_type == 'Sign' for node in nodes(model.graph)):
        return 0
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    floats = {TensorProto.FLOAT: 'float32', TensorProto.FLOAT16: 'float16'}
    graph, count = model.graph, 0
    for place in range(len(graph.node) - 1, -1, -1):
        node = graph.node[place]
        if node.op_type != 'Sign' or types.get(node.input[0]) not in floats:
            continue
        [x], [y], kind = node.input, node.output, types[node.input[0]]
        name = {part: f'{y} {part}' for part in ('0', '>', '<', '>f', '<f', 'sign', 'NaN')}
        graph.initializer.append(numpy_helper.from_array(np.array(0, floats[kind]), name['0']))
        graph.node.remove(node)
        for offset, made in enumerate(
            (
                helper.make_node('Greater', [x, name['0']], [name['>']]),
                helper.make_node('Less', [x, name['0']], [name['<']]),
                helper.make_node('Cast', [name['>']], [name['>f']], to=kind),
                helper.make_node('Cast', [name['<']], [name['<f']], to=kind),
                helper.make_node('Sub', [name['>f'], name['<f']], [name['sign']]),
                helper.make_node('IsNaN', [x], [name['NaN']]),
                helper.make_node('Where', [name['NaN'], x, name['sign']], [y]),
            )
        ):
            graph.node.insert(place + offset, made)
        count += 1
    return count
