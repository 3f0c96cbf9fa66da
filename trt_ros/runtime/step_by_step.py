"""The way of a frame, one step after the other in NumPy: for every backend without its own."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from trt_ros.runtime.runner import Runner
from trt_ros.vision.decoder import Decoder
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

ResultT = TypeVar('ResultT')


class StepByStep(Generic[ResultT]):
    """
    A FrameRunner over any Runner, which it owns. Not for two threads at once.

    :param runner: of one image input, beside those that the decoder feeds.
    """

    story: tuple[str, ...] = ()

    def __init__(self, runner: Runner, preprocess: Preprocess, decoder: Decoder[ResultT]) -> None:
        self.runner, self.preprocess, self.decoder = runner, preprocess, decoder
        self._extra_inputs = decoder.extra_inputs
        self._input_name = next(
            spec.name for spec in runner.inputs if spec.name not in self._extra_inputs)

    def warm_up(self) -> None:
        grey = Frame.from_pixels(np.full((*self.preprocess.input_hw, 3), 114, np.uint8))
        self.infer(grey, score_threshold=1.0, iou_threshold=1.0, max_detections=1)

    def infer(
            self, frame: Frame, *, score_threshold: float, iou_threshold: float,
            max_detections: int) -> ResultT:
        """Find what is in one image; see FrameRunner.infer."""
        tensor, letterbox = self.preprocess(frame)
        outputs = self.runner.infer({self._input_name: tensor, **self._extra_inputs})
        return self.decoder(
            outputs, letterbox, score_threshold=score_threshold, iou_threshold=iou_threshold,
            max_detections=max_detections)

    def close(self) -> None:
        self.runner.close()
