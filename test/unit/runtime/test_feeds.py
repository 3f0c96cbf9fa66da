"""Networks of several inputs: images, tensors, constants and states, with ONNX Runtime."""

from functools import partial
import re

import cv2
import numpy as np
from onnx import helper
import pytest

from support.save_network import save_network, save_text
from trt_ros.errors import BadFrameError, ClosedError, ParameterError, TensorMismatchError
from trt_ros.families.registry import DETECTORS, TENSORS
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import TensorSpec, numpy_dtype, write_tensor
from trt_ros.vision.frame import Frame


@pytest.fixture
def write(tmp_path):
    """Write a network in the text format of ONNX, see `save_text`."""
    return partial(save_text, tmp_path / 'network.onnx')


def open_pipeline(path, families=TENSORS, **options):
    """Open a network that no other process checks first, and that is not warmed up."""
    runner = OnnxRuntimeRunner.open(path, threads=1)
    return Pipeline.open(path, families=families, runner=runner, **options)


def open_and_warm_up(path, **options):
    return Pipeline.open(path, families=TENSORS, backend='onnxruntime', **options)


@pytest.fixture
def difference(write):
    """Return a network of two images, whose output is their difference."""
    inputs = 'float[1,3,4,6] left, float[1,3,4,6] right'
    return write(f'({inputs}) => (float[1,3,4,6] flow) {{ flow = Sub(left, right) }}')


def uniform(value, wh=(12, 8)):
    return np.full((wh[1], wh[0], 3), value, np.uint8)


def test_two_images_are_preprocessed_each_in_its_own_way(difference):
    inputs = ('left=image:left', 'right=image:right?scale=1.0&mean=2.0&std=4.0')
    with open_pipeline(difference, inputs=inputs) as pipeline:
        found = pipeline({'left': uniform(255), 'right': Frame.from_pixels(uniform(10))})
    np.testing.assert_allclose(found['flow'], np.full((1, 3, 4, 6), 1 - (10 - 2) / 4), rtol=1e-6)


def test_a_network_of_two_images_suggests_its_bindings_but_not_for_regions(difference):
    with pytest.raises(TensorMismatchError, match='left, right get no value') as caught:
        open_pipeline(difference)
    assert "['left=image:left/image_raw', 'right=image:right/image_raw']" in caught.value.remedy
    names = r'The network has 2 inputs: left \(1, .*\) float32; right \(1, .*\) float32\.'
    assert re.fullmatch(names, caught.value.cause)
    with pytest.raises(TensorMismatchError, match='left, right get no value') as caught:
        open_pipeline(difference, regions=True)
    assert caught.value.remedy == 'Export the network with one image as its only input.'


def test_rejects_missing_unknown_and_mistaken_inputs(difference):
    with open_pipeline(difference, inputs=('left=image:a', 'right=tensor:b')) as pipeline:
        image, tensor = uniform(0), np.zeros((1, 3, 4, 6), np.float32)
        with pytest.raises(TensorMismatchError, match="'right' is missing"):
            pipeline({'left': image})
        with pytest.raises(TensorMismatchError, match='no image or tensor named up'):
            pipeline({'left': image, 'right': tensor, 'up': tensor})
        with pytest.raises(TensorMismatchError, match=r'but got Frame.*\n.*numpy'):
            pipeline({'left': image, 'right': Frame.from_pixels(image)})
        with pytest.raises(TensorMismatchError, match=r'right came as \(4, 6\) float32'):
            pipeline({'left': image, 'right': tensor[0, 0]})
        with pytest.raises(TensorMismatchError, match='takes 1 images, but got 2'):
            pipeline({'left': [Frame.from_pixels(image)] * 2, 'right': tensor})
        with pytest.raises(
            TensorMismatchError, match=r"'right' is missing.*\n.*given are: left, 1\."
        ):
            pipeline({'left': image, 'right': None, 1: tensor})
        with pytest.raises(BadFrameError, match='The image is of type int'):
            pipeline({'left': 3, 'right': tensor})
        for run in (pipeline, pipeline.submit):
            with pytest.raises(ParameterError, match=r'\(score\) are for objects, but .* tensor'):
                run({'left': image, 'right': tensor}, score=0.9)
        for given in (image, tensor, [image, tensor], 'left.png'):
            with pytest.raises(TensorMismatchError, match='takes other inputs than one image'):
                pipeline(given)
    with pytest.raises(ClosedError):
        pipeline({'left': image, 'right': tensor})


def test_inputs_may_be_paths_and_several_runs_a_list(difference, tmp_path):
    image, tensor = uniform(7), np.zeros((1, 3, 4, 6), np.float32)
    cv2.imwrite(str(tmp_path / 'left.png'), image)
    with open_pipeline(difference, inputs=('left=image:a', 'right=tensor:b')) as pipeline:
        runs = [{'left': tmp_path / 'left.png', 'right': tensor + i} for i in range(3)]
        found = [each['flow'] for each in pipeline(runs)]
        expected = pipeline({'left': image, 'right': tensor})['flow']
    for i, each in enumerate(found):
        np.testing.assert_allclose(each, expected - i, rtol=1e-6)


@pytest.fixture
def counter(write):
    """Return a network that adds its input to a state."""
    return write(
        """(float[1,2] step, float[batch,2] h) => (float[batch,2] hn, float[batch,2] total)
        { hn = Add(h, step) total = Identity(hn) }"""
    )


@pytest.mark.parametrize('cpu_threads', [0, 1])
def test_a_state_is_the_output_of_the_previous_run_until_it_is_reset(counter, cpu_threads):
    inputs, step = ('step=tensor:step', 'h=state:hn'), np.array([[1, 10]], np.float32)
    with open_and_warm_up(
        counter, inputs=inputs, outputs=('total',), cpu_threads=cpu_threads
    ) as pipeline:
        for count in (1, 2, 3):
            (found,) = pipeline({'step': step}).values()
            assert found.tolist() == [[count, 10 * count]]
        pipeline.reset_state()
        assert pipeline({'step': step})['total'].tolist() == [[1, 10]]


def test_a_network_that_cannot_run_on_zeros_is_opened(write):
    path = write(
        """(int64 limit, int64 step) => (int64[n] y) <int64 zero = {0}>
        { y = Range(zero, limit, step) }"""
    )
    with open_and_warm_up(path, inputs='*=tensor:t') as pipeline:
        reason = 'no warm-up: the network cannot run on zeros: '
        assert any(line.startswith(reason) for line in pipeline.log_lines)
        found = pipeline({'limit': np.array(7), 'step': np.array(3)})
        assert found['y'].tolist() == [0, 3, 6]


def test_states_of_another_shape_and_strings_are_refused(write):
    path = write('(float[1,2] x, float[1,2] h) => (float[1,4] y) { y = Concat <axis = 1> (x, h) }')
    with pytest.raises(ParameterError, match=r'The state h \(1, 2\) float32 cannot come from'):
        open_pipeline(path, inputs=('x=tensor:x', 'h=state:y'))
    path = write('(string[1] x) => (string[1] y) { y = Identity(x) }')
    with pytest.raises(TensorMismatchError, match='The network input x takes strings'):
        open_pipeline(path, inputs='x=tensor:x')


@pytest.fixture
def layered(write):
    """Return a network that adds its input and `k` to a state (layers, batch, values)."""
    return write(
        """(float[1,batch,3] x, float[2,batch,3] h, float k) => (float[2,batch,3] hn)
        { sum = Add(h, x) hn = Add(sum, k) }"""
    )


def test_a_dynamic_batch_on_any_axis_of_a_state_is_1(layered):
    inputs = ('x=tensor:x', 'h=state:hn', 'k=constant:0.5')
    x = np.array([[[1, 10, 100]]], np.float32)
    with open_pipeline(layered, inputs=inputs) as pipeline:
        assert 'k: constant of shape ()' in pipeline.log_lines
        for count in (1, 2, 3):
            want = np.repeat(count * (x + 0.5), 2, axis=0)
            np.testing.assert_array_equal(pipeline({'x': x})['hn'], want)
        two = np.repeat(x, 2, axis=1)
        with pytest.raises(TensorMismatchError, match=r'hn became \(2, 2, 3\), but is the'):
            pipeline({'x': two})


def test_a_state_begins_with_its_initial_value_and_after_a_reset_again(layered, tmp_path):
    first = np.arange(6, dtype=np.float64).reshape(2, 1, 3)
    np.save(tmp_path / 'h0.npy', first)
    inputs = ('x=tensor:x', f'h=state:hn?initial={tmp_path}/h0.npy', 'k=constant:1')
    x = np.zeros((1, 1, 3), np.float32)
    with open_pipeline(layered, inputs=inputs) as pipeline:
        for _ in range(2):
            for count in (1, 2):
                np.testing.assert_array_equal(pipeline({'x': x})['hn'], first + count)
            pipeline.reset_state()


@pytest.mark.parametrize(
    ('binding', 'error', 'problem'),
    [
        ('k=constant:one', ParameterError, "'one' of the network input 'k' is no number"),
        ('k=constant:1,,2', ParameterError, 'is no number'),
        ('k=constant:1,2', TensorMismatchError, r'takes k \(\) float32, but k came as \(2\)'),
        ('k=constant:1e300', TensorMismatchError, 'but k came as float64'),
        ('k=constant:none.npy', ParameterError, 'none.npy cannot be read'),
        ('k=constant:/dev/zero.npy', ParameterError, 'cannot be read'),
        ('h=state:hn?initial=1,2', TensorMismatchError, r'but h came as \(2\)'),
        ('h=state:hn?first=1', ParameterError, "Unknown setting 'first'.*\n.*Use initial"),
    ],
)
def test_values_that_do_not_fit_are_refused(layered, binding, error, problem):
    bindings = {'x': 'x=tensor:x', 'h': 'h=state:hn', 'k': 'k=constant:1'} | {binding[0]: binding}
    with pytest.raises(error, match=problem):
        open_pipeline(layered, inputs=tuple(bindings.values()))


@pytest.mark.parametrize(
    ('c', 'text', 'want'),
    [
        ('int64', '16000', 16000),
        ('int64[2,2]', '[1, 2, 3, 4]', [[1, 2], [3, 4]]),
        ('int64[n,2]', '1,2,3,4', [[1, 2], [3, 4]]),
        ('int64[n,2]', '7', [[7, 7]]),
        ('bool[2]', '1,0', [True, False]),
        ('float16[2]', '-0.5', [-0.5, -0.5]),
    ],
)
def test_a_constant_has_the_shape_and_type_of_its_input(write, c, text, want):
    nodes = 'x_ = Identity(x) c_ = Identity(c)'
    path = write(f'(float[1] x, {c} c) => (float[1] x_, {c} c_) {{ {nodes} }}')
    with open_pipeline(path, inputs=('x=tensor:x', f'c=constant:{text}')) as pipeline:
        found = pipeline({'x': np.zeros(1, np.float32)})['c_']
    np.testing.assert_array_equal(found, np.array(want, found.dtype), strict=True)


def test_a_constant_of_one_row_is_repeated_for_each_image_of_a_batch(write):
    path = write(
        """(float[batch,3,4,6] x, float[batch,1,1,1] c) => (float[batch,2,1,1] y)
        { m = ReduceMean <axes = [1, 2, 3], keepdims = 1> (x) y = Concat <axis = 1> (m, c) }"""
    )
    inputs = ('x=image:x?scale=1.0', 'c=constant:2')
    with open_pipeline(path, inputs=inputs, batch=3) as pipeline:
        found = pipeline([uniform(value) for value in (1, 2, 3)])
    assert [each['y'].ravel().tolist() for each in found] == [[1, 2], [2, 2], [3, 2]]


def test_a_network_of_arrays_is_opened_by_its_path_and_its_outputs_are_chosen(counter):
    with open_pipeline(counter, inputs=('*=tensor:t',), outputs=('total', 'hn')) as pipeline:
        one = np.ones((1, 2), np.float32)
        assert list(pipeline({'step': one, 'h': one})) == ['total', 'hn']
    with pytest.raises(ParameterError, match='outputs names sum, which the network does not have'):
        open_pipeline(counter, inputs=('*=tensor:t',), outputs=('sum',))
    options = {'inputs': ('step=tensor:step', 'h=state:hn'), 'backend': 'onnxruntime'}
    with Pipeline.open(counter, **options) as pipeline:
        assert 'decoder tensor: the network gets no image' in pipeline.log_lines
        assert pipeline({'step': np.array([[1, 2]])})['hn'].tolist() == [[1, 2]]


def test_an_image_network_with_a_state_runs_image_by_image(write):
    inputs = 'float[1,1,2,2] x, float[1,1,2,2] h'
    path = write(f'({inputs}) => (float[1,1,2,2] y) {{ y = Add(x, h) }}')
    inputs = ('x=image:image?scale=1.0', 'h=state:y')
    with open_pipeline(path, inputs=inputs) as pipeline:
        gray = Frame.from_pixels(np.full((2, 2), 5, np.uint8), 'mono8')
        results = pipeline.infer_all([gray, gray])
        assert [result['y'].max() for result in results] == [5, 10]
        assert pipeline(gray)['y'].tolist() == [[[[15, 15], [15, 15]]]]


def test_the_second_image_is_the_fourth_channel(write):
    path = write('(float[1,4,2,2] x) => (float[1,4,2,2] y) { y = Identity(x) }')
    depth = Frame.from_pixels(np.full((2, 2), 1500, np.uint16), '16UC1')
    with open_pipeline(path, inputs=('x=image:color,depth',)) as pipeline:
        found = pipeline({'x': [Frame.from_pixels(uniform(255, (2, 2))), depth]})['y']
        assert any(', rgb and a fourth channel, ' in line for line in pipeline.log_lines)
    np.testing.assert_allclose(found[0, :, 0, 0], [1, 1, 1, 1.5])
    with pytest.raises(ParameterError, match='two images, but its number of channels is 3'):
        path = write('(float[1,3,2,2] x) => (float[1,3,2,2] y) { y = Identity(x) }')
        open_pipeline(path, inputs=('x=image:color,depth',))


def test_rejects_tensors_whose_values_would_change(write):
    path = write('(int64[2] x) => (int64[2] y) { y = Identity(x) }')
    with open_pipeline(path, inputs=('x=tensor:x',)) as pipeline:
        assert pipeline({'x': np.array([3, 4], np.uint8)})['y'].tolist() == [3, 4]
        with pytest.raises(TensorMismatchError, match='x came as float32') as caught:
            pipeline({'x': np.array([3, 4], np.float32)})
        assert caught.value.cause == 'The conversion could change the values.'
        assert caught.value.remedy == 'Send int64.'
        with pytest.raises(TensorMismatchError, match='x came as uint64'):
            pipeline({'x': np.array([3, 2**63], np.uint64)})


@pytest.mark.parametrize(
    ('dtype', 'value'),
    [('float16', 1e5), ('float16', 70000), ('float32', 1e300), ('bfloat16', -1e300)],
)
def test_rejects_finite_values_that_would_become_infinite(dtype, value):
    spec = TensorSpec('x', (1,), dtype, 'input')
    target = np.empty(1, numpy_dtype(spec.dtype))
    with pytest.raises(TensorMismatchError, match=f'A value is beyond the range of {dtype}'):
        write_tensor(target, spec, np.array([value]))
    write_tensor(target, spec, np.array([np.inf]))  # No finite value changes.


def test_bfloat16_is_rounded_to_nearest_even():
    values = np.array([1.0, 1.00390625, 1.01171875, -3.4e38, np.inf, np.nan], np.float32)
    bits = np.empty(6, np.uint16)
    write_tensor(bits, TensorSpec('x', (6,), 'bfloat16', 'input'), values)
    assert bits.tolist() == [0x3F80, 0x3F80, 0x3F82, 0xFF80, 0x7F80, 0x7FC0]


def test_nonfinite_outputs_are_counted_and_the_state_is_named(counter, caplog):
    inputs = ('step=tensor:step', 'h=state:hn')
    with open_pipeline(counter, inputs=inputs) as pipeline:
        key = 'frames with non-finite values'
        pipeline({'step': np.full((1, 2), 1e30, np.float32)})
        assert pipeline.diagnostics()[key] == '0'
        for _ in range(2):
            pipeline({'step': np.array([[np.nan, 1]], np.float32)})
        assert pipeline.diagnostics()[key] == '2'
    (message,) = [each.message for each in caplog.records if 'NaN' in each.message]
    assert message.endswith('States keep them: reset the states.')


def test_nonfinite_outputs_of_the_warm_up_do_not_count(write, caplog):
    path = write('(float[1] x) => (float[1] y) { y = Log(x) }')
    with open_and_warm_up(path, inputs='x=tensor:x') as pipeline:
        caplog.clear()
        for value, count in ((1, '0'), (-1, '1')):
            pipeline({'x': np.array([value])})
            assert pipeline.diagnostics()['frames with non-finite values'] == count
    assert [each.message for each in caplog.records if 'NaN' in each.message]


def test_a_vector_bound_to_an_image_is_to_be_bound_to_a_tensor(counter):
    with pytest.raises(TensorMismatchError, match='is not a batch of images') as caught:
        open_pipeline(counter, inputs=('step=image:step', 'h=state:hn'))
    assert caught.value.remedy == 'Bind it to a tensor in inputs: step=tensor:TOPIC.'


@pytest.fixture
def seen(write):
    """Return a network that returns its input x, beside one of an integer."""
    return write(
        """(float[batch,3] x, int64[1] n) => (float[batch,3] seen, int64[1] m)
        { seen = Identity(x) m = Identity(n) }"""
    )


@pytest.mark.parametrize(
    ('settings', 'expected'),
    [
        ('scale=0.5', lambda x: x * 0.5),
        ('default=1,2,3', lambda x: x - np.array([[1, 2, 3]])),
        ('offset=-1&default=0.1', lambda x: (x - 0.1) + -1),
        (
            'clip=-1,1&offset=0.25&scale=2,3,4&default=0.1,0.2,0.3',
            lambda x: np.clip((x - [0.1, 0.2, 0.3]) * [2, 3, 4] + 0.25, -1, 1),
        ),
        ('clip=-1,-2,-3,1,0.5,0', lambda x: np.clip(x, [-1, -2, -3], [1, 0.5, 0])),
    ],
)
@pytest.mark.parametrize('rows', [1, 2])
def test_arithmetic_is_that_of_numpy_in_float64(seen, settings, expected, rows):
    x = np.random.default_rng(5).normal(size=(rows, 3))
    with open_pipeline(seen, inputs=(f'x=tensor:x?{settings}', 'n=constant:1')) as pipeline:
        found = pipeline({'x': x})['seen']
    assert np.array_equal(found, expected(x).astype(np.float32))


def test_arithmetic_reads_its_values_from_files(seen, tmp_path):
    np.save(tmp_path / 'pose.npy', np.array([[1.0, 2.0, 3.0]]))
    inputs = (f'x=tensor:x?default={tmp_path}/pose.npy', 'n=constant:1')
    with open_pipeline(seen, inputs=inputs) as pipeline:
        assert any('with default' in line for line in pipeline.log_lines)
        assert pipeline({'x': np.ones((1, 3))})['seen'].tolist() == [[0, -1, -2]]


@pytest.mark.parametrize(
    ('binding', 'error', 'words'),
    [
        ('x=tensor:x?scale=a', ParameterError, 'no number'),
        ('x=tensor:x?scale=1,2', TensorMismatchError, r'came as \(2\)'),
        ('x=tensor:x?clip=1', ParameterError, 'clip=LOW,HIGH'),
        ('x=tensor:x?clip=1,1', ParameterError, 'clip=LOW,HIGH'),
        ('x=tensor:x?clip=1,nan', ParameterError, 'clip=LOW,HIGH'),
        ('x=tensor:x?scale=1,nan,1', ParameterError, r"scale of .*'x' is '1,nan,1'.*\n.* finite"),
        ('x=tensor:x?offset=inf', ParameterError, 'Use finite numbers'),
        ('x=tensor:x?default=-inf', ParameterError, 'Use finite numbers'),
        ('n=tensor:n?scale=2', TensorMismatchError, 'for floating-point inputs'),
    ],
)
def test_arithmetic_that_does_not_fit_is_refused(seen, binding, error, words):
    bindings = {'x': 'x=tensor:x', 'n': 'n=tensor:n'} | {binding[0]: binding}
    with pytest.raises(error, match=words):
        open_pipeline(seen, inputs=tuple(bindings.values()))


def test_topics_stand_for_the_inputs_that_they_feed(seen):
    x = np.array([[1, 2, 3]], np.float32)
    inputs = ('x=joints:joint_states#position[a,b,c]', 'n=tensor:counts')
    with open_pipeline(seen, inputs=inputs) as pipeline:
        for names in (('x', 'n'), ('joint_states', 'n'), ('x', 'counts')):
            found = pipeline(dict(zip(names, (x, np.array([4])))))
            assert np.array_equal(pipeline({'x': x[0], 'n': np.array([4])})['seen'], x)
            assert (found['seen'].tolist(), found['m'].tolist()) == (x.tolist(), [4])
        with pytest.raises(TensorMismatchError, match="'x' is missing"):
            pipeline({'joints': x, 'counts': np.array([4])})
    inputs = ('x=twist:cmd#linear', 'n=twist:cmd#angular[z]')
    with (
        open_pipeline(seen, inputs=inputs) as pipeline,
        pytest.raises(TensorMismatchError, match="'x' is missing"),
    ):
        pipeline({'cmd': x})


@pytest.mark.parametrize(
    ('network', 'suggested'),
    [
        ('counter', ['step=tensor:step', 'h=state:hn']),
        ('layered', ['x=tensor:x', 'h=state:hn', 'k=tensor:k']),
    ],
)
def test_suggested_bindings_are_accepted(network, suggested, request):
    path = request.getfixturevalue(network)
    with pytest.raises(TensorMismatchError, match='get no value') as caught:
        open_pipeline(path, DETECTORS)
    assert f'Set inputs to {suggested}' in caught.value.remedy
    open_pipeline(path, inputs=suggested).close()


@pytest.mark.parametrize(
    ('state', 'output', 'is_state', 'why'),
    [
        ('h0', 'hn', True, 'h0 is named as the output hn of the run before'),
        ('state_in', 'state_out', True, 'state_in is named as the output state_out of the run b'),
        ('past.1.key', 'present.1.key', True, 'past.1.key is named as the output present.1.key'),
        ('prev_action', 'action', True, 'prev_action is named as the output action of the run b'),
        ('lstm_c', 'y', True, 'lstm_c is named as a memory'),
        # The joints of a robot, and the command to them.
        (
            'observation.state',
            'action',
            False,
            'observation.state has the shape of action, but no',
        ),
        ('input', 'output', False, 'if it is that of the run before, input=state:output'),
    ],
)
def test_a_state_is_suggested_by_names_and_with_its_reason(tmp_path, state, output, is_state, why):
    path = save_network(
        tmp_path / 'network.onnx',
        [helper.make_node('Add', ['x', state], [output])],
        {'x': (1, 2), state: (1, 2)},
        {output: (1, 2)},
    )
    with pytest.raises(TensorMismatchError, match='get no value') as caught:
        open_pipeline(path, DETECTORS)
    binding = f'state:{output}' if is_state else f'tensor:{state}'
    assert f"['x=tensor:x', '{state}={binding}'] or the like" in caught.value.remedy
    assert why in caught.value.remedy
