"""An engine that tensorrt_rtx wrote outside the package, adopted and run."""

import os
import subprocess
import sys

import numpy as np
import pytest

from support.save_network import save_network
from support.scripts import run_script
from trt_ros.engine.sidecar import read_sidecar, sidecar_path
from trt_ros.errors import ModelError, TensorMismatchError
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.gpu.open import open_tensor_runner

pytestmark = pytest.mark.gpu

BUILD = """
import sys
import tensorrt_rtx as trt
log = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(log)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
parser = trt.OnnxParser(network, log)
assert parser.parse_from_file(sys.argv[1])
config = builder.create_builder_config()
profile = builder.create_optimization_profile()
if -1 in network.get_input(0).shape:
    profile.set_shape('x', (1, 8), (2, 8), (4, 8))
config.add_optimization_profile(profile)
if sys.argv[3:]:
    network.get_input(0).allowed_formats = 1 << int(getattr(trt.TensorFormat, sys.argv[3]))
open(sys.argv[2], 'wb').write(builder.build_serialized_network(network, config))
"""


def write(path, seed, output='y', size=16):
    weight = np.random.default_rng(seed).normal(size=(8, size)).astype(np.float32)
    return save_network(
        path,
        f'{output} = MatMul(x, w)',
        {'x': ('n', 8)},
        {output: ('n', size)},
        constants={'w': weight},
        metadata={'names': 'of the sidecar'},
    )


def test_a_foreign_engine_is_compared_and_gets_a_sidecar(gpu, tmp_path):
    model, engine = write(tmp_path / 'net.onnx', 0), tmp_path / 'foreign.engine'
    run_script(BUILD, model, engine)
    engine.chmod(0o600)

    def adopt(onnx_file, *flags, **environment):
        command = [sys.executable, '-m', 'trt_ros', 'adopt', engine, '--onnx', onnx_file, *flags]
        device = [] if environment else ['--device', str(gpu.index)]
        return subprocess.run(
            [*map(str, command), *device],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )

    wide = write(tmp_path / 'wide.onnx', 0, size=17)
    hidden = adopt(wide, CUDA_VISIBLE_DEVICES='-1')
    assert hidden.returncode == 0 and f'not compared with {wide}' in hidden.stderr
    with pytest.raises(TensorMismatchError, match='has other inputs or outputs than'):
        open_tensor_runner(engine, device=gpu.index)
    sidecar_path(engine).unlink()

    other = adopt(write(tmp_path / 'other.onnx', 1))
    assert other.returncode == 1 and 'does not compute what' in other.stderr, other.stderr
    renamed = adopt(write(tmp_path / 'renamed.onnx', 0, output='z'))
    assert renamed.returncode == 1 and 'has other inputs or outputs' in renamed.stderr
    assert adopt(model, CUDA_VISIBLE_DEVICES='-1').returncode == 0
    open_tensor_runner(engine, device=gpu.index).close()
    done = adopt(model, '--force')
    assert read_sidecar(engine)['compared'] is True
    assert done.returncode == 0 and 'y: cosine 1.0' in done.stdout, done.stderr
    runner = open_tensor_runner(engine, device=gpu.index)
    reference = OnnxRuntimeRunner.open(model)
    assert runner.metadata == {'names': 'of the sidecar'}
    x = np.random.default_rng(2).normal(size=(3, 8)).astype(np.float32)
    np.testing.assert_allclose(
        runner.infer({'x': x})['y'], reference.infer({'x': x})['y'], atol=2e-2
    )
    runner.close()
    reference.close()


def test_an_engine_of_another_memory_format_is_refused(gpu, tmp_path):
    model = save_network(
        tmp_path / 'net.onnx',
        'y = Conv(x, w)',
        {'x': (1, 3, 8, 8)},
        {'y': (1, 8, 7, 7)},
        constants={'w': np.ones((8, 3, 2, 2), np.float32)},
    )
    engine = tmp_path / 'foreign.engine'
    run_script(BUILD, model, engine, 'HWC')
    engine.chmod(0o600)
    with pytest.raises(ModelError, match=r'another memory format than LINEAR\.\nCause: x is HWC'):
        open_tensor_runner(engine, device=gpu.index)
