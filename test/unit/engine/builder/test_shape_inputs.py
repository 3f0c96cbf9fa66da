"""Inputs whose values are shapes, in real builds with tensorrt_rtx."""

import onnx
from onnx import TensorProto, helper
import pytest

from support.builds import build_here
from trt_ros.errors import ModelError

pytestmark = pytest.mark.slow


def save(path, node, integers, shape):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        'net',
        [info('x', TensorProto.FLOAT, (1, 3, 4, 4)), info('s', TensorProto.INT64, integers)],
        [info('y', TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
    onnx.save(model, path)
    return path


def test_an_input_that_is_a_shape_is_refused_by_name(tmp_path, rtx):
    path = save(
        tmp_path / 'net.onnx', helper.make_node('Reshape', ['x', 's'], ['y']), (2,), ('a', 'b')
    )
    with pytest.raises(
        ModelError, match=r'The input s \(2\) int64 of .* is a shape tensor(.|\n)*onnxruntime'
    ):
        build_here(path, rtx)


def test_integers_that_are_not_a_shape_are_built(tmp_path, rtx):
    path = save(
        tmp_path / 'net.onnx',
        helper.make_node('Gather', ['x', 's'], ['y'], axis=1),
        (2,),
        (1, 2, 4, 4),
    )
    build_here(path, rtx)
