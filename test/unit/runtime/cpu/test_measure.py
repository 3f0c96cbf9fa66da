"""Time measurements of runs on the CPU."""

import threading

import numpy as np
import pytest

from support.save_network import save_text
from support.waiting import DEADLINE_SECONDS
from trt_ros.runtime.cpu.measure import (
    network_tensors,
    open_on_the_cpu,
    overlapped_frames_per_second,
)
from trt_ros.runtime.cpu.onnx_runner import operator_times
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.frame import Frame


@pytest.fixture
def steps(color_detector):
    options = PipelineOptions(model_path=str(color_detector(batch='n')), backend='onnxruntime')
    found = open_on_the_cpu(options, 2)
    yield found
    found.close()


@pytest.fixture
def frame():
    return Frame.from_pixels(np.full((48, 64, 3), 255, np.uint8))


def test_runs_overlap_and_their_tensors_are_those_that_reach_the_network(steps, frame):
    barrier = threading.Barrier(3)
    steps.start = lambda *_: barrier.wait(DEADLINE_SECONDS)
    assert overlapped_frames_per_second(steps, frame, 6, in_flight=3) > 0
    tensors = network_tensors(steps, frame)
    assert list(tensors) == ['images'] and tensors['images'].shape == (2, 3, 64, 64)
    assert tensors['images'].max() == 1.0


def test_each_layer_is_measured_per_run(models_path, frame):
    tensors = {'x': np.ones((1, 2), np.float32)}
    assert set(operator_times(models_path, tensors, 3)) == {'Softmax s', 'CumSum c'}


@pytest.fixture
def models_path(tmp_path):
    return save_text(
        tmp_path / 'own.onnx',
        """(float[1, 2] x) => (float[1, 2] y)
        { axis = Constant <value = int64 {1}> () [s] h = Softmax (x) [c] y = CumSum (h, axis) }""",
    )
