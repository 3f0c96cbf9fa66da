"""Rounding and bytes of quantized values, compared with those of ONNX."""

import numpy as np
import onnx
import pytest

from trt_ros.quantization.layers import FORMATS, FP8, INT8


@pytest.mark.parametrize('quant_format', FORMATS.values(), ids=FORMATS)
def test_onnx_reads_the_rounded_values_back(quant_format):
    values = np.concatenate(
        [
            [0.0, -0.0, 2.0**-9, 2.0**-10, 3 * 2.0**-9, 2.0**-6, 447.0, 449.0, -1e6],
            np.random.default_rng(0).normal(scale=60, size=2000),
        ]
    )
    rounded = quant_format.round(values)
    tensor = onnx.TensorProto(
        dims=values.shape,
        data_type=onnx.TensorProto.DataType.Value(quant_format.onnx_type),
        raw_data=quant_format.encode(rounded),
    )
    read = onnx.numpy_helper.to_array(tensor).astype(np.float64)
    np.testing.assert_array_equal(read, rounded)
    assert np.abs(rounded).max() == quant_format.largest


def test_int8_rounds_to_multiples_of_the_scale():
    assert INT8.simulate(np.array([0.0, 0.4, 0.6, 300.0, -300.0]), 127.0).tolist() == [
        0.0,
        0.0,
        1.0,
        127.0,
        -127.0,
    ]


def test_fp8_keeps_three_bits_of_mantissa():
    # Between 16 and 32 the step is 2; a tie goes to the even one.
    assert FP8.round(np.array([16.9, 17.0, 17.1, 19.0])).tolist() == [16.0, 16.0, 18.0, 20.0]


def test_range_of_zeros_has_a_scale():
    assert INT8.scales(np.zeros(2)).tolist() == pytest.approx([1 / 127] * 2, rel=2**-7)
