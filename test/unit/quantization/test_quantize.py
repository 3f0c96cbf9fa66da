"""Quantization of the demo detector from pictures to file, as `trt-ros quantize` runs it."""

from contextlib import closing
from dataclasses import replace
import json
import re

import cv2
import numpy as np
import onnx
import pytest

from support.save_network import parse_network
from trt_ros.cli import main
from trt_ros.demo import MODEL
from trt_ros.progress import Reporter
from trt_ros.quantization.calibration import Calibration
from trt_ros.quantization.layers import QuantNetwork
from trt_ros.quantization.options import QuantOptions
from trt_ros.quantization.quantize import FrameSource, limited
from trt_ros.quantization.quantize import quantize as python_quantize
from trt_ros.runtime.cpu.checked_runner import CheckedRunner
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.frame import Frame

pytestmark = pytest.mark.slow


@pytest.fixture
def quantize(pictures, residual_model, tmp_path, capsys):
    """Run the verb on a network of three convolutions, or another one."""
    small = tmp_path / 'small.onnx'
    onnx.save(residual_model(), small)
    with closing(CheckedRunner.open(small)) as runner:  # Recorded: a child process at first only.
        runner.infer({'images': np.zeros((1, 3, 16, 16), np.float32)})

    def run(*args, model=small, to='int8', images=pictures, output='q.onnx'):
        output = tmp_path / output
        flags = ['--to', to, '--output', output, *args]
        code = main(['quantize', str(model), str(images), *map(str, flags)])
        return code, capsys.readouterr()

    return run


def reasons(path):
    report = json.loads(path.read_text())
    return report, {layer['name']: layer['reason'] for layer in report['layers']}


def test_the_report_does_not_replace_a_model(quantize, tmp_path):
    content = (tmp_path / 'small.onnx').read_bytes()
    code, printed = quantize('--json', tmp_path / 'small.onnx')
    assert code == 1 and 'would be an .onnx file.\nRemedy: Name it .json.' in printed.err
    assert (tmp_path / 'small.onnx').read_bytes() == content


@pytest.mark.parametrize(
    ('count', 'limit', 'chosen'), [(40, 21, 21), (5, 9, 5), (4, 2, 2), (0, 3, 0)]
)
def test_as_many_images_as_wanted_are_spread(count, limit, chosen):
    found = list(limited(iter(range(count)), count, limit))
    assert len(found) == chosen and found[:1] == [0][:chosen]
    assert set(np.diff(found)) <= {count // max(1, chosen), count // max(1, chosen) + 1}


@pytest.mark.parametrize('to', ['int8', 'fp8'])
def test_results_of_a_detector_agree_with_those_of_the_original(quantize, to, tmp_path):
    names = [layer.name for layer in QuantNetwork(onnx.load(MODEL), (), to).layers]
    kept = [part for name in names[3:] for part in ('--keep', name)]  # Takes less time.
    code, printed = quantize(*kept, '--json', tmp_path / 'report.json', to=to, model=MODEL)
    assert code == 0, printed.err
    report, why = reasons(tmp_path / 'report.json')
    assert (report['to'], report['frames'], report['resumed']) == (to, 4, 0)
    assert report['agreement']['metric'] == 'mAP50 against the original'
    assert report['agreement']['value'] >= 0.99
    quantized = [name for name in why if not why[name]]
    assert quantized and set(quantized) <= set(names[:3])
    assert all(layer['error'] > 0 for layer in report['layers'] if not layer['reason'])
    assert f'{to}: {len(quantized)} of 42 convolutions and matrix products' in printed.out
    model = onnx.load(tmp_path / 'q.onnx')
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count('DequantizeLinear') == 2 * len(quantized)
    assert {each.key for each in model.metadata_props} >= {'names', 'task', 'stride'}


@pytest.fixture
def start(pictures, quantize, tmp_path):
    """Return a function that quantizes until a phase, if any, has reached a percentage."""
    images = [cv2.imread(str(path)) for path in sorted(pictures.iterdir())]

    def start(phase='', percent=0, **options):
        def on_progress(progress):
            if progress.phase == phase and progress.percent >= percent:
                raise KeyboardInterrupt

        return python_quantize(
            QuantOptions(to='int8', **options),
            PipelineOptions(model_path=str(tmp_path / 'small.onnx')),
            FrameSource(lambda: (Frame.from_pixels(each, 'bgr8') for each in images), 4, ''),
            tmp_path / 'q.onnx',
            Reporter(on_progress),
        )

    return start


def test_calibration_continues_where_an_earlier_run_ended(start, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        start('calibrating', 50)
    assert not (tmp_path / 'q.onnx').exists()
    kept = tmp_path / 'q.calibration.npz'
    assert start().resumed == 2
    resumed = dict(np.load(kept))
    assert start(method='max', max_drop=1.0).resumed == 4
    kept.write_bytes(b'damaged')
    assert start().resumed == 0
    for name, values in np.load(kept).items():
        np.testing.assert_array_equal(values, resumed[name])


def test_a_frame_counts_completely_or_not_at_all(tmp_path):
    class Outputs(dict):
        def __missing__(self, name):
            raise KeyboardInterrupt

    class Network:
        def run(self, frame, thresholds):
            return None, Outputs(frame)

    one = {'a': np.ones(3), 'b': np.ones(3)}
    path = tmp_path / 'q.calibration.npz'
    with pytest.raises(KeyboardInterrupt):
        Calibration('ab', path, 'key').run(Network(), [one, {'a': one['a']}], 2, Reporter())
    kept = Calibration('ab', path, 'key')
    assert kept.done == 1
    assert [each.counts.sum() for each in kept.histograms.values()] == [3, 3]


def edit_calibration(path, edit):
    """Change the arrays that a run has kept."""
    arrays = dict(np.load(path))
    edit(arrays)
    np.savez(path, **arrays)


def test_errors_of_layers_are_measured_once(start, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        start('measuring layers', 50)

    def replace_errors(arrays):
        errors = json.loads(str(arrays['errors']))
        assert [each > 0 for each in errors.values()] == [True]
        arrays['errors'] = np.array(json.dumps(dict.fromkeys(errors, 0.125)))

    edit_calibration(tmp_path / 'q.calibration.npz', replace_errors)
    first, second, *_ = start(max_drop=1.0).layers
    assert first.error == 0.125 and second.error not in (0, 0.125)


@pytest.fixture
def spoil(quantize, tmp_path):
    """Return a function that replaces the largest values of some activations."""

    def spoil(**spoiled):
        def replace_ranges(arrays):
            for index, name in enumerate(('a', 'images')):
                if name in spoiled:
                    arrays['limits'][index] *= spoiled[name] / arrays['limits'][index, 1]

        assert quantize('--max-drop', '1')[0] == 0
        (tmp_path / 'q.onnx').unlink()
        edit_calibration(tmp_path / 'q.calibration.npz', replace_ranges)

    return spoil


def test_layers_return_to_float_until_the_results_agree(quantize, spoil, tmp_path):
    """The range of one activation is spoilt: its layer returns, the other stays quantized."""
    spoil(a=1e-3)
    path = tmp_path / 'report.json'
    code, printed = quantize('--json', path, '--max-drop', '0.05')
    assert code == 0
    assert 'calibrated with 4 images, 4 of them by an earlier run, method mse' in printed.out
    report, why = reasons(path)
    assert why['b'] == 'in float to meet --max-drop'
    assert why['a'] == ''
    assert report['agreement']['metric'] == 'equal pixels'
    assert report['agreement']['value'] >= 0.95
    quantize('--json', path, '--max-drop', '1', '--force')
    report, why = reasons(path)
    assert (why['a'], why['b']) == ('', '')
    assert report['agreement']['value'] < 0.9


def test_drop_that_no_layer_meets_is_an_error(quantize, spoil):
    spoil(images=1e-6, a=1e-6)
    code, printed = quantize()
    assert code == 1
    assert 'No layer can be quantized to int8 with a drop of 0.01.' in printed.err


@pytest.mark.parametrize(
    ('args', 'options', 'message'),
    [
        (['--method', 'entropy'], {'to': 'int8'}, 'method entropy cannot be used for int8'),
        (['--tool', 'modelopt', '--method', 'mse'], {}, 'with modelopt.\nRemedy: Choose one of e'),
        (['--keep', 'none*'], {}, "keep 'none*' matches no node"),
        ([], {'output': 'q.engine'}, 'It is not an .onnx file'),
        ([], {'output': 'small.onnx'}, 'small.onnx exists already'),
        (['--force'], {'output': 'small.onnx'}, 'It is the model itself'),
        ([], {'output': 'missing/q.onnx'}, 'missing does not exist'),
        (['--json', 'missing/r.json'], {}, 'The folder missing does not exist'),
        ([], {'images': 'missing.png'}, 'missing.png does not exist'),
    ],
)
def test_bad_arguments_are_errors_with_remedies(quantize, args, options, message, tmp_path):
    code, printed = quantize(*args, **options)
    assert code == 1
    assert message in printed.err
    assert 'Remedy: ' in printed.err
    assert not (tmp_path / 'q.onnx').exists()


def of_outputs(shape, between='[relu] b = Relu(a)', **weights):
    """
    Return a network of a convolution and a product, whose output has a shape of 48 values.

    :param between: nodes that make b of a.
    """
    rng = np.random.default_rng(0)
    return parse_network(
        f"""(float[1,3,16,16] images) => (float[{','.join(map(str, shape))}] found)
        <int64[2] row = {{1, 32}}> {{
            [conv] a = Conv<strides = [8, 8]>(images, w)
            {between}
            [flat] c = Reshape(b, row)
            [product] d = MatMul(c, v)
            [shaped] found = Reshape(d, shape)
        }}""",
        constants={
            'w': rng.normal(size=(8, 3, 8, 8)),
            'v': rng.normal(size=(32, 48)),
            'shape': np.array(shape),
            **weights,
        },
    )


@pytest.mark.parametrize(
    ('shape', 'metric'), [((1, 48), 'equal best class'), ((1, 2, 3, 2, 4), 'cosine of outputs')]
)
def test_metric_is_that_of_the_task(quantize, tmp_path, shape, metric):
    path = tmp_path / 'task.onnx'
    onnx.save(of_outputs(shape), path)
    code, printed = quantize('--json', tmp_path / 'report.json', model=path)
    assert code == 0, printed.err
    report, why = reasons(tmp_path / 'report.json')
    assert report['agreement']['metric'] == metric
    assert 0.99 <= report['agreement']['value'] <= 1.0
    assert why == {'conv': '', 'product': 'last layer before the results'}
    assert 'no GPU: latency not measured' in printed.out or report['latency']['rows']


def test_original_that_computes_nan_is_refused(quantize, residual_model, tmp_path):
    model = residual_model()
    (bias,) = (each for each in model.graph.initializer if each.name == 'bb')
    bias.CopyFrom(onnx.numpy_helper.from_array(np.full(3, np.nan, np.float32), 'bb'))
    onnx.save(model, tmp_path / 'nan.onnx')
    code, printed = quantize(model=tmp_path / 'nan.onnx')
    assert code == 1
    assert 'The original network computes NaN in scores.' in printed.err
    assert not (tmp_path / 'q.onnx').exists()


def test_layers_that_cause_infinity_return_to_float(quantize, tmp_path):
    weights = np.random.default_rng(0).uniform(0.5, 1.0, (8, 3, 8, 8))
    weights[1:] *= 1e-5  # Less than a step of int8.
    nodes = '[small] small = Conv(a, one) positive = Abs(small) b = Log(positive)'
    one = np.eye(8)[..., None, None]
    model = of_outputs((1, 2, 3, 2, 4), nodes, w=weights, one=one)
    onnx.save(model, tmp_path / 'small.onnx')
    code, printed = quantize('--json', tmp_path / 'report.json')
    assert code == 0, printed.err
    report, why = reasons(tmp_path / 'report.json')
    assert why['small'] == 'in float to meet --max-drop' and not why['conv']
    (output,) = report['agreement']['outputs'].values()
    assert output['non_finite_here'] == 0


def test_images_of_one_topic_are_used(quantize, tmp_path):
    recordings = pytest.importorskip('support.recordings')
    image = recordings.raw_image(0, np.zeros((16, 16, 3), np.uint8))
    path = recordings.write_recording(
        tmp_path / 'drive', [('/front', 0, image), ('/rear', 1, image), ('/rear', 2, image)]
    )
    report = tmp_path / 'report.json'
    for index, (flags, count) in enumerate([((), 3), (('--topic', '/rear', '--force'), 2)]):
        code, printed = quantize('--json', report, *flags, images=path)
        assert code == 0, printed.err
        assert json.loads(report.read_text())['frames'] == count, index
    code, printed = quantize('--topic', '/none', '--force', images=path)
    assert code == 1 and 'has no images on topic /none' in printed.err
    code, printed = quantize('--topic', '/rear', '--force')
    assert code == 1 and '--topic has no effect without a recording.' in printed.err


def test_images_of_which_none_can_be_read_are_refused(quantize, tmp_path):
    (tmp_path / 'bad.png').write_bytes(b'not a picture')
    code, printed = quantize(images=tmp_path / 'bad.png')
    assert code == 1
    assert 'left out: 1 (unreadable file).' in printed.err
    assert 'The files have no images.' in printed.err
    code, printed = quantize('--max-image-pixels', '1')
    assert code == 1 and '(too many pixels). Cannot read ' in printed.err


def test_network_of_several_inputs_is_refused(quantize, tmp_path):
    model = of_outputs((1, 48))
    extra = onnx.helper.make_tensor_value_info('state', onnx.TensorProto.FLOAT, [1, 48])
    model.graph.input.append(extra)
    model.graph.node.append(onnx.helper.make_node('Add', ['found', 'state'], ['next']))
    model.graph.output[0].name = 'next'
    onnx.save(model, tmp_path / 'two.onnx')
    code, printed = quantize(model=tmp_path / 'two.onnx')
    assert code == 1
    assert 'two.onnx cannot be calibrated with images' in printed.err
    assert 'state' in printed.err


@pytest.fixture
def engine_of(use_backend, residual_model, tmp_path):
    """Let ONNX Runtime run a network with this last layer and output in place of the engine."""
    from trt_ros.runtime.backends import BACKENDS

    cpu = next(each for each in BACKENDS if each.name == 'onnxruntime')

    def use(change, output='scores'):
        def opened(options, report, batch):
            assert options.precision == 'fp16'
            model = residual_model()
            head = next(each for each in model.graph.initializer if each.name == 'wh')
            values = change(onnx.numpy_helper.to_array(head)).astype(np.float32)
            head.CopyFrom(onnx.numpy_helper.from_array(values, 'wh'))
            model.graph.node[-1].output[0] = model.graph.output[0].name = output
            onnx.save(model, tmp_path / 'engine.onnx')
            path = str(tmp_path / 'engine.onnx')
            return cpu.open(replace(options, model_path=path, precision='auto'), report, batch)

        use_backend(replace(cpu, name='tensorrt_rtx', open=opened))

    return use


def test_engine_that_computes_what_the_file_says_is_reported(quantize, engine_of, tmp_path):
    engine_of(lambda weights: weights)
    code, printed = quantize('--json', tmp_path / 'r.json')
    assert code == 0
    assert 'engine: equal pixels 1.0000' in printed.out
    report, _ = reasons(tmp_path / 'r.json')
    assert report['engine']['agreement']['value'] == 1.0
    assert report['engine']['problem'] == ''


def test_engine_is_compared_only_with_latency_and_the_same_outputs(quantize, engine_of):
    engine_of(np.negative, output='nms_scores')
    code, printed = quantize()
    assert code == 0
    shown = 'engine: not compared, as it has the outputs nms_scores instead of scores\n'
    assert shown in printed.out
    engine_of(np.negative)
    code, printed = quantize('--no-latency', '--force')
    assert code == 0 and 'engine: ' not in printed.out


@pytest.mark.parametrize(
    ('change', 'problem'),
    [
        (np.negative, r'equal pixels 0\.0000, and (0\.99|1\.)\d* with ONNX Runtime'),
        (lambda weights: weights * np.nan, r'values of scores are NaN or Inf'),
    ],
    ids=['wrong', 'NaN'],
)
def test_wrong_engine_is_an_error_after_the_report(quantize, engine_of, change, problem, tmp_path):
    engine_of(change)
    code, printed = quantize('--json', tmp_path / 'r.json', '--max-drop', '1')
    assert code == 1
    assert re.search(f'The engine of .*q.onnx is wrong: .*{problem}', printed.err)
    assert 'with precision fp16' in printed.err
    assert 'results: equal pixels' in printed.out
    assert 'latency' not in printed.out
    report, _ = reasons(tmp_path / 'r.json')
    assert re.search(problem, report['engine']['problem'])
