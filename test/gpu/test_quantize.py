"""`trt-ros quantize` on a GPU: latency table, and the engine of the quantized network."""

import json

import cv2
from demo.scene import CLASSES, TRAINING, draw_scene, held_out
from evaluate_demo import evaluate
import numpy as np
import onnx
import pytest

from trt_ros.cli import main
from trt_ros.demo import MODEL
from trt_ros.errors import BackendError
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.trt import load_trt

pytestmark = pytest.mark.gpu


@pytest.fixture
def quantize(gpu, tmp_path):
    """Quantize a network to fp8 with pictures of the demo; return the file and the report."""
    pictures = tmp_path / 'pictures'
    pictures.mkdir()
    for index in range(16):
        picture = draw_scene(np.random.default_rng([TRAINING, index]), (640, 480))[0]
        cv2.imwrite(str(pictures / f'{index}.png'), picture)

    def run(model):
        output, report = tmp_path / 'q.onnx', tmp_path / 'report.json'
        flags = ['--to', 'fp8', '--output', output, '--json', report, '--max-drop', '1']
        flags += ['--device', gpu.index]
        assert main(['quantize', str(model), str(pictures), *map(str, flags)]) == 0
        return output, json.loads(report.read_text())

    return run


def check_latency(report):
    rows = {row['precision']: row for row in report['latency']['rows']}
    assert list(rows) == ['tf32', 'fp16', 'bf16', 'fp8 and fp16']
    for row in rows.values():
        assert row['error'] == ''
        assert 0 < row['graph_ms'] < 50
        assert 0 < row['frame_ms'] < 50
    assert report['latency']['verdict'].startswith('fp8 is ')


def test_fp8_engine_keeps_the_precision_of_the_demo_detector(gpu, quantize):
    output, report = quantize(MODEL)
    options = LabeledOptions(model_path=str(output), precision='fp16', device=gpu.index)
    if gpu.arch == 'sm_90' and load_trt('auto').is_rtx:
        assert 'computes them wrongly' in report['engine']['error']
        with pytest.raises(BackendError, match='computes them wrongly'):
            Pipeline.open(options)
        return
    assert report['engine']['problem'] == report['engine']['error'] == ''
    assert report['engine']['agreement']['value'] >= report['agreement']['value'] - 0.02
    check_latency(report)
    with Pipeline.open(options) as pipeline:
        assert pipeline.backend != 'onnxruntime'
        found = evaluate(pipeline, held_out(60), len(CLASSES))
    with Pipeline.open(str(MODEL), backend='onnxruntime') as pipeline:
        expected = evaluate(pipeline, held_out(60), len(CLASSES))
    assert np.nanmean(found) >= np.nanmean(expected) - 0.01


def test_fp8_matrix_products_agree_with_the_original(quantize, tmp_path):
    """A classifier of 16 patches, two hidden layers and 10 classes."""
    helper, rng = onnx.helper, np.random.default_rng(0)
    weights = {
        name: onnx.numpy_helper.from_array(
            rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32), name
        )
        for name, shape in {'a': (192, 256), 'b': (256, 256), 'c': (256, 10)}.items()
    }
    order = onnx.numpy_helper.from_array(np.array([1, 16, 192]), 'order')
    nodes = [
        helper.make_node('SpaceToDepth', ['images'], ['patches'], blocksize=8),
        helper.make_node('Reshape', ['patches', 'order'], ['tokens']),
        helper.make_node('MatMul', ['tokens', 'a'], ['first'], 'first'),
        helper.make_node('Relu', ['first'], ['active']),
        helper.make_node('MatMul', ['active', 'b'], ['second'], 'second'),
        helper.make_node('Relu', ['second'], ['pooled']),
        helper.make_node('MatMul', ['pooled', 'c'], ['scores'], 'third'),
        helper.make_node('ReduceMean', ['scores'], ['classes'], axes=[1], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        'classifier',
        [helper.make_tensor_value_info('images', onnx.TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info('classes', onnx.TensorProto.FLOAT, [1, 10])],
        [*weights.values(), order],
    )
    model = tmp_path / 'classifier.onnx'
    opsets = [helper.make_opsetid('', 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), model)
    _, report = quantize(model)
    assert report['engine']['problem'] == report['engine']['error'] == ''
    (output,) = report['engine']['agreement']['outputs'].values()
    assert output['cosine'] > 0.99
    check_latency(report)
