"""The layer search of `trt-ros verify`, and its statistics over many pictures."""

import json
from types import SimpleNamespace

import cv2
import numpy as np
import onnx
import pytest

from trt_ros.cli import _layers, main
from trt_ros.cli._layers import compare_layers, first_layer
from trt_ros.engine.builder.onnx_marks import LayerGraph
from trt_ros.engine.builder.onnx_precision import lower
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner

ReferenceEvaluator = pytest.importorskip('onnx.reference').ReferenceEvaluator
from support.save_network import save_network, save_text  # noqa: E402

# In fp16 the second product overflows; its ReLU and all that follows then have Inf.
OVERFLOWING = """<ir_version: 8, opset_import: ["": 17]>
overflowing (float[1, 4] x) => (float[1, 4] y)
<float[4, 4] eye = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
 float large = {500}, float small = {0.00001}> {
  [first] a = MatMul(x, eye)
  [scaled] b = Mul(a, large)
  [relu] c = Relu(b)
  [second] d = Mul(c, large)
  [third] e = Abs(d)
  [shrunk] f = Mul(e, small)
  [last] y = MatMul(f, eye)
}"""


class TypedRunner:
    """
    Runs a model operator by operator, each rounded to its type, in place of an engine.

    ONNX Runtime would keep float32 between the fp16 operators on the CPU, so nothing overflows.
    """

    def __init__(self, model):
        self._evaluator = ReferenceEvaluator(model)
        self.inputs = [SimpleNamespace(name=name) for name in self._evaluator.input_names]
        self.metadata = {}

    def infer(self, tensors):
        with np.errstate(over='ignore', invalid='ignore'):
            found = self._evaluator.run(None, dict(tensors))
        return dict(zip(self._evaluator.output_names, found))

    def close(self):
        pass


def in_fp16(path, _=None):
    return TypedRunner(lower(onnx.load(path), 'fp16')[0])


def in_fp32(path, _=None):
    return OnnxRuntimeRunner.open(path)


@pytest.fixture
def overflowing(tmp_path):
    path = tmp_path / 'overflowing.onnx'
    onnx.save(onnx.parser.parse_model(OVERFLOWING), path)
    return path


X = {'x': np.float32([[1, 2, 3, 4]])}


def test_overflow_in_fp16_is_found_with_its_layer_and_nothing_in_equal_networks(overflowing):
    found = compare_layers(overflowing, X, in_fp16, min_cosine=0.99)
    assert found.first == 'Mul second (output d)' and found.node == 'second'
    assert '4 values are NaN or Inf here, 0 in ONNX Runtime' in found.reason
    (line,) = found.lines()
    assert line.startswith('first layer that differs: Mul second (output d): 4 values')
    found = compare_layers(overflowing, X, in_fp32, min_cosine=0.99)
    assert (found.first, found.reason, found.measured) == ('', '', 7)
    assert found.lines()[0].startswith('no layer differs of the 7')


def test_nan_in_the_reference_is_found_with_its_layer(tmp_path):
    path = save_text(
        tmp_path / 'nan.onnx',
        '(float[1, 4] x) => (float[1, 4] y) '
        '{ a = Neg(x) [root] b = Sqrt(a) c = Relu(b) y = Add(c, a) }',
    )
    found = compare_layers(path, X, in_fp32, min_cosine=0.99, in_reference=True)
    assert found.first == 'Sqrt root (output b)'


def chain(length, *, skip_from=None):
    """Build a network of `length` layers t0, t1, .., the last one also fed by `skip_from`."""
    nodes = [
        onnx.helper.make_node('Relu', [f't{i - 1}' if i else 'x'], [f't{i}'])
        for i in range(length - 1)
    ]
    others = [f't{skip_from}'] if skip_from is not None else ['x']
    nodes.append(onnx.helper.make_node('Add', [f't{length - 2}', *others], [f't{length - 1}']))
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, 'chain', [value('x', 1, [4])], [value(f't{length - 1}', 1, [4])]
    )
    return LayerGraph(onnx.helper.make_model(graph))


@pytest.fixture
def four_per_build(monkeypatch):
    monkeypatch.setattr(_layers, 'LAYERS_PER_BUILD', 4)


def search(graph, bad):
    """Search with a measurement that knows the layers that differ; count the builds."""
    builds = []

    def measure(names):
        builds.append(list(names))
        assert len(names) <= _layers.LAYERS_PER_BUILD
        return {name: 'differs' if name in bad else '' for name in (*names, *graph.outputs)}

    return first_layer(graph, measure)[0], len(builds)


@pytest.mark.parametrize('bad_from', [0, 1, 250, 498, 499])
def test_a_deep_network_takes_few_builds(monkeypatch, bad_from):
    monkeypatch.setattr(_layers, 'LAYERS_PER_BUILD', 8)
    bad = {f't{index}' for index in range(bad_from, 500)}
    found, builds = search(chain(500), bad)
    assert found == f't{bad_from}' and builds <= 5


def test_a_layer_is_found_across_a_skip_connection_unless_reading_removes_it(four_per_build):
    # Layers in between agree, as after a Clip; the difference goes around them.
    found, _ = search(chain(100, skip_from=37), {'t35', 't36', 't37', 't99'})
    assert found == 't35'
    graph = chain(20)
    answers = iter([{'t19': 'differs'}, {'t19': ''}])
    found, _ = first_layer(graph, lambda names: {**dict.fromkeys(names, ''), **next(answers)})
    assert found == ''


def test_outputs_of_quantizing_layers_are_not_read():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19]> q (float[4] x) => (float[4] y) '
        '<float s = {0.1}, int8 z = {0}> { a = Relu(x) b = QuantizeLinear(a, s, z) '
        'c = DequantizeLinear(b, s, z) y = Neg(c) }'
    )
    graph = LayerGraph(model)
    assert graph.layers == ['a', 'y'] and graph.parents['y'] == ('a',)


@pytest.fixture
def verify(engine_is, capsys):
    """Run the verb with another runner in place of the engine; give its code and words."""

    def run(model, *args, ours=in_fp16):
        engine_is(None, ours)
        code = main(['verify', str(model), *map(str, args)])
        return code, capsys.readouterr().out

    return run


def test_layers_are_compared_on_request_and_reported_in_json(overflowing, verify):
    code, said = verify(overflowing, '--layers', '--json', ours=in_fp32)
    assert code == 0
    found = json.loads(said)
    assert found['layers']['measured'] == 7 and found['failed'] == []
    assert found['statistics']['inputs'] == 3 and found['statistics']['cosine_min'] > 0.999999
    assert [each['name'] for each in found['inputs']] == [f'random input {i}' for i in range(3)]


def test_statistics_name_the_worst_pictures_of_a_folder(verify, tmp_path):
    """The engine differs on the darkest picture only."""
    image = (1, 3, 64, 64)
    network = save_network(
        tmp_path / 'net.onnx', 'y = Identity(images)', {'images': image}, {'y': image}
    )
    photos = tmp_path / 'photos'
    photos.mkdir()
    for index in range(5):
        cv2.imwrite(str(photos / f'{index}.png'), np.full((64, 64, 3), 40 * index + 5, np.uint8))

    class DarkDiffers:
        def __init__(self, path):
            self._runner = in_fp32(path)
            self.inputs, self.metadata, self.close = self._runner.inputs, {}, self._runner.close

        def infer(self, tensors):
            found = self._runner.infer(tensors)
            dark = max(np.mean(value) for value in tensors.values()) < -1.5  # Normalized.
            return {name: -value if dark else value for name, value in found.items()}

    code, said = verify(network, photos, ours=DarkDiffers)
    assert code == 1
    assert '5 inputs: cosine lowest -1.000000, 5th percentile -0.6' in said
    assert f'worst: {photos}/0.png (cosine -1.000000), ' in said
