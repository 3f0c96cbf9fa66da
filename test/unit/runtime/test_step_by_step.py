"""The way of a frame, one step after the other."""

from __future__ import annotations

import numpy as np

from trt_ros.runtime.fake import FakeRunner
from trt_ros.runtime.step_by_step import StepByStep
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoder import choose_decoder
from trt_ros.vision.letterbox import Preprocess

IMAGE = TensorSpec('images', (1, 3, 64, 64), 'float32', 'input')
HEAD = TensorSpec('output0', (1, 7, 84), 'float32', 'output')


def test_warming_up_runs_once_on_grey_of_the_networks_size_and_close_closes_the_runner():
    seen = []

    def answer(tensors):
        seen.append(np.unique(tensors['images']).tolist())
        return {'output0': np.zeros((1, 7, 84), np.float32)}

    runner = FakeRunner(answer, inputs=[IMAGE], outputs=[HEAD])
    frames = StepByStep(runner, Preprocess((64, 64), scale=1.0),
                        choose_decoder('yolov8', (IMAGE,), (HEAD,), {}, (64, 64)))
    frames.warm_up()
    assert seen == [[114.0]]
    frames.close()
    frames.close()
    assert runner.is_closed
