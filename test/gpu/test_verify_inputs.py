"""`trt-ros verify` and `bench` of several images, a tensor and a state on the GPU."""

import json

import pytest

from support.save_network import POLICY, save_text
from trt_ros.cli import main

pytestmark = pytest.mark.gpu

BINDINGS = 'left=image:left?scale=1.0, right=image:right?scale=1.0, q=tensor:joints, h=state:hn'


@pytest.fixture
def model(tmp_path):
    return save_text(tmp_path / 'policy.onnx', POLICY)


def test_states_go_from_run_to_run_on_both_sides(gpu, model, capsys):
    here = ['--device', str(gpu.index)]
    assert (
        main(['verify', str(model), '--inputs', BINDINGS, '--random', '4', '--json', *here]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found['outputs']['hn']['largest'] == 4
    assert found['outputs']['action']['max_error'] < 1e-3


def test_bound_inputs_are_measured(gpu, model, tmp_path):
    written = tmp_path / 'times.json'
    here = ['--device', str(gpu.index)]
    size = ['--frames', '20', '--image-size', '32x16']
    code = main(['bench', str(model), '--inputs', BINDINGS, *size, '--json', str(written), *here])
    assert code == 0
    (result,) = json.loads(written.read_text())['results']
    assert result['image'] == '32x16 bgr8, q [1, 4]'
    assert result['graph_ms']['gpu']['p50'] > 0
