"""Frames run step by step in NumPy, for backends without a GPU pipeline."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
import threading
from typing import Any, TypeVar

import numpy as np

from trt_ros.decode.choice import decode_batch
from trt_ros.errors import MemoryLimitError, ModelError, RemoteRefusedError, TensorMismatchError
from trt_ros.model.feeds.base import Given
from trt_ros.model.feeds.concat import PartsOfInputs
from trt_ros.model.run_inputs import (
    NO_LETTERBOX,
    NO_TENSORS,
    REGIONS,
    RunInputs,
    array_specs,
    example_inputs,
    image_feeds,
    only_image,
    split_inputs,
)
from trt_ros.profiling import marked
from trt_ros.results.base import Result
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.future import Finished, Future
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.runtime.runner import Runner
from trt_ros.tensors import Arrays
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

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
        feeds = fitted.feeds
        self._parts = PartsOfInputs(feeds)
        self._fresh_feeds = [
            (name, each, each.image_count)
            for name, each in self._parts.without_joined(feeds).items()
            if not each.has_memory
        ]
        self._memory_feeds = {name: each for name, each in feeds.items() if each.has_memory}
        self._memory: dict[str, Any] = {}
        self._output_names = fitted.outputs
        self._is_padded = False
        self._tiles = 1  # Runs per image.
        self._lines: tuple[str, ...] = ()
        if self.is_one_image:
            self._choose_batch(batch)

    def _choose_batch(self, batch: int) -> None:
        inputs, name = self.runner.inputs, only_image(self.feeds)
        fixed = next(spec.shape[0] for spec in inputs if spec.name == name)
        tiles = self.decoder.tiles
        if tiles is not None:
            if fixed == 1:
                self._tiles = tiles.count
                self._one_by_one('the network accepts one tile per run')
            return
        self.max_batch = batch if fixed == -1 else fixed
        self._is_padded = fixed > 1
        if self._is_padded:
            self._lines = (f'fixed batch size {fixed}: smaller batches are padded',)
        elif batch == 1:
            pass
        elif fixed == 1:
            self._one_by_one('the network accepts one image per run')
        elif not self.decoder.takes_batches or any(spec.shape[:1] != (-1,) for spec in inputs):
            self._one_by_one('only the image input of the network has a batch dimension')
        else:
            self._lines = (f'batch size: up to {batch} images per run',)

    def _one_by_one(self, reason: str) -> None:
        self.max_batch, self._lines = 1, (f'batch size 1: {reason}',)

    def _own_log_lines(self) -> tuple[str, ...]:
        return (*self.runner.log_lines, *self._lines)

    def warm_up(self) -> None:
        """Run on gray frames and zeros, and choose the number of CPU threads."""
        with self.rehearsal():
            inputs = example_inputs(self.feeds)
            if self.is_one_image:
                self._warm_up_images()
            elif inputs is not None:
                self._warm_up_inputs(inputs)

    def _warm_up_inputs(self, inputs: RunInputs) -> None:
        frames, tensors = split_inputs(self.feeds, inputs)
        try:
            self.start(frames, WARM_UP_THRESHOLDS, tensors)
        except (MemoryLimitError, RemoteRefusedError):
            raise
        except ModelError as error:
            if not array_specs(self.feeds):
                raise
            # Zeros are no valid value of every tensor, such as a length or a step.
            self._lines += (f'no warm-up: the network cannot run on zeros: {error.cause}',)
            return
        self.reset_state()
        staged, _ = self.stage(frames, tensors)
        staged.update(self._remembered(tensors))
        self._lines += self.runner.tune_threads(self._parts.join(staged))

    def _warm_up_images(self) -> None:
        (gray,) = [feed.example() for feed in image_feeds(self.feeds).values()]
        if self.max_batch > 1 and not self._is_padded:
            try:
                self.start([gray] * self.max_batch, WARM_UP_THRESHOLDS).result()
            except (ModelError, TensorMismatchError) as error:
                # Some exporters declare a dimension dynamic that is fixed inside the network.
                self._one_by_one(error.problem)
        self.start([gray], WARM_UP_THRESHOLDS).result()
        staged, _ = self.stage([gray] * self.max_batch)
        if self._tiles > 1:
            staged = {name: array[:1] for name, array in staged.items()}
        self._lines += self.runner.tune_threads(staged)

    def start(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays = NO_TENSORS
    ) -> Future[list[ResultT]]:
        return Finished(self.run(frames, thresholds, tensors))

    def run(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays = NO_TENSORS
    ) -> list[ResultT]:
        return self._run(*self.stage(frames, tensors), thresholds, tensors)

    @marked('preprocess')
    def stage(
        self, frames: Sequence[Frame], tensors: Arrays = NO_TENSORS
    ) -> tuple[dict[str, np.ndarray], Sequence[Letterbox]]:
        """Return the inputs without memory, and each image's placement; arguments as `start`."""
        regions = tensors.get(REGIONS)
        rows = 1
        if self.is_one_image:
            count = len(frames if regions is None else regions)
            rows = self.max_batch if self._is_padded else count
        staged: dict[str, np.ndarray] = {}
        letterboxes: Sequence[Letterbox] = ()
        first = 0
        for name, feed, images in self._fresh_feeds:
            if name in self._parts.plain:
                staged[name] = tensors[name]
                continue
            if images:
                last = len(frames) if self.is_one_image else first + images
                given = Given(rows, frames[first:last], regions)
                first += images
            else:
                given = Given(rows, (), tensors.get(name))
            staged[name], placements = feed.stage(given)
            letterboxes = letterboxes or placements
        return staged, letterboxes or [NO_LETTERBOX]

    def _run(
        self,
        inputs: Arrays,
        letterboxes: Sequence[Letterbox],
        thresholds: Thresholds,
        tensors: Arrays,
    ) -> list[ResultT]:
        _, found = self.run_network(inputs, tensors)
        return self._decode(found, letterboxes, thresholds)

    @marked('decode')
    def _decode(
        self, found: Arrays, letterboxes: Sequence[Letterbox], thresholds: Thresholds
    ) -> list[ResultT]:
        outputs = {name: found[name] for name in self._output_names}
        count = 1
        if self.is_one_image:
            count = self.max_batch if self._is_padded else len(letterboxes)
        else:
            letterboxes = letterboxes[:1]
        for name, output in outputs.items():
            if count > 1 and output.shape[:1] != (count,):
                raise TensorMismatchError(
                    f'The output {name} has the shape {output.shape} for a batch of {count}.',
                    remedy='Set max_batch_size to 1.',
                )
        add = self.nonfinite.add
        return decode_batch(self.decoder, outputs, count, letterboxes, thresholds, add)

    def run_network(self, staged: Arrays, tensors: Arrays) -> tuple[Arrays, Arrays]:
        """Run the network on what stage() returned and its states; return inputs and outputs."""
        # Two runs at once would share the same CPUs; states go from one run to the next.
        is_alone = bool(self._memory_feeds) or not self.runner.overlaps
        with self._running if is_alone else nullcontext():
            if self._memory_feeds:
                staged = {**staged, **self._remembered(tensors)}
            inputs = self._parts.join(staged)
            found = self._infer(inputs)
            for name, feed in self._memory_feeds.items():
                self._memory[name] = feed.keep(found, self._memory[name], staged[name])
        return inputs, found

    @marked('network')
    def _infer(self, inputs: Arrays) -> Arrays:
        if self._tiles == 1:
            return self.runner.infer(inputs)
        (name,) = image_feeds(self.feeds)
        runs = [
            self.runner.infer({**inputs, name: inputs[name][index : index + 1]})
            for index in range(self._tiles)
        ]
        return {output: np.concatenate([run[output] for run in runs]) for output in runs[0]}

    def _own_diagnostics(self) -> Mapping[str, str]:
        return self.runner.diagnostics()

    def _remembered(self, tensors: Arrays) -> dict[str, np.ndarray]:
        staged = {}
        for name, feed in self._memory_feeds.items():
            if name not in self._memory:
                self._memory[name] = feed.initial()
            staged[name], _ = feed.stage(Given(1, (), tensors.get(name), self._memory[name]))
        return staged

    def reset_state(self) -> None:
        super().reset_state()
        with self._running:
            self._memory.clear()

    def _close(self) -> None:
        self.runner.close()
