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
    NO_TENSORS,
    REGIONS,
    RunInputs,
    constant_inputs,
    example_frame,
    example_inputs,
    host_dtype,
    image_feeds,
    split_inputs,
    state_feeds,
    tensor_feeds,
    write_tensor,
)
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.future import Future
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.runtime.runner import Runner
from trt_ros.tensors import is_finite
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

log = logging.getLogger('trt_ros.runtime')
ResultT = TypeVar('ResultT', bound=Result)


WARM_UP_THRESHOLDS = Thresholds(score=1.0, iou=1.0, max_detections=1)


class CpuPipeline(Pipeline[ResultT]):
    """
    A Pipeline over any Runner, which it owns.

    After warm_up, all runs may be started from several threads: preprocessing and decoding
    overlap; the network runs one call at a time, unless the runner `overlaps`.

    :param runner: the arrays that it returns stay valid.
    :param batch: maximum number of frames per run.
    """

    def __init__(self, runner: Runner, fitted: ResolvedModel[ResultT], batch: int = 1) -> None:
        super().__init__(runner, fitted)
        self.runner = runner
        self._running = threading.Lock()
        self._nonfinite_frames = 0
        self._constant_inputs = constant_inputs(fitted.feeds)
        self._state_feeds = state_feeds(fitted.feeds)
        self._states: dict[str, np.ndarray] = {}
        self._is_padded = False
        self._lines: tuple[str, ...] = ()
        if self.is_one_image:
            self._choose_batch(batch)

    def _choose_batch(self, batch: int) -> None:
        inputs = self.runner.inputs
        image = next(spec for spec in inputs if spec.name not in self._constant_inputs)
        self._input_name, fixed = image.name, image.shape[0]
        self.max_batch = batch if fixed == -1 else fixed
        self._is_padded = fixed > 1
        if self._is_padded:
            self._lines = (f'fixed batch size {fixed}: smaller batches are padded',)
        elif batch == 1:
            pass
        elif fixed == 1:
            self._one_by_one('the network accepts one image per run')
        elif not self.decoder.takes_batches or any(
            spec.shape[:1] != (-1,) for spec in inputs if spec.name in self._constant_inputs
        ):
            self._one_by_one('only the image input of the network has a batch dimension')
        else:
            self._lines = (f'batch size: up to {batch} images per run',)

    def _one_by_one(self, reason: str) -> None:
        self.max_batch, self._lines = 1, (f'batch size 1: {reason}',)

    def _own_log_lines(self) -> tuple[str, ...]:
        return self._lines

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
        frames, tensors = split_inputs(self.feeds, inputs)
        try:
            self.start(frames, WARM_UP_THRESHOLDS, tensors)
        except (MemoryLimitError, RemoteRefusedError):
            raise
        except ModelError as error:
            if not tensor_feeds(self.feeds):
                raise
            # Zeros are no valid value of every tensor, such as a length or a step.
            self._lines += (f'no warm-up: the network cannot run on zeros: {error.cause}',)
            return
        self.reset_state()
        staged, _ = self.stage(frames, tensors)
        self._lines += self.runner.tune_threads({**staged, **self._present_states()})

    def _warm_up_images(self) -> None:
        gray = example_frame(image_feeds(self.feeds)[self._input_name])
        if self.max_batch > 1 and not self._is_padded:
            try:
                self.start([gray] * self.max_batch, WARM_UP_THRESHOLDS).result()
            except (ModelError, TensorMismatchError) as error:
                # Some exporters declare a dimension dynamic that is fixed inside the network.
                self._one_by_one(error.problem)
        self.start([gray], WARM_UP_THRESHOLDS).result()
        staged, _ = self.stage([gray] * self.max_batch)
        self._lines += self.runner.tune_threads(staged)

    def start(
        self,
        frames: Sequence[Frame],
        thresholds: Thresholds,
        tensors: Mapping[str, np.ndarray] = NO_TENSORS,
    ) -> Future[list[ResultT]]:
        """Run the network; see Pipeline.start."""
        found = self._run(*self.stage(frames, tensors), thresholds)
        return Future(lambda: found)

    def stage(
        self, frames: Sequence[Frame], tensors: Mapping[str, np.ndarray] = NO_TENSORS
    ) -> tuple[dict[str, np.ndarray], Sequence[Letterbox]]:
        """
        Return the network's inputs but states, and the placement of each image with a result.

        :param frames, tensors: as for `start`.
        """
        with mark('preprocess'):
            regions = tensors.get(REGIONS)
            if not self.is_one_image:
                return self._stage_feeds(frames, tensors)
            feed = image_feeds(self.feeds)[self._input_name]
            if regions is None or feed.crop is None:
                images, letterboxes = zip(*map(feed.preprocess, frames))
            else:
                images = np.split(feed.crop(frames[0], regions.reshape(-1, 2, 3)), len(regions))
                letterboxes = (feed.crop.letterbox,) * len(regions)
            count = self.max_batch if self._is_padded else len(images)
            inputs = {
                name: np.repeat(value, count, axis=0)
                for name, value in self._constant_inputs.items()
            }
            return {self._input_name: _together(images, count), **inputs}, letterboxes

    def _stage_feeds(
        self, frames: Sequence[Frame], arrays: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], Sequence[Letterbox]]:
        letterboxes, tensors, remaining = [], dict(self._constant_inputs), iter(frames)
        for name, feed in image_feeds(self.feeds).items():
            images = [next(remaining) for _ in range(feed.image_count)]
            tensors[name], letterbox = feed.preprocess(*images)
            letterboxes.append(letterbox)
        for name, tensor_feed in tensor_feeds(self.feeds).items():
            tensors[name] = np.empty(arrays[name].shape, host_dtype(tensor_feed.spec))
            write_tensor(tensors[name], tensor_feed.spec, arrays[name])
        return tensors, letterboxes[:1] or [NO_LETTERBOX]

    def _run(
        self,
        inputs: Mapping[str, np.ndarray],
        letterboxes: Sequence[Letterbox],
        thresholds: Thresholds,
    ) -> list[ResultT]:
        # Two runs at once would share the same CPUs; states go from one run to the next.
        is_alone = bool(self._state_feeds) or not self.runner.overlaps
        with self._running if is_alone else nullcontext(), mark('network'):
            found = self.runner.infer({**inputs, **self._present_states()})
            for name, feed in self._state_feeds.items():
                self._states[name] = np.array(found[feed.output])
        outputs = {name: found[name] for name in self._fitted.outputs}
        self._count_nonfinite(outputs, len(letterboxes))
        count = len(inputs[self._input_name]) if self.is_one_image else 1
        with mark('decode'):
            return [
                self.decoder(_of_one(outputs, index, count), letterbox, thresholds)
                for index, letterbox in enumerate(letterboxes)
            ]

    def _count_nonfinite(self, outputs: Mapping[str, np.ndarray], frames: int) -> None:
        if all(map(is_finite, outputs.values())):
            return
        is_first = not self._nonfinite_frames
        self._nonfinite_frames += frames
        if is_first:
            state = ' States keep them: reset the states.' if self._state_feeds else ''
            log.warning('Network outputs contain NaN or infinite values.%s', state)

    def _own_diagnostics(self) -> dict[str, str]:
        return {
            'frames with non-finite values': str(self._nonfinite_frames),
            **self.runner.diagnostics(),
        }

    def _present_states(self) -> dict[str, np.ndarray]:
        zeros = {
            name: np.zeros(feed.spec.shape, host_dtype(feed.spec))
            for name, feed in self._state_feeds.items()
        }
        return zeros | self._states

    def reset_state(self) -> None:
        """Set the states to zeros before the next run."""
        with self._running:
            self._states.clear()

    def _close(self) -> None:
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
