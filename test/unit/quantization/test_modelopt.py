"""Quantization by nvidia-modelopt, where it is installed."""

from importlib.util import find_spec
import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from support.save_network import parse_network
from trt_ros.cli import main
from trt_ros.demo import MODEL
from trt_ros.engine.builder.onnx_nodes import layers_by_precision
from trt_ros.errors import ParameterError
from trt_ros.quantization.layers import QuantNetwork
from trt_ros.quantization.options import METHODS, QuantOptions


def mixed_network():
    rng = np.random.default_rng(0)
    shapes = [(8, 3, 4, 4), (1800, 256), (256, 256), (256, 10)]
    return parse_network(
        """(float[1,3,32,32] images) => (float[1,10] scores) {
            c = Conv <strides = [2, 2]> (images, w0)
            f = Flatten(c)
            a = MatMul(f, w1)
            r = Relu(a)
            b = MatMul(r, w2)
            scores = MatMul(b, w3)
        }""",
        constants={
            f'w{n}': rng.normal(size=shape, scale=np.prod(shape[1:]) ** -0.5)
            for n, shape in enumerate(shapes)
        },
    )


@pytest.fixture
def quantize(pictures, tmp_path, capsys):
    shutil.copytree(pictures, tmp_path, dirs_exist_ok=True)

    def run(*args, model=MODEL, to='int8'):
        flags = ['--tool', 'modelopt', '--output', tmp_path / 'q.onnx', *args]
        code = main(['quantize', str(model), str(tmp_path), '--to', to, *map(str, flags)])
        return code, capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ('to', 'tool', 'problem'),
    [
        ('int4', '', 'Remedy: Add --tool modelopt'),
        ('nvfp4', 'modelopt', 'Cause: nvidia-modelopt writes NVFP4 from PyTorch'),
    ],
)
def test_formats_that_cannot_be_written_are_refused_with_the_reason(to, tool, problem):
    with pytest.raises(ParameterError, match=f'{to} cannot be written.\\n(?s:.*){problem}'):
        QuantOptions(to=to, tool=tool)


def test_only_matrix_products_are_rounded_to_int4():
    network = QuantNetwork(mixed_network(), (), 'int4')
    assert [layer.name for layer in network.layers] == ['a', 'b']
    assert network.left_out == {
        'c': 'Conv is not rounded to int4',
        'scores': 'last layer before the results',
    }


@pytest.mark.skipif(find_spec('modelopt') is not None, reason='nvidia-modelopt is installed')
def test_missing_modelopt_is_an_error_with_the_command_that_installs_it(quantize, tmp_path):
    code, printed = quantize()
    assert code == 1
    assert '--tool modelopt needs nvidia-modelopt, which cannot be imported.' in printed.err
    assert "pip install 'nvidia-modelopt[onnx]'" in printed.err
    assert not (tmp_path / 'q.onnx').exists()


@pytest.fixture
def read(monkeypatch):
    """Return the inputs that a quantization reads which then fails."""
    found = []

    def read_all(*_, calibration_data_reader, **__):
        while (inputs := calibration_data_reader.get_next()) is not None:
            found.append(inputs)
        raise ValueError('no kernels')

    names = ('modelopt', 'modelopt.onnx', 'modelopt.onnx.quantization')
    for name, module in zip(names, (None, None, SimpleNamespace(quantize=read_all))):
        monkeypatch.setitem(sys.modules, name, module or SimpleNamespace(__path__=[]))
    return found


def test_picture_that_cannot_be_read_is_left_out(quantize, read, tmp_path):
    (tmp_path / '2.png').write_bytes(b'not a picture')
    code, printed = quantize()
    assert code == 1 and len(read) == 3
    assert f'left out: 1 (unreadable file). Cannot read {tmp_path / "2.png"}' in printed.err
    assert 'cannot quantize the model.\nCause: ValueError: no kernels' in printed.err


@pytest.mark.slow
def test_pictures_that_do_not_fit_are_no_failure_of_modelopt(quantize, read, tmp_path):
    model = parse_network(
        """(float[1,4,16,16] images) => (float[1,4,16,16] found)
        { a = Conv(images, w) b = Conv(a, w) found = Conv(b, w) }""",
        constants={'w': np.eye(4)[..., None, None]},
    )
    onnx.save(model, tmp_path / 'rgba.onnx')
    code, printed = quantize(model=tmp_path / 'rgba.onnx')
    assert code == 1 and not read
    assert 'trt-ros quantize: ' in printed.err and 'modelopt' not in printed.err


needs_modelopt = pytest.mark.skipif(
    find_spec('modelopt') is None, reason='nvidia-modelopt is not installed'
)


@needs_modelopt
@pytest.mark.filterwarnings('ignore')  # Those of torch and modelopt.
@pytest.mark.parametrize('to', ['int8', 'fp8'])
def test_results_of_a_detector_agree_with_those_of_the_original(quantize, to, tmp_path):
    kept = '/network/to_8/to_8.3/to_8.3.0/Conv'
    flags = ['--keep', kept, '--json', tmp_path / 'r.json', '--max-drop', '0.02']
    code, printed = quantize(*flags, to=to)
    assert code == 0, printed.err
    assert 'of nvidia-modelopt' in printed.out
    report = json.loads((tmp_path / 'r.json').read_text())
    assert (report['tool'], report['frames']) == ('modelopt', 4)
    assert report['agreement']['value'] >= 0.98
    reasons = {layer['name']: layer['reason'] for layer in report['layers']}
    assert reasons[kept] == 'kept by --keep'
    assert 'last layer before the results' in reasons.values()
    assert sum(not why for why in reasons.values()) >= 25
    model = onnx.load(tmp_path / 'q.onnx')
    assert {each.key for each in model.metadata_props} >= {'names', 'task', 'stride'}
    types = {tensor.data_type for tensor in model.graph.initializer}
    wanted = {'int8': onnx.TensorProto.INT8, 'fp8': onnx.TensorProto.FLOAT8E4M3FN}
    assert wanted[to] in types


@needs_modelopt
@pytest.mark.filterwarnings('ignore')
def test_drop_that_modelopt_exceeds_is_an_error(quantize, monkeypatch, tmp_path):
    from trt_ros.quantization import result_agreement

    monkeypatch.setattr(result_agreement.ResultAgreement, 'drop', property(lambda _: 0.02))
    code, printed = quantize('--method', 'max')
    assert code == 1
    assert 'nvidia-modelopt has a drop of more than 0.01.' in printed.err
    assert not (tmp_path / 'q.onnx').exists()


@needs_modelopt
@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('method', METHODS['modelopt']['int4'])
def test_weights_of_matrix_products_are_rounded_to_int4_in_blocks(quantize, method, tmp_path):
    onnx.save(mixed_network(), tmp_path / 'net.onnx')
    flags = ['--method', method, '--decoder', 'tensor', '--max-drop', '0.05']
    code, printed = quantize(*flags, model=tmp_path / 'net.onnx', to='int4')
    assert code == 0, printed.err
    assert 'int4: 2 of 4 convolutions and matrix products' in printed.out
    graph = onnx.load(tmp_path / 'q.onnx').graph
    assert layers_by_precision(graph) == {'int4 matrix products': ['a', 'b']}
    blocks = {
        each.name: next(one.i for one in each.attribute if one.name == 'block_size')
        for each in graph.node
        if each.op_type == 'DequantizeLinear'
    }
    assert {*blocks.values()} == {128} and len(blocks) == 2
