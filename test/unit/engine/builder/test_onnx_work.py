"""Work of a network, counted from the shapes of its model."""

import numpy as np
import onnx
import pytest

from trt_ros.engine.builder.onnx_work import flop_of


def network(body, *weights, inputs='float[1,3,8,6] x', outputs='float[1,c,h,w] y'):
    """Return a model; each weight is an array by its name."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> net ({inputs}) => ({outputs}) {{ {body} }}'
    )
    for name, shape in weights:
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name)
        )
    return model


@pytest.mark.parametrize(
    'body',
    [
        'y = Relu (x)',
        'z = Conv (x, w) y = Einsum <equation = "abcd,abcd->abcd"> (z, z)',
        'z = Conv (x, w) h, s = LSTM (z, w, w) y = Relu (z)',
    ],
)
def test_network_without_products_or_with_others_has_no_work(body):
    assert flop_of(network(body, ('w', (3, 3, 1, 1)))) is None


@pytest.mark.parametrize(
    ('body', 'weight', 'products'),
    [
        ('y = Conv <pads = [1, 1, 1, 1]> (x, w)', (5, 3, 3, 3), 5 * 48 * 27),
        ('y = Conv <strides = [2, 2]> (x, w)', (5, 3, 2, 2), 5 * 12 * 12),
        ('y = Conv <group = 3> (x, w)', (3, 1, 1, 1), 3 * 48),
        ('y = ConvTranspose <strides = [2, 2]> (x, w)', (3, 5, 2, 2), 144 * 20),
        ('y = MatMul (x, w)', (6, 7), 24 * 6 * 7),
    ],
)
def test_operators_are_counted(body, weight, products):
    assert flop_of(network(body, ('w', weight))) == 2 * products


@pytest.mark.parametrize(('attribute', 'shape'), [('transA = 1', (6, 4)), ('transA = 0', (4, 6))])
def test_gemm_is_counted_in_both_layouts(attribute, shape):
    model = network(
        f'y = Gemm <{attribute}> (x, w)',
        ('w', (6, 5)),
        inputs=f'float[{shape[0]},{shape[1]}] x',
        outputs='float[4,5] y',
    )
    assert flop_of(model) == 2 * 4 * 6 * 5


def test_dynamic_batch_is_one_and_the_model_stays_as_it_is():
    model = network('y = Conv (x, w)', ('w', (40, 3, 8, 6)), inputs='float[N,3,8,6] x')
    before = model.SerializeToString()
    assert flop_of(model) == 2 * 40 * 144
    assert model.SerializeToString() == before


def test_functions_and_subgraphs_have_no_number():
    model = network('y = Conv (x, w)', ('w', (4, 3, 1, 1)))
    assert flop_of(model)
    model.functions.append(onnx.helper.make_function('f', 'F', ['a'], ['b'], [], []))
    assert flop_of(model) is None
    model = network('t = Conv (x, w) y = Loop (n, c, t)', ('w', (4, 3, 1, 1)))
    assert flop_of(model) is None


def test_an_invalid_product_of_a_scalar_has_no_number():
    model = network('y = MatMul (x, w)', ('w', (6, 7)), inputs='float x', outputs='float[4,7] y')
    assert flop_of(model) is None


def test_unknown_size_has_no_number():
    assert (
        flop_of(network('y = Conv (x, w)', ('w', (4, 3, 1, 1)), inputs='float[1,3,H,W] x')) is None
    )
