"""Rewrites of networks: broadcasts made explicit, Einsum equations, int32 images."""

import numpy as np
import onnx
from onnx import helper
import onnxruntime
import pytest

from support.broadcasts import BROADCASTS, save_broadcast
from support.builds import build_here
from support.save_network import parse_network
from trt_ros.engine.builder.onnx_rewrites import (
    expand_broadcasts,
    images_as_uint8,
    lower_equation,
    lower_equations,
    rewrite,
)
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ParameterError


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
def test_the_engine_is_built(tmp_path, rtx):
    save_broadcast(tmp_path / 'net.onnx', 'quaternion')
    report, _ = build_here(tmp_path / 'net.onnx', rtx)
    assert report['outputs'][0]['name'] == 'y'


@pytest.mark.parametrize(
    ('inputs', 'product'),
    [
        ('float[1,4] x', 'Mul(x, k)'),
        ('float[1,4] x', 'Mul(x, x)'),
        ('float[n,4] x, float[n,1] u', 'Mul(x, u)'),
    ],
)
def test_constants_equal_and_unknown_shapes_stay(inputs, product):
    model = parse_network(
        f"""({inputs}) => (float[n,8] y) <float[1,1] k = {{1}}>
        {{ m = {product} y = Concat <axis = 1> (m, x) }}"""
    )
    onnx.checker.check_model(model, full_check=True)
    assert expand_broadcasts(model) == 0


A, B = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
PRODUCTS = np.arange(16.0).reshape(1, 1, 4, 4)


@pytest.mark.parametrize(
    ('equation', 'lower', 'operands'),
    [
        ('ij,jk->ik', 'ij,jk->ik', (A, B)),
        ('BHID,BHJD->BHIJ', 'acdb,aceb->acde', (PRODUCTS, PRODUCTS)),
        ('...Aa, aB -> ...AB', '...ba, ac -> ...bc', (A, B)),
        # Outputs that are not written keep their order.
        ('aB', 'ab->ba', (A,)),
        ('...zA, AB', '...za, ab->...bz', (A, B)),
        ('aA, A', 'ab, b->a', (A, B[:, 0])),
        ('Aa, aA', 'ba, ab->', (A, A.T)),
    ],
)
def test_letters_are_renamed_to_free_ones(equation, lower, operands):
    assert lower_equation(equation) == lower
    want, got = (np.einsum(each, *operands) for each in (equation, lower))
    assert (got == want).all() and got.shape == want.shape


def test_equations_that_are_no_text_or_of_too_many_letters_are_left():
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node('Einsum', ['x'], ['y'], equation=b'\xffA->A')], 'g', [], []
        )
    )
    assert lower_equation('') == ''
    lower_equations(model)
    assert model.graph.node[0].attribute[0].s == b'\xffa->a'
    letters = 'abcdefghijklmnopqrstuvwxyAB'
    assert lower_equation(f'{letters}->{letters}') == f'{letters}->{letters}'


@pytest.fixture
def upper(models):
    """Write a product of x with a weight, in upper-case letters."""
    return models.save(
        """(float[1,4,4] x) => (float[1,4,4] y)
        { y = Einsum <equation = "BIJ,JK->BIK"> (x, w) }""",
        constants={'w': np.eye(4)},
    )


@pytest.mark.slow
@pytest.mark.parametrize('precision', ['auto', 'fp16'])
def test_rtx_builds_upper_case_equations(upper, rtx, precision):
    report, _ = build_here(upper, rtx, precision=precision)
    assert [one['name'] for one in report['outputs']] == ['y']


#: Two operators read the input, one of them in a branch.
NETWORK = """(int32[1,4,4,3] input) => (float[1,3] mean, int32[1,4,4,3] same) {
        floats = Cast <to = 1> (input)
        mean = ReduceMean <axes = [1, 2], keepdims = 0> (floats)
        yes = Constant <value = bool {1}> ()
        same = If (yes) <
            then_branch = one () => (int32[1,4,4,3] a) { a = Add (input, input) },
            else_branch = two () => (int32[1,4,4,3] b) { b = Identity (input) }
        >
    }"""
PLAIN = """(int32[1,H,W,3] input) => (float[1,3] mean) {
        floats = Cast <to = 1> (input)
        mean = ReduceMean <axes = [1, 2], keepdims = 0> (floats)
    }"""


def run(model, pixels):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=['CPUExecutionProvider']
    )
    return session.run(None, {'input': pixels})


def test_results_for_pixels_stay_the_same():
    model = parse_network(NETWORK)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 4, 4, 3), dtype=np.uint8)
    expected = run(model, pixels.astype(np.int32))
    assert images_as_uint8(model) == ['input']
    onnx.checker.check_model(model)
    for found, wanted in zip(run(model, pixels), expected):
        assert found.tolist() == wanted.tolist()
    assert images_as_uint8(model) == []


@pytest.mark.parametrize(
    ('before', 'after'),
    [
        ('int32[1,H,W,3] input', 'float[1,H,W,3] input'),
        ('int32[1,H,W,3] input', 'int32[1,H,W,5] input'),
        ('int32[1,H,W,3] input', 'int32[1,H,3] input'),
    ],
)
def test_other_inputs_stay_as_they_are(before, after):
    model = parse_network(PLAIN.replace(before, after))
    assert images_as_uint8(model) == []


@pytest.mark.slow
def test_an_engine_takes_uint8_of_an_open_size(models, rtx):
    report, _ = build_here(models.save(PLAIN), rtx, input_size=(64, 96))
    (spec,) = report['inputs']
    assert (spec['name'], spec['dtype'], spec['shape']) == ('input', 'uint8', [1, -1, -1, 3])


def test_stripped_weights_are_refused_for_they_are_read_from_the_file(upper):
    stripped, model = BuildOptions(strip_weights=True), parse_network(PLAIN)
    for each, what in ((model, 'int32 image inputs'), (onnx.load(upper), 'upper-case')):
        with pytest.raises(ParameterError, match=f'strip_weights cannot be combined with {what}'):
            rewrite(each, stripped)
    assert not rewrite(model, stripped)  # It takes uint8 now.
