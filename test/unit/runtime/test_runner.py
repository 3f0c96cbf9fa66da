"""Defaults of the base classes: a backend without a GPU overrides little."""

from __future__ import annotations

import numpy as np

from trt_ros.runtime.runner import FrameRunner, Runner
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds


class Brightness(FrameRunner[float]):
    """The mean pixel of each frame."""

    def infer_all(self, frames, thresholds):
        return [float(frame.data.mean()) for frame in frames]


def test_a_frame_runner_needs_infer_all_alone():
    runner, memory = Brightness(), np.zeros(16, np.uint8)
    frames = [Frame.from_pixels(np.full((2, 2, 3), value, np.uint8)) for value in (1, 2)]
    assert runner.submit(frames, Thresholds()).result() == [1.0, 2.0]
    assert runner.infer(frames[1], Thresholds()) == 2.0
    runner.warm_up()
    runner.register(memory)
    runner.unregister(memory)
    runner.on_fault(lambda _: None)
    assert (runner.diagnostics(), runner.log_lines, runner.max_batch) == ({}, (), 1)


def test_a_runner_has_no_threads_to_settle_and_no_faults_by_default():
    runner = Runner()
    assert (runner.tune_threads({}), runner.log_lines) == ((), ())
    runner.on_fault(lambda _: None)
