"""New weights in an engine that was built before, or the reason why there is none."""

import numpy as np
import pytest

from support.save_network import save_network
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ParameterError
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.trt import load_trt

pytestmark = pytest.mark.gpu


def write(path, seed):
    weight = np.random.default_rng(seed).normal(size=(8, 16)).astype(np.float32)
    return save_network(
        path, 'y = MatMul(x, w)', {'x': (1, 8)}, {'y': (1, 16)}, constants={'w': weight}
    )


def test_weights_of_a_changed_model_go_into_its_engine(gpu, tmp_path):
    path, x = tmp_path / 'net.onnx', np.ones((1, 8), np.float32)

    def opened():
        return open_tensor_runner(
            path, BuildOptions(refit=True), device=gpu.index, engine_cache_dir=str(tmp_path / 'c')
        )

    write(path, 0)
    library = load_trt()
    if library.is_rtx and not library.member(
        'ComputeCapability', gpu.arch.upper().replace('_', '')
    ):
        with pytest.raises(ParameterError, match='only on a GPU of compute capability'):
            opened()
        return
    for seed in (0, 1):
        write(path, seed)
        runner, reference = opened(), OnnxRuntimeRunner.open(path)
        found, expected = (each.infer({'x': x})['y'] for each in (runner, reference))
        np.testing.assert_allclose(found, expected, atol=2e-2)
        assert any('weights replaced' in line for line in runner.log_lines) == bool(seed)
        runner.close()
        reference.close()
