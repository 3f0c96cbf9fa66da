"""`trt-ros verify` names the layer that overflows in an fp16 engine."""

import json

import numpy as np
import pytest

from support.save_network import save_text
from trt_ros.cli import main

pytestmark = pytest.mark.gpu


def test_layer_that_overflows_in_fp16_is_named(gpu, tmp_path, capsys):
    path = save_text(
        tmp_path / 'overflowing.onnx',
        '(float[1, 64] x) => (float[1, 64] y) {'
        '[first] a = MatMul(x, large) b = Relu(a) [second] c = MatMul(b, large) '
        'd = Abs(c) [third] e = MatMul(d, small) y = Relu(e) }',
        constants={
            name: np.full((64, 64), value / 64, np.float32)
            for name, value in (('large', 5000.0), ('small', 1e-3))
        },
    )
    here = ['--device', str(gpu.index)]
    code = main(['verify', str(path), '--precision', 'fp16', '--json', *here])
    found = json.loads(capsys.readouterr().out)
    assert code == 1
    assert found['outputs']['y']['non_finite_reference'] == 0
    assert found['layers']['first'] == 'MatMul second (output c)'
    assert main(['verify', str(path), '--precision', 'bf16', '--layers', *here]) == 0
    assert 'no layer differs of the 6' in capsys.readouterr().out
