"""Broadcasts that TensorRT for RTX 1.5 fuses wrongly, compared with ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest

from support.broadcasts import BROADCASTS, save_broadcast
from trt_ros.runtime.gpu.open import open_tensor_runner

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize('name', BROADCASTS)
def test_a_column_is_broadcast_before_a_concatenation(gpu, nothing_left, tmp_path, name):
    path = save_broadcast(tmp_path / 'net.onnx', name)
    session = onnxruntime.InferenceSession(path)
    runner = open_tensor_runner(path, device=gpu.index, precision='fp32')
    rng = np.random.default_rng(0)
    for _ in range(5):
        inputs = {key: rng.standard_normal((1, n), np.float32) for key, n in (('x', 4), ('e', 5))}
        [want] = session.run(None, inputs)
        np.testing.assert_allclose(runner.infer(inputs)['y'], want, atol=1e-5)
    runner.close()
