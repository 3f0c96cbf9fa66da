"""Signs as comparisons, since TensorRT for RTX fuses them wrongly."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper
import onnxruntime
import pytest

from support.save_network import save_network
from trt_ros.engine.builder.onnx_sign import expand_signs
from trt_ros.engine.builder.parent import build
from trt_ros.engine.options import BuildOptions
from trt_ros.trt import load_trt

node = helper.make_node
VALUES = np.array([[-np.inf, -2, -0.0, 0.0, 3, np.inf, np.nan]])


@pytest.mark.parametrize(
    ('kind', 'dtype'), [(TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16)]
)
def test_the_values_stay_the_same(tmp_path, kind, dtype):
    nodes = [node('Neg', ['x'], ['a']), node('Sign', ['a'], ['b']), node('Sign', ['b'], ['y'])]
    path = save_network(tmp_path / 'a.onnx', nodes, {'x': [kind, (1, 7)]}, {'y': [kind, (1, 7)]})
    model = onnx.load(path)
    assert expand_signs(model) == 2
    onnx.checker.check_model(model, full_check=True)
    assert 'Sign' not in [each.op_type for each in model.graph.node]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    [found] = session.run(None, {'x': VALUES.astype(dtype)})
    np.testing.assert_array_equal(found, np.sign(-VALUES.astype(dtype)))


def test_signs_of_integers_and_other_networks_stay(tmp_path):
    integers = [TensorProto.INT32, (1,)]
    for name in ('Sign', 'Neg'):
        path = save_network(
            tmp_path / 'a.onnx', [node(name, ['x'], ['y'])], {'x': integers}, {'y': integers}
        )
        model = onnx.load(path)
        assert expand_signs(model) == 0
        assert [each.op_type for each in model.graph.node] == [name]


def test_an_engine_of_signs_is_built(tmp_path):
    pytest.importorskip('tensorrt_rtx')
    nodes = [node('Sign', ['x'], ['s']), node('Mul', ['x', 's'], ['y'])]
    path = save_network(tmp_path / 'a.onnx', nodes, {'x': (1, 4)}, {'y': (1, 4)})
    built = build(tmp_path / 'a.onnx', BuildOptions(), load_trt())
    built.close()
    assert path
