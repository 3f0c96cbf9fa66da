"""Frames run step by step in NumPy, for backends without a GPU pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
import logging
import threading
from typing import TypeVar

import numpy as np

from trt_ros.errors import (
    MemoryLimitError,
    ModelError,
    RemoteRefusedError,
    TensorMismatchError,
)
from trt_ros.profiling import mark
from trt_ros.results.base import Result
from trt_ros.runtime.feeds import (
    NO_LETTERBOX,
    RunInputs,
    constant_inputs,
    example_frame,
    example_inputs,
    host_dtype,
    image_feeds,
    inputs_of_image,
    is_one_image,
    split_inputs,
    state_feeds,
    tensor_feeds,
    write_tensor,
)
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.future import Future
from trt_ros.runtime.runner import FrameRunner, Runner
from trt_ros.tensors import is_finite
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

log = logging.getLogger('trt_ros.runtime')
ResultT = TypeVar('ResultT', bound=Result)


WARM_UP_THRESHOLDS = Thresholds(score=1.0, iou=1.0, max_detections=1)


class StepByStep(FrameRunner[ResultT]):
    """
    A FrameRunner over any Runner, which it owns.

    After warm_up, all runs may be started from several threads: preprocessing and decoding
    overlap; the network runs one call at a time, unless the runner `overlaps`.

    :param runner: the arrays that it returns stay valid.
    :param batch: maximum number of frames per run.
    :ivar is_one_image: whether runs get one image each, beside constants.
    """

    max_batch: int = 1
    log_lines: tuple[str, ...] = ()

    def __init__(self, runner: Runner, fitted: ResolvedModel[ResultT], batch: int = 1) -> None:
        self.runner, self.feeds, self.decoder = runner, fitted.feeds, fitted.decoder
        self._outputs = fitted.outputs
        self._running = threading.Lock()
        self._nonfinite_frames = 0
        self._constant_inputs = constant_inputs(fitted.feeds)
        self._states: dict[str, np.ndarray] = {}
        self._is_padded = False
        self.is_one_image = is_one_image(fitted.feeds)
        if self.is_one_image:
            self.preprocess = fitted.preprocess
            self._choose_batch(batch)

    def _choose_batch(self, batch: int) -> None:
        inputs = self.runner.inputs
        image = next(spec for spec in inputs if spec.name not in self._constant_inputs)
        self._input_name, fixed = image.name, image.shape[0]
        self.max_batch = batch if fixed == -1 else fixed
        self._is_padded = fixed > 1
        if self._is_padded:
            self.log_lines = (f'fixed batch size {fixed}: smaller batches are padded',)
        elif batch == 1:
            pass
        elif fixed == 1:
            self._one_by_one('the network accepts one image per run')
        elif not self.decoder.takes_batches or any(
            spec.shape[:1] != (-1,) for spec in inputs if spec.name in self._constant_inputs
        ):
            self._one_by_one('only the image input of the network has a batch dimension')
        else:
            self.log_lines = (f'batch size: up to {batch} images per run',)

    def _one_by_one(self, reason: str) -> None:
        self.max_batch, self.log_lines = 1, (f'batch size 1: {reason}',)

    def warm_up(self) -> None:
        """Run on gray frames and zeros, and choose the number of CPU threads."""
        if self.is_one_image:
            self._warm_up_images()
        else:
            inputs = example_inputs(self.feeds)
            if inputs is not None:
                self._warm_up_inputs(inputs)
        self._nonfinite_frames = 0

    def _warm_up_inputs(self, inputs: RunInputs) -> None:
        try:
            self.infer_inputs(inputs, WARM_UP_THRESHOLDS)
        except (MemoryLimitError, RemoteRefusedError):
            raise
        except ModelError as error:
            if not tensor_feeds(self.feeds):
                raise
            # Zeros are no valid value of every tensor, such as a length or a step.
            self.log_lines += (f'no warm-up: the network cannot run on zeros: {error.cause}',)
            return
        self.reset_state()
        tensors, _ = self.tensors_of(inputs)
        self.log_lines += self.runner.tune_threads({**tensors, **self._present_states()})

    def _warm_up_images(self) -> None:
        gray = example_frame(image_feeds(self.feeds)[self._input_name])
        if self.max_batch > 1 and not self._is_padded:
            try:
                self.infer_all([gray] * self.max_batch, WARM_UP_THRESHOLDS)
            except (ModelError, TensorMismatchError) as error:
                # Some exporters declare a dimension dynamic that is fixed inside the network.
                self._one_by_one(error.problem)
        self.infer(gray, WARM_UP_THRESHOLDS)
        self.log_lines += self.runner.tune_threads(
            self._inputs([self.preprocess(gray)[0]] * self.max_batch)
        )

    def infer(self, frame: Frame, thresholds: Thresholds) -> ResultT:
        """Run one image; see FrameRunner.infer."""
        return self.infer_all([frame], thresholds)[0]

    def infer_all(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[ResultT]:
        """Run several images; see FrameRunner.infer_all."""
        if not self.is_one_image:
            return [
                self.infer_inputs(inputs_of_image(self.feeds, frame), thresholds)
                for frame in frames
            ]
        return [
            result
            for start in range(0, len(frames), self.max_batch)
            for result in self._run(frames[start : start + self.max_batch], thresholds)
        ]

    def infer_regions(
        self, frame: Frame, maps: np.ndarray, thresholds: Thresholds
    ) -> list[ResultT]:
        """Run regions of an image; see FrameRunner.infer_regions."""
        crop = image_feeds(self.feeds)[self._input_name].crop
        assert crop is not None
        results: list[ResultT] = []
        for start in range(0, len(maps), self.max_batch):
            some = maps[start : start + self.max_batch]
            with mark('preprocess'):
                tensors = np.split(crop(frame, some), len(some))
            found = self._run_tensors(tensors, [crop.letterbox] * len(some), thresholds)
            results += [each.to_source(affine) for each, affine in zip(found, some)]
        return results

    def submit_inputs(self, inputs: RunInputs, thresholds: Thresholds) -> Future[list[ResultT]]:
        """Run once, on an image or array per input; see FrameRunner.infer_inputs."""
        with mark('preprocess'):
            tensors, letterbox = self.tensors_of(inputs)
        with self._running, mark('network'):  # States go from one run to the next.
            outputs = self.runner.infer({**tensors, **self._present_states()})
            for name, feed in state_feeds(self.feeds).items():
                self._states[name] = np.array(outputs[feed.output])
        chosen = self._chosen(outputs)
        self._count_nonfinite(chosen, 1)
        with mark('decode'):
            found = [self.decoder(chosen, letterbox, thresholds)]
        return Future(lambda: found)

    def _count_nonfinite(self, outputs: Mapping[str, np.ndarray], frames: int) -> None:
        if all(map(is_finite, outputs.values())):
            return
        is_first = not self._nonfinite_frames
        self._nonfinite_frames += frames
        if is_first:
            state = ' States keep them: reset the states.' if state_feeds(self.feeds) else ''
            log.warning('Network outputs contain NaN or infinite values.%s', state)

    def diagnostics(self) -> dict[str, str]:
        """Return the number of frames with non-finite outputs, and values of the runner."""
        return {
            'frames with non-finite values': str(self._nonfinite_frames),
            **self.runner.diagnostics(),
        }

    def _present_states(self) -> dict[str, np.ndarray]:
        zeros = {
            name: np.zeros(feed.spec.shape, host_dtype(feed.spec))
            for name, feed in state_feeds(self.feeds).items()
        }
        return zeros | self._states

    def reset_state(self) -> None:
        """Set the states to zeros before the next run."""
        with self._running:
            self._states.clear()

    def tensors_of(self, inputs: RunInputs) -> tuple[dict[str, np.ndarray], Letterbox]:
        """Return the network's inputs but states, and the placement of the first image."""
        frames, arrays = split_inputs(self.feeds, inputs)
        letterbox, tensors, remaining = NO_LETTERBOX, dict(self._constant_inputs), iter(frames)
        for feed_number, (name, feed) in enumerate(image_feeds(self.feeds).items()):
            images = [next(remaining) for _ in range(feed.image_count)]
            tensors[name], placement = feed.preprocess(*images)
            letterbox = letterbox if feed_number else placement
        for name, tensor_feed in tensor_feeds(self.feeds).items():
            tensors[name] = np.empty(arrays[name].shape, host_dtype(tensor_feed.spec))
            write_tensor(tensors[name], tensor_feed.spec, arrays[name])
        return tensors, letterbox

    def _chosen(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: outputs[name] for name in self._outputs}

    def _run(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[ResultT]:
        return self._run_tensors(*self.preprocess_all(frames), thresholds)

    def preprocess_all(
        self, frames: Sequence[Frame]
    ) -> tuple[Sequence[np.ndarray], Sequence[Letterbox]]:
        """Return the network's input for each image, of batch 1, and its placement."""
        with mark('preprocess'):
            tensors, letterboxes = zip(*map(self.preprocess, frames))
        return tensors, letterboxes

    def _run_tensors(
        self,
        tensors: Sequence[np.ndarray],
        letterboxes: Sequence[Letterbox],
        thresholds: Thresholds,
    ) -> list[ResultT]:
        inputs = self._inputs(tensors)
        # Two runs at once would share the same CPUs.
        with nullcontext() if self.runner.overlaps else self._running, mark('network'):
            outputs = self._chosen(self.runner.infer(inputs))
        count = self._count(tensors)
        self._count_nonfinite(outputs, len(letterboxes))
        with mark('decode'):
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
