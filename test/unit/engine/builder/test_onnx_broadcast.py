"""Broadcasts made explicit, since TensorRT for RTX fuses them wrongly."""

import numpy as np
import onnx
from onnx import helper
import onnxruntime
import pytest

from support.broadcasts import BROADCASTS, save_broadcast
from support.builds import build_here
from support.save_network import save_network
from trt_ros.engine.builder.onnx_rewrites import expand_broadcasts
from trt_ros.trt import load_trt

node = helper.make_node


@pytest.mark.parametrize('name', BROADCASTS)
def test_the_results_stay_the_same(tmp_path, name):
    path = save_broadcast(tmp_path / 'net.onnx', name)
    model = onnx.load(path)
    assert expand_broadcasts(model) == 1
    onnx.checker.check_model(model, full_check=True)
    rng = np.random.default_rng(0)
    inputs = {key: rng.standard_normal((1, n), np.float32) for key, n in (('x', 4), ('e', 5))}
    ours, theirs = (
        onnxruntime.InferenceSession(each).run(None, inputs)[0]
        for each in (model.SerializeToString(), path)
    )
    np.testing.assert_array_equal(ours, theirs)
    assert expand_broadcasts(model) == 0


@pytest.mark.slow
def test_the_engine_is_built(tmp_path):
    pytest.importorskip('tensorrt_rtx')
    save_broadcast(tmp_path / 'net.onnx', 'quaternion')
    report, _ = build_here(tmp_path / 'net.onnx', load_trt())
    assert report['outputs'][0]['name'] == 'y'


@pytest.mark.parametrize(
    ('nodes', 'shapes'),
    [
        ([node('Mul', ['x', 'k'], ['m'])], ((1, 4), (1, 1))),
        ([node('Mul', ['x', 'x'], ['m'])], ((1, 4), (1, 4))),
        ([node('Mul', ['x', 'u'], ['m'])], (('n', 4), ('n', 1))),
    ],
)
def test_constants_equal_and_unknown_shapes_stay(tmp_path, nodes, shapes):
    x, u = shapes
    inputs = {'x': x, 'u': u} if 'u' in nodes[0].input else {'x': x}
    path = save_network(
        tmp_path / 'net.onnx',
        [*nodes, node('Concat', ['m', 'x'], ['y'], axis=1)],
        inputs,
        {'y': (x[0], 8)},
        constants={'k': np.ones((1, 1), np.float32)},
    )
    model = onnx.load(path)
    assert expand_broadcasts(model) == 0
