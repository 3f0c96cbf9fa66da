"""int32 image inputs, which become uint8."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from support.builds import build_here
from trt_ros.engine.builder.onnx_rewrites import images_as_uint8, rewrite
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ParameterError

#: Two operators read the input, one of them in a branch.
NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
    small (int32[1,4,4,3] input) => (float[1,3] mean, int32[1,4,4,3] same) {
        floats = Cast <to = 1> (input)
        mean = ReduceMean <axes = [1, 2], keepdims = 0> (floats)
        yes = Constant <value = bool {1}> ()
        same = If (yes) <
            then_branch = one () => (int32[1,4,4,3] a) { a = Add (input, input) },
            else_branch = two () => (int32[1,4,4,3] b) { b = Identity (input) }
        >
    }"""
PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
    small (int32[1,H,W,3] input) => (float[1,3] mean) {
        floats = Cast <to = 1> (input)
        mean = ReduceMean <axes = [1, 2], keepdims = 0> (floats)
    }"""


def run(model, pixels):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=['CPUExecutionProvider']
    )
    return session.run(None, {'input': pixels})


def test_results_for_pixels_stay_the_same():
    model = onnx.parser.parse_model(NETWORK)
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
    model = onnx.parser.parse_model(PLAIN.replace(before, after))
    assert images_as_uint8(model) == []


@pytest.mark.slow
def test_an_engine_takes_uint8_of_an_open_size(tmp_path, rtx):
    path = tmp_path / 'model.onnx'
    onnx.save(onnx.parser.parse_model(PLAIN), path)
    report, _ = build_here(path, rtx, input_size=(64, 96))
    (spec,) = report['inputs']
    assert (spec['name'], spec['dtype'], tuple(spec['shape'])) == (
        'input',
        'uint8',
        (1, -1, -1, 3),
    )


def test_stripped_weights_are_refused():
    model = onnx.parser.parse_model(PLAIN)
    with pytest.raises(ParameterError, match='cannot be combined with int32 image inputs'):
        rewrite(model, BuildOptions(strip_weights=True))
    assert not rewrite(model, BuildOptions(strip_weights=True))  # It takes uint8 now.
