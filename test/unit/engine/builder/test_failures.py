"""TensorRT's own words, and what a person is told instead."""

import pytest

from trt_ros.engine.builder.failures import error_from_log

SAID = [
    (
        'Error Code 2: Internal Error (Assertion !layerImpls.empty() failed. node_of_y_0 has no '
        'runners that implement it In getSupportedFormats',
        'No kernel supports the layer node_of_y_0.',
    ),
    ('Op type EfficientNMS_TRT is not supported in TensorRT-RTX.', 'operator EfficientNMS_TRT'),
    ('NonZero plugin creator version 1 was not found in plugin registry.', 'operator NonZero'),
    ('Assertion failed: model->ParseFromCodedStream(&codedInput)', 'not an ONNX model'),
    ('WeightsContext.cpp:203: Failed to open file: m/x.data', 'external data file'),
    (
        'Failed to import initializer: In node -1 with name:  and operator:  (parseGraph): '
        'Assertion failed: ctx->getWeightsContext().convertOnnxWeights(initializer, &weights): '
        'Failed to import initializer: wq',
        'type of the constant wq',
    ),
    (
        "API Usage Error (Input tensor x has static dimensions that don't match kMIN dimensions "
        'in profile index 0. Input dimensions are [4,0] but profile dimensions are [4,1].',
        'input x has a dimension of 0',
    ),
    (
        'ITopKLayer node_of_v: K exceeds the maximum value allowed (3840).',
        'limited to 3840 values',
    ),
    ('Attention operation was not supported by a dedicated kernel.', 'supports the Attention'),
    (
        'b0_DequantizeLinear: input has type Int32 but must have type FP8, FP4, Int4, or Int8',
        'bias b0_DequantizeLinear',
    ),
    ('Non-zero zero point is not supported', 'asymmetrically'),
    ('Found unsupported input type of UINT8', 'scales or the type of a quantized tensor'),
    (
        'Network has dynamic or shape inputs, but no optimization profile has been defined.',
        'no profile',
    ),
    (
        'Dimension mismatch for tensor x and profile 0. At dimension axis 1, profile has min=4',
        'profile of x does not match',
    ),
    (
        'Tactic Selection: no tactics to implement the operation within workspace limit.',
        'workspace limit',
    ),
    (
        'Cannot compile for target(s) sm75, because the model contains HW-specific datatypes: b16',
        'does not support b16',
    ),
    ('FP32 GEMM is not supported', 'float32 matrix products'),
    ('Cuda Runtime (In generateForCurrent at x)', 'this machine has none'),
    ('Requested amount of GPU memory could not be allocated: out of memory', 'ran out of memory'),
]


@pytest.mark.parametrize('op', ['ConvInteger', 'MatMulInteger', 'DynamicQuantizeLinear'])
@pytest.mark.parametrize(
    'text',
    [
        'Node {0} n_7: Op type {0} is not supported in TensorRT-RTX.',
        'Node {0} n_7: Plugin not found, are the plugin name, version, and namespace correct?',
        'Node {0} n_7: {0} plugin creator version 1 was not found in plugin registry.',
    ],
)
def test_integer_quantization_error_names_supported_format(op, text):
    error = error_from_log([text.format(op)], doing='parse', library='tensorrt 10.16')
    assert error.problem.endswith(f'The operator {op} is not supported.')
    assert 'QuantFormat.QDQ' in error.remedy and 'backend onnxruntime' in error.remedy


@pytest.mark.parametrize(('text', 'told'), SAID)
def test_known_texts_are_explained_with_a_remedy(text, told):
    error = error_from_log(
        ['[tacticSupply.cpp::f::48] something before', text],
        doing='build',
        library='tensorrt_rtx 1.5',
    )
    assert told in error.problem
    assert error.cause == text and error.remedy


@pytest.mark.parametrize(
    ('said', 'cause'),
    [(['never seen', 'and more'], 'never seen\nand more'), ([], 'TensorRT logged no reason.')],
)
def test_unknown_texts_are_passed_on(said, cause):
    error = error_from_log(said, doing='parse', library='tensorrt 10.3')
    assert str(error).startswith(
        f'tensorrt 10.3 cannot parse the model.\nCause: {cause}\nRemedy: '
    )


def test_an_operator_that_tensorrt_lacks_is_not_sent_to_tensorrt():
    said = ['(BatchedNMS_TRT plugin creator version 1 was not found)']
    remedies = {
        name: error_from_log(said, doing='parse', library=name).remedy
        for name in ('tensorrt 11.4', 'tensorrt_rtx 1.5')
    }
    assert 'backend onnxruntime, or add a plugin library' in remedies['tensorrt 11.4']
    assert 'backend tensorrt or onnxruntime' in remedies['tensorrt_rtx 1.5']
    assert '--plugin' in remedies['tensorrt_rtx 1.5']
