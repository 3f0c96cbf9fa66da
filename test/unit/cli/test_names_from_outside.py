"""Names and metadata of files are harmless and short on the terminal."""

import re

import onnx
from onnx import TensorProto, helper
import pytest

from trt_ros.cli import main
from trt_ros.trt import installed

HOSTILE = '\x1b]0;owned\x07\u202eevil\0'
ESCAPED = r'\x1b]0;owned\x07\u202eevil\x00'
UNSAFE = re.compile('[\x00-\x09\x0b-\x1f\x7f\u202e]')
needs_rtx = pytest.mark.skipif(not installed('tensorrt_rtx'), reason='tensorrt_rtx is missing')


def save(path, name, kind='Relu'):
    """Write a network whose tensors, node, producer and metadata have a name."""
    infos = [
        helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, 3])
        for each in (name, f'out {name}')
    ]
    node = helper.make_node(kind, [name], [f'out {name}'], name=f'node {name}')
    graph = helper.make_graph([node], 'net', infos[:1], infos[1:])
    opsets = [helper.make_opsetid('', 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=name)
    helper.set_model_props(model, {f'key {name}': f'{name}\ninput forged 1x3 float32'})
    onnx.save(model, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize('flag', ['--layers', '--json'])
def test_inspect_escapes_names_and_metadata(call, tmp_path, flag):
    code, out, err = call('inspect', save(tmp_path / 'net.onnx', f'x{HOSTILE}'), flag)
    assert (code, err) == (0, '')
    assert not UNSAFE.search(out)
    if flag == '--layers':
        assert f'\ninput x{ESCAPED} 1x3 float32\n' in out and f'made by x{ESCAPED}' in out
        assert f'metadata key x{ESCAPED}: x{ESCAPED}\\ninput forged' in out


def test_inspect_shortens_names(call, tmp_path):
    code, out, _ = call('inspect', save(tmp_path / 'net.onnx', 'x' * 100_000))
    assert code == 0 and 'xxx...xxx' in out
    assert len(out) < 5000


@needs_rtx
def test_build_escapes_names_also_in_the_log_of_tensorrt(cache, tmp_path, capfd):
    path = save(tmp_path / 'net.onnx', f'x{HOSTILE}', 'NoSuch\x1bOperator')
    assert main(['build', str(path), '--verbose']) == 1
    out, err = capfd.readouterr()
    assert out == '' and err.count(r'NoSuch\x1bOperator') > 1 and 'Producer name' in err
    assert not UNSAFE.search(err)


@pytest.mark.parametrize(
    'verb',
    [
        *('inspect', 'bench', 'infer x.png --model', 'cache list --engine-cache-dir'),
        pytest.param('build', marks=needs_rtx),
    ],
)
def test_file_names_are_escaped(call, tmp_path, verb):
    _, out, err = call(*verb.split(), tmp_path / 'no\x1b[31m\u202e.onnx')
    assert r'no\x1b[31m\u202e' in out + err
    assert not UNSAFE.search(out + err)


@pytest.mark.slow
@needs_rtx
@pytest.mark.parametrize('kind', ['Relu', 'NoSuchOperator'])
def test_build_shortens_names(call, tmp_path, kind):
    code, _, err = call('build', save(tmp_path / 'net.onnx', 'x' * 100_000, kind))
    assert code == 1 and len(err) < 5000
