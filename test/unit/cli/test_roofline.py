"""The line that compares a network's time with the peaks of the GPU."""

from types import SimpleNamespace

import numpy as np
import pytest

from trt_ros.cli._roofline import Roofline, products_of
from trt_ros.engine.builder.onnx_work import ModelWork
from trt_ros.engine.options import BuildOptions
from trt_ros.runtime.gpu.measure import Peaks

onnx = pytest.importorskip('onnx')


@pytest.mark.parametrize(
    ('precision', 'float_types', 'is_rtx', 'products'),
    [
        ('fp16', ['float32'], True, 'fp16'),
        ('bf16', ['float32'], False, 'bf16'),
        ('tf32', ['float32'], False, 'tf32'),
        ('fp32', ['float32'], True, 'tf32'),
        ('fp32', ['float32'], False, 'fp32'),
        ('auto', ['float32'], False, 'tf32'),
        ('auto', ['float16'], True, 'fp16'),
        ('auto', ['bfloat16'], True, 'bf16'),
        ('auto', ['float16', 'float32'], True, ''),
    ],
)
def test_type_of_the_products(precision, float_types, is_rtx, products):
    model = {'ops': {'Conv': 1}, 'float_types': float_types}
    assert products_of(model, BuildOptions(precision=precision), is_rtx=is_rtx) == products


def test_quantized_networks_have_no_single_type():
    model = {'ops': {'Conv': 1, 'DequantizeLinear': 2}, 'float_types': ['float32']}
    assert products_of(model, BuildOptions(precision='fp16'), is_rtx=True) == ''


def test_networks_of_which_layers_stay_float32_have_no_single_type():
    model = {'ops': {'Conv': 2}, 'float_types': ['float32']}
    options = BuildOptions(precision='fp16', fp32=('Conv',))
    assert products_of(model, options, is_rtx=True) == ''


def test_line_has_the_rate_and_its_fractions():
    work, peaks = ModelWork(30 * 10**9, 10**8), Peaks(989e12, 3.35e12)
    assert Roofline(work, 'fp16', peaks).line(1e-3) == (
        'roofline: 30 GFLOP per run, 30 TFLOP/s: 3 % of the fp16 peak (989 TFLOP/s), '
        '6 % of the memory bandwidth (3.35 TB/s)'
    )
    assert '12 % of the memory' in Roofline(work, 'tf32', peaks).line(1e-3)  # 4 bytes each.


PEAKS = Peaks(989e12, 3.35e12)


@pytest.fixture
def roofline(monkeypatch, tmp_path):
    """Return a function that describes an ONNX file and its roofline."""

    def make(body, *, batch=1, precision='fp16', peaks=PEAKS):
        model = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]>'
            f'net (float[N,3,8,20] x) => (float[N,c,h,w] y) {{ {body} }}'
        )
        weights = np.ones((1000, 3, 1, 1), np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, 'w'))
        onnx.save(model, tmp_path / 'net.onnx')
        return of(tmp_path / 'net.onnx', batch, precision, peaks)

    def of(path, batch=1, precision='fp16', peaks=PEAKS):
        library = SimpleNamespace(is_rtx=True)
        contexts = SimpleNamespace(engine=SimpleNamespace(library=library))
        monkeypatch.setattr('trt_ros.runtime.gpu.measure.peaks_of', lambda gpu, products: peaks)
        pipeline = SimpleNamespace(
            max_batch=batch, gpu=None, shared=SimpleNamespace(contexts=contexts)
        )
        return Roofline.of(path, BuildOptions(precision=precision), pipeline)

    make.of = of
    return make


def test_work_is_that_of_the_measured_batch_and_precision(roofline):
    found = roofline('y = Conv (x, w)', batch=8, precision='fp32')
    assert found.work.flop == 2 * 8 * 1000 * 3 * 160
    assert (found.products, found.peaks) == ('tf32', PEAKS)


def test_what_is_unknown_has_no_roofline(roofline, tmp_path):
    assert roofline('y = Relu (x)') is None
    assert roofline('y = Conv (x, w)', peaks=None) is None
    assert roofline.of(tmp_path / 'gone.onnx') is None
