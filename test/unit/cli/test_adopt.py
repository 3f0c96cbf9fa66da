"""Sidecars for engines of other tools."""

import json
from pathlib import Path
import shutil

from onnx import load, save
import pytest

from trt_ros.cli import main
from trt_ros.driver import nvidia_driver
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.engine import refuse_other_tensors
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.sidecar import read_sidecar, sidecar_path
from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.trt import installed, load_trt

INPUT = TensorSpec('x', (-1, 3, 8, 8), 'float32', 'input')
OUTPUT = TensorSpec('y', (-1, 5), 'float32', 'output')


@pytest.mark.parametrize(
    ('found', 'fits'),
    [
        ([INPUT, OUTPUT], True),
        ([TensorSpec('x', (1, 3, 8, 8), 'float16', 'input'), OUTPUT], True),
        ([INPUT], False),
        ([INPUT, TensorSpec('y', (-1, 6), 'float32', 'output')], False),
        ([INPUT, TensorSpec('y', (5,), 'float32', 'output')], False),
        ([INPUT, TensorSpec('y', (-1, 5), 'int32', 'output')], False),
        ([INPUT, TensorSpec('output0', (-1, 5), 'float32', 'output')], False),
    ],
)
def test_tensors_of_an_engine_are_compared_with_the_model(found, fits):
    paths = Path('a.engine'), Path('a.onnx')
    if fits:
        refuse_other_tensors(paths[0], found, paths[1], [INPUT, OUTPUT])
        return
    with pytest.raises(TensorMismatchError, match=r'a\.engine has other inputs or outputs'):
        refuse_other_tensors(paths[0], found, paths[1], [INPUT, OUTPUT])


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        ('adopt a.engine --onnx a.onnx --min-cosine 5', '5 is not -1 to 1'),
        ('verify a.onnx --min-cosine nan', 'nan is not -1 to 1'),
        ('adopt a.engine --onnx a.onnx --device 64', 'device is 64'),
        ('build a.onnx --timeout -1', '-1 is not 1 or above'),
    ],
)
def test_numbers_out_of_range_are_wrong_usage(words, said, capsys):
    with pytest.raises(SystemExit, match='2'):
        main(words.split())
    assert said in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not installed('tensorrt_rtx'), reason='no tensorrt_rtx')
@pytest.mark.skipif(bool(nvidia_driver().gpus), reason='test/gpu has the comparison')
def test_an_engine_without_sidecar_gets_one(color_detector, tmp_path, capsys):
    rtx, onnx = load_trt('tensorrt_rtx'), Path(color_detector())
    entry = EngineCache(tmp_path / 'cache').get_or_build(onnx, BuildOptions(), rtx)
    engine = tmp_path / 'foreign.engine'
    shutil.copyfile(entry.path, engine)
    other = str(tmp_path / 'other.onnx')
    model = load(str(onnx))
    model.graph.node[0].input[0] = model.graph.input[0].name = 'other_name'
    save(model, other)
    assert main(['adopt', str(engine), '--onnx', other]) == 1
    assert 'does not contain the names other_name.' in capsys.readouterr().err
    adopt = ['adopt', str(engine), '--onnx', str(onnx)]
    for option in (['--device', '7'], ['--min-cosine', '0.5']):
        assert main([*adopt, *option]) == 1
        assert 'are for a comparison, which is not possible.\nCause: ' in capsys.readouterr().err
    assert main(adopt) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(sidecar_path(engine))
    assert 'not compared with' in printed.err
    found = read_sidecar(engine)
    assert {name: entry.sidecar[name] for name in found if name in ('metadata', 'outputs')} == {
        'metadata': found['metadata'],
        'outputs': found['outputs'],
    }
    assert main(['inspect', str(engine)]) == 0
    told = capsys.readouterr().out
    assert f'adopted with {onnx} at ' in told and 'results not compared with those of' in told
    assert main(['inspect', str(engine), '--json']) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown['matches_sidecar'], shown['compared']) == (True, False)
    assert main(adopt) == 1
    assert 'Add --force to replace it' in capsys.readouterr().err
    assert main([*adopt, '--force']) == 0
    assert main(['inspect', str(engine)]) == 0 and 'changed' not in capsys.readouterr().out
    shutil.copyfile(other, onnx)
    assert main(['inspect', str(engine)]) == 0
    assert f'warning: {onnx} has changed since' in capsys.readouterr().out
    assert main(['adopt', str(onnx), '--onnx', str(onnx)]) == 1
