"""Outputs whose shape depends on the data: engine and CPU together, compared with ONNX Runtime."""

import numpy as np
import pytest

from support.selections import NETWORKS, write
from trt_ros import Pipeline
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize('name', NETWORKS)
def test_a_network_of_selections_equals_onnx_runtime(gpu, name, tmp_path):
    path = write(tmp_path / 'net.onnx', name)
    reference = OnnxRuntimeRunner.open(path)
    backend = 'tensorrt_rtx'
    with Pipeline.open(
        path, device=gpu.index, backend=backend, decoder='tensor', inputs=('x=tensor:x',)
    ) as pipeline:
        assert any('operators run on the CPU' in line for line in pipeline.log_lines)
        # Far from the threshold of the selection, since TF32 rounds.
        for sign in (100.0, -100.0, 0.0):
            x = sign * np.random.default_rng(0).integers(-9, 9, (1, 3, 8, 8)).astype(np.float32)
            want, got = reference.infer({'x': x}), pipeline.infer({'x': x})
            for key, value in want.items():
                assert got[key].shape == value.shape
                np.testing.assert_allclose(got[key], value, rtol=5e-3, atol=0.5)
    reference.close()
