"""The way of a frame, one step after the other in NumPy: for every backend without its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from trt_ros.errors import ModelError, TensorMismatchError
from trt_ros.runtime.runner import FrameRunner, Runner
from trt_ros.vision.decoders.registry import Decoder
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

ResultT = TypeVar('ResultT')


class StepByStep(FrameRunner[ResultT]):
    """
    A FrameRunner over any Runner, which it owns. Not for two threads at once.

    :param runner: of one image input, beside those that the decoder feeds.
    :param batch: frames that may come together.
    """

    max_batch: int = 1
    log_lines: tuple[str, ...] = ()

    def __init__(
        self, runner: Runner, preprocess: Preprocess, decoder: Decoder[ResultT], batch: int = 1
    ) -> None:
        self.runner, self.preprocess, self.decoder = runner, preprocess, decoder
        self._constant_inputs = decoder.constant_inputs
        image = next(spec for spec in runner.inputs if spec.name not in self._constant_inputs)
        self._input_name, fixed = image.name, image.shape[0]
        self.max_batch = batch if fixed == -1 else fixed
        self._is_filled_up = fixed > 1
        if self._is_filled_up:
            self.log_lines = (
                f'the network takes {fixed} images in each run: fewer are filled up',
            )
        elif batch == 1:
            pass
        elif fixed == 1:
            self._one_by_one('the network takes one in a run')
        elif not decoder.takes_batches or any(
            spec.shape[:1] != (-1,) for spec in runner.inputs if spec.name in self._constant_inputs
        ):
            self._one_by_one('the network has no batch beside its images')
        else:
            self.log_lines = (f'up to {batch} images in a run',)

    def _one_by_one(self, why: str) -> None:
        self.max_batch, self.log_lines = 1, (f'images run one after another: {why}',)

    def warm_up(self) -> None:
        grey = Frame.from_pixels(np.full((*self.preprocess.input_hw, 3), 114, np.uint8))
        if self.max_batch > 1 and not self._is_filled_up:
            try:
                self.infer_all(
                    [grey] * self.max_batch, Thresholds(score=1.0, iou=1.0, max_detections=1)
                )
            except (ModelError, TensorMismatchError) as error:
                # Exporters also name a dimension dynamic that the network then has fixed.
                self._one_by_one(error.problem)
        self.infer(grey, Thresholds(score=1.0, iou=1.0, max_detections=1))
        self.log_lines += self.runner.settle_threads(
            self._feeds([self.preprocess(grey)[0]] * self.max_batch)
        )

    def infer(self, frame: Frame, thresholds: Thresholds) -> ResultT:
        """Find what is in one image; see FrameRunner.infer."""
        return self._run([frame], thresholds)[0]

    def infer_all(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[ResultT]:
        """Find what is in each image; see FrameRunner.infer_all."""
        return [
            result
            for start in range(0, len(frames), self.max_batch)
            for result in self._run(frames[start : start + self.max_batch], thresholds)
        ]

    def _run(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[ResultT]:
        tensors, letterboxes = zip(*map(self.preprocess, frames))
        outputs = self.runner.infer(self._feeds(tensors))
        count = self._count(tensors)
        return [
            self.decoder(_of_one(outputs, index, count), letterbox, thresholds)
            for index, letterbox in enumerate(letterboxes)
        ]

    def _count(self, tensors: Sequence[np.ndarray]) -> int:
        return self.max_batch if self._is_filled_up else len(tensors)

    def _feeds(self, tensors: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        count = self._count(tensors)
        return {
            self._input_name: _together(tensors, count),
            **{
                name: np.repeat(value, count, axis=0)
                for name, value in self._constant_inputs.items()
            },
        }

    def close(self) -> None:
        self.runner.close()


def _together(tensors: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Make one batch of `count` of tensors with a batch of 1 each; the last fills it up."""
    if count == 1:
        return tensors[0]
    return np.concatenate([*tensors, *[tensors[-1]] * (count - len(tensors))])


def _of_one(outputs: Mapping[str, np.ndarray], index: int, count: int) -> Mapping[str, np.ndarray]:
    """
    Take one image's share of the outputs for `count`.

    :raises TensorMismatchError: when an output has none.
    """
    for name, output in outputs.items():
        if count > 1 and output.shape[:1] != (count,):
            raise TensorMismatchError(
                f'The output {name} of {count} images is {output.shape}, not of {count}.',
                remedy='Set max_batch_size to 1.',
            )
    return (
        {name: output[index : index + 1] for name, output in outputs.items()}
        if count > 1
        else outputs
    )
