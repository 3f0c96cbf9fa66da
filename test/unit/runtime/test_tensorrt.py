"""The runner without a graph, on a GPU that only seems to be there."""

from __future__ import annotations

import threading

import numpy as np

from trt_ros.runtime.tensorrt import TensorRTRunner


def test_every_thread_makes_the_gpu_its_own_once(cuda, engine):
    runner = TensorRTRunner(engine)
    tensors = {'images': np.zeros((1, 3, 64, 96), np.float32)}
    assert runner.infer(tensors)['output0'].shape == (1, 7, 96)
    used_before, shapes = cuda.calls['cudaSetDevice'], []

    def run_twice():
        shapes.extend(runner.infer(tensors)['output0'].shape for _ in range(2))

    thread = threading.Thread(target=run_twice)
    thread.start()
    thread.join()
    runner.infer(tensors)
    assert shapes == [(1, 7, 96)] * 2
    assert cuda.calls['cudaSetDevice'] == used_before + 1
    runner.close()
    assert engine.is_closed
