"""The runner without a graph, on a GPU that only seems to be there."""

import threading

import numpy as np


def test_any_thread_may_run_tensors(network_of, engine):
    runner = network_of(engine)
    tensors = {'images': np.zeros((1, 3, 64, 96), np.float32)}
    assert runner.infer(tensors)['output0'].shape == (1, 7, 96)
    shapes = []

    def run_twice():
        shapes.extend(runner.infer(tensors)['output0'].shape for _ in range(2))

    thread = threading.Thread(target=run_twice)
    thread.start()
    thread.join()
    runner.infer(tensors)
    assert shapes == [(1, 7, 96)] * 2
    runner.close()
    assert engine.is_closed
