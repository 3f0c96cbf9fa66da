"""Frames run step by step in NumPy, for backends without a GPU pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import threading
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
    A FrameRunner over any Runner, which it owns.

    After warm_up, `infer` and `infer_all` may be called from several threads: preprocessing and
    decoding overlap, the network runs one call at a time.

    :param runner: a network of one image input, beside the decoder's constant inputs; the arrays
        that it returns stay valid.
    :param batch: maximum number of frames per run.
    """

    max_batch: int = 1
    log_lines: tuple[str, ...] = ()

    def __init__(
        self, runner: Runner, preprocess: Preprocess, decoder: Decoder[ResultT], batch: int = 1
    ) -> None:
        self.runner, self.preprocess, self.decoder = runner, preprocess, decoder
        self._running = threading.Lock()
        self._constant_inputs = decoder.constant_inputs
        image = next(spec for spec in runner.inputs if spec.name not in self._constant_inputs)
        self._input_name, fixed = image.name, image.shape[0]
        self.max_batch = batch if fixed == -1 else fixed
        self._is_padded = fixed > 1
        if self._is_padded:
            self.log_lines = (f'fixed batch size {fixed}: smaller batches are padded',)
        elif batch == 1:
            pass
        elif fixed == 1:
            self._one_by_one('the network accepts one image per run')
        elif not decoder.takes_batches or any(
            spec.shape[:1] != (-1,) for spec in runner.inputs if spec.name in self._constant_inputs
        ):
            self._one_by_one('only the image input of the network has a batch dimension')
        else:
            self.log_lines = (f'batch size: up to {batch} images per run',)

    def _one_by_one(self, reason: str) -> None:
        self.max_batch, self.log_lines = 1, (f'batch size 1: {reason}',)

    def warm_up(self) -> None:
        """Run on grey frames and choose the number of CPU threads."""
        grey = Frame.from_pixels(np.full((*self.preprocess.input_hw, 3), 114, np.uint8))
        if self.max_batch > 1 and not self._is_padded:
            try:
                self.infer_all(
                    [grey] * self.max_batch, Thresholds(score=1.0, iou=1.0, max_detections=1)
                )
            except (ModelError, TensorMismatchError) as error:
                # Some exporters declare a dimension dynamic that is fixed inside the network.
                self._one_by_one(error.problem)
        self.infer(grey, Thresholds(score=1.0, iou=1.0, max_detections=1))
        self.log_lines += self.runner.settle_threads(
            self._inputs([self.preprocess(grey)[0]] * self.max_batch)
        )

    def infer(self, frame: Frame, thresholds: Thresholds) -> ResultT:
        """Run one image; see FrameRunner.infer."""
        return self._run([frame], thresholds)[0]

    def infer_all(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[ResultT]:
        """Run several images; see FrameRunner.infer_all."""
        return [
            result
            for start in range(0, len(frames), self.max_batch)
            for result in self._run(frames[start : start + self.max_batch], thresholds)
        ]

    def _run(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[ResultT]:
        tensors, letterboxes = zip(*map(self.preprocess, frames))
        inputs = self._inputs(tensors)
        with self._running:  # Two runs at once would share the same CPUs.
            outputs = self.runner.infer(inputs)
        count = self._count(tensors)
        return [
            self.decoder(_of_one(outputs, index, count), letterbox, thresholds)
            for index, letterbox in enumerate(letterboxes)
        ]

    def _count(self, tensors: Sequence[np.ndarray]) -> int:
        return self.max_batch if self._is_padded else len(tensors)

    def _inputs(self, tensors: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        count = self._count(tensors)
        return {
            self._input_name: _together(tensors, count),
            **{
                name: np.repeat(value, count, axis=0)
                for name, value in self._constant_inputs.items()
            },
        }

    def close(self) -> None:
        """Close the network; may be called twice."""
        self.runner.close()


def _together(tensors: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Concatenate tensors of batch 1 to a batch of `count`, padded with the last."""
    if count == 1:
        return tensors[0]
    return np.concatenate([*tensors, *[tensors[-1]] * (count - len(tensors))])


def _of_one(outputs: Mapping[str, np.ndarray], index: int, count: int) -> Mapping[str, np.ndarray]:
    """
    Return the outputs of one of `count` images.

    :raises TensorMismatchError: when an output has another batch size.
    """
    for name, output in outputs.items():
        if count > 1 and output.shape[:1] != (count,):
            raise TensorMismatchError(
                f'The output {name} has the shape {output.shape} for a batch of {count}.',
                remedy='Set max_batch_size to 1.',
            )
    return (
        {name: output[index : index + 1] for name, output in outputs.items()}
        if count > 1
        else outputs
    )
