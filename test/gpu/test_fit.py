"""`trt-ros fit` with TensorRT in place of ONNX Runtime."""

import json

import pytest

from support.shape_networks import save_shapes
from trt_ros.cli import main
from trt_ros.demo.scene import held_out
from trt_ros.media import write_picture

pytestmark = pytest.mark.gpu


def test_readings_are_ranked_as_on_the_cpu(tmp_path, capsys):
    model = save_shapes(tmp_path / 'shapes.onnx', scale=1.0)
    for index, (pixels, *_) in enumerate(held_out(2)):
        write_picture(tmp_path / f'{index}.png', pixels)
    given = ['--resize', 'letterbox', '--channel-order', 'rgb', '--output', str(tmp_path / 'fit')]
    found = {}
    for backend in ('onnxruntime', 'auto'):
        assert (
            main(['fit', str(model), str(tmp_path), *given, '--json', '--backend', backend]) == 0
        )
        found[backend] = json.loads(capsys.readouterr().out)
    cpu, gpu = found.values()
    assert cpu[0]['scale'] == gpu[0]['scale'] == 1.0
    assert gpu[0]['score'] == pytest.approx(cpu[0]['score'], abs=0.05)
