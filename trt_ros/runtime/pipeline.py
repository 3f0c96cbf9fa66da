"""A network from image to result, as the nodes, the command line and Python programs use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
import logging
import os
from pkgutil import resolve_name
import sys
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

from trt_ros.errors import ClosedError, ParameterError, printable
from trt_ros.families.family import Family
from trt_ros.families.head import Head
from trt_ros.model.feeds.image import Image, as_frame
from trt_ros.model.run_inputs import (
    NO_TENSORS,
    REGIONS,
    RunInputs,
    by_input,
    has_memory,
    image_feeds,
    inputs_of_image,
    is_one_image,
    split_inputs,
    zeros_of,
)
from trt_ros.progress import Progress, Reporter
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.results.watch import ResultWatch
from trt_ros.runtime.device import Device
from trt_ros.runtime.future import Finished, Future
from trt_ros.runtime.nonfinite import NonfiniteFrames
from trt_ros.tensors import Arrays
from trt_ros.vision.class_choice import OBJECT_TASKS, ClassLookup, no_objects
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds, with_limits

if TYPE_CHECKING:
    from trt_ros.runtime.fitting import ResolvedModel
    from trt_ros.runtime.options import PipelineOptions
    from trt_ros.runtime.runner import Network, Runner

log = logging.getLogger('trt_ros.runtime')
ResultT = TypeVar('ResultT', bound=Result)
RunT = TypeVar('RunT')


class Pipeline(ABC, Generic[ResultT]):
    """
    A network with its preprocessing and decoding. Owns the network until close().

    A backend implements `start`, and overrides what it needs of the other methods.

    :ivar backend: name of the backend that runs it.
    :ivar feeds: origin of each network input, by its name.
    :ivar bindings: of the network inputs, in their order; () where none were given.
    :ivar outputs: the network's outputs that are decoded, in order.
    :ivar frequency, commands: see `Network`.
    :ivar class_names: by class index; () where nothing names them.
    :ivar is_one_image: whether runs get one image each, beside constants.
    :ivar max_batch: maximum number of frames per run.
    :ivar max_detections: maximum number of detections per image, whatever the thresholds allow.
    :ivar device: what nodes ask of the device.
    :ivar is_asynchronous: whether `start` returns while the run is in progress.
    :ivar watch: watch over the results.
    :ivar nonfinite: counter of frames whose outputs have non-finite values.
    :ivar regions: pipeline that runs on the objects of this one's results; None without.
    """

    regions: Pipeline[Any] | None = None
    is_asynchronous = False
    max_batch: int = 1
    max_detections: int = sys.maxsize
    _nonfinite_advice = ''

    def __init__(self, network: Network, fitted: ResolvedModel[ResultT]) -> None:
        self._fitted, self.feeds, self.decoder = fitted, fitted.feeds, fitted.decoder
        self.bindings, self.class_names = fitted.bindings, fitted.class_names
        self.backend, self.metadata = network.backend, network.metadata
        self.frequency, self.commands = network.frequency, network.commands
        self.outputs, self._classes = fitted.output_specs, ClassLookup()
        self.is_one_image, self.device = is_one_image(fitted.feeds), Device()
        self._choice: tuple[str, ...] = ()
        self._kept: RunInputs | None = zeros_of(fitted.feeds) if network.keeps_inputs else None
        self._is_closed, self.watch = False, ResultWatch()
        self._prepared: Thresholds | None = None  # The last ones, which need no preparation.
        self.nonfinite = NonfiniteFrames(
            self._nonfinite_advice,
            'States keep them: reset the states.' if has_memory(fitted.feeds) else '',
        )

    @classmethod
    def open(
        cls,
        model: PipelineOptions | str | os.PathLike[str],
        *,
        families: tuple[Family[Head[ResultT]], ...] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        cancelled: threading.Event | None = None,
        batch: int = 1,
        runner: Runner | None = None,
        **options: Any,
    ) -> Pipeline[ResultT]:
        """
        Open a model, decide how images go in and results come out, and warm up.

        >>> Pipeline.open('model.onnx', precision='fp16')

        :param model: options, or the path or address of an ONNX file or a TensorRT engine.
        :param families: those that the option `decoder` chooses from; by default all.
        :param on_progress: called with each phase, on this thread.
        :param cancelled: set it from another thread to stop at the next phase.
        :param batch: maximum number of frames per run; an engine is built for it.
        :param runner: an open runner to use and own, also when this raises; not warmed up.
        :param options: fields of `ModelOptions` by name, which are also the nodes' parameters.
        :raises TrtRosError: of any kind; nothing stays open.
        """
        open_any = resolve_name('trt_ros.runtime.opening:open_any')  # Imports this.
        report = Reporter(on_progress, cancelled)
        opened: Pipeline[ResultT] = open_any(model, options, families, report, batch, runner)
        return opened

    @abstractmethod
    def start(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays = NO_TENSORS
    ) -> Future[list[ResultT]]:
        """
        Start a run; without a GPU, finish it too.

        :param frames: up to `max_batch` images, or those of one run in the order of the feeds.
        :param thresholds: with classes looked up, see `resolve_classes`.
        :param tensors: as `split_inputs` returns them; or, for regions of the only image, REGIONS
            with their maps, (N, 8) float32.
        :returns: a result per image of a batch, in its pixels; per region, in pixels of the
            network's input; or of the run.
        """

    def run(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays = NO_TENSORS
    ) -> list[ResultT]:
        """Return the results of a run; see `start`."""
        return self.start(frames, thresholds, tensors).result()

    def submit_run(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays = NO_TENSORS
    ) -> Future[list[ResultT]]:
        """Start a run that is not waited for at once; see `start`."""
        return self.start(frames, thresholds, tensors)

    def run_ahead(self, memory: np.ndarray, start: int) -> None:
        """
        Start the last run again on an image like the last one, before all that leads to `start`.

        The next `start` takes it over if it has the same image. One network on a GPU does so, with
        one run in flight; others do nothing.

        :param memory: (N,) uint8 that does not change any more; its pixels begin at `start`.
        """

    def warm_up(self) -> None:
        """Run on gray frames, which allocates memory and shows whether the network runs."""

    def join(self, regions: Pipeline[Any], count: int) -> None:
        """Run one opened with `regions` on up to `count` objects in the same launches."""

    @property
    def has_joined(self) -> bool:
        """Whether the pipeline of `join` runs in the same launches; known after the first run."""
        return False

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Run without a trace: states and counts begin anew, and nothing is logged."""
        self.nonfinite.is_rehearsal = True
        try:
            yield
        finally:
            self.nonfinite.is_rehearsal = False
            self.reset_state()
            self._reset_counts()

    def reset_state(self) -> None:
        """Set the states to their initial values before the next run, or raise ClosedError."""
        if self._is_closed:
            raise ClosedError('The pipeline')

    def _reset_counts(self) -> None:
        """Set the counts of the diagnostics to zero."""
        self.nonfinite.count = 0

    def _own_log_lines(self) -> tuple[str, ...]:
        return ()

    def _own_diagnostics(self) -> Mapping[str, str]:
        return {}

    @abstractmethod
    def _close(self) -> None:
        """Release all resources, the network's too; may be called twice."""

    def __enter__(self) -> Pipeline[ResultT]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def __call__(
        self, image: Image | RunInputs, thresholds: Thresholds = DEFAULT_THRESHOLDS, **limits: Any
    ) -> ResultT: ...

    @overload
    def __call__(
        self, image: Sequence[Image], thresholds: Thresholds = DEFAULT_THRESHOLDS, **limits: Any
    ) -> Sequence[ResultT]: ...

    def __call__(
        self,
        image: Image | RunInputs | Sequence[Image],
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        **limits: Any,
    ) -> ResultT | Sequence[ResultT]:
        """
        Run what `infer` takes, or a list of images; `limits` are fields of `Thresholds`.

        >>> pipeline('street.jpg', score=0.5)
        """
        if limits:
            thresholds = self._with_limits(thresholds, limits)
        if isinstance(image, (list, tuple)):
            return self.infer_all(image, thresholds)
        return self.infer(image, thresholds)  # type: ignore[arg-type]

    def infer(
        self, image: Image | RunInputs, thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> ResultT:
        """
        Run one image, or the network once on an image or array for each input but states.

        :param image: by network input or topic: an image, several where they are stacked or the
            second is the fourth channel, or an array of the input's shape.
        :returns: the task's result, in pixels of the (first) image.
        :raises ParameterError: when the thresholds name an unknown class.
        :raises TensorMismatchError: when an input is missing, unknown, or does not fit.
        :raises BadFrameError: when the image cannot be read, or not as its encoding declares.
        :raises ClosedError: after close().
        """
        return self.named(self._start(image, thresholds, self.run)[0])

    def infer_all(
        self, images: Sequence[Image | RunInputs], thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> Sequence[ResultT]:
        """
        Run several images, in as few runs as the network allows, or several runs of other inputs.

        :param images: of any sizes and encodings; may be empty.
        :returns: the task's result per image, in its pixels; raises as `infer`.
        """
        if not self.is_one_image:
            return [self.infer(each, thresholds) for each in images]
        thresholds, frames = self._prepare(thresholds), list(map(as_frame, images))
        found: list[ResultT] = []
        for start in range(0, len(frames), self.max_batch):
            some = frames[start : start + self.max_batch]
            found += self.start_batch(some, thresholds).result()
        return found

    def start_batch(
        self, frames: Sequence[Frame], thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> Future[Sequence[ResultT]]:
        """Start a run of up to `max_batch` images; the results are in their order."""
        if not self.is_one_image:
            return Finished([self.infer(frame, thresholds) for frame in frames])
        thresholds = self._prepare(thresholds)
        if len(frames) == 1:
            return self.start(frames, thresholds).map(self._all_named)
        # In one order whatever camera comes first: one graph per mix of geometries, not one
        # per permutation.
        places = sorted(
            range(len(frames)), key=lambda i: (frames[i].wh, frames[i].encoding, frames[i].step)
        )
        order = [places.index(i) for i in range(len(frames))]
        run = self.start([frames[i] for i in places], thresholds)
        return run.map(lambda found: self._all_named([found[place] for place in order]))

    def _all_named(self, results: list[ResultT]) -> list[ResultT]:
        return list(map(self.named, results))

    def infer_regions(
        self,
        image: Image,
        regions: np.ndarray | Objects,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> Sequence[ResultT]:
        """
        Run regions of an image, in as few runs as the network allows. Return [] without regions.

        The pipeline is opened with `regions=True`; its `batch` limits the regions per run.

        >>> Pipeline.open('vitpose.onnx', regions=True, batch=16).infer_regions(image, boxes)

        :param regions: objects of another network; or (N, 5): center x, y, width and height in the
            image's pixels, and the angle of the width from the x axis towards the y axis in
            radians; finite, sides above 0.
        :returns: the task's result per region, in the image's pixels; raises as `infer`.
        """
        crop = next((feed.crop for feed in image_feeds(self.feeds).values()), None)
        if crop is None:
            raise ParameterError(
                'The pipeline runs on whole images.', remedy='Open it with regions=True.'
            )
        maps = crop.maps(regions.rotated_boxes() if isinstance(regions, Objects) else regions)
        thresholds, frames = self._prepare(thresholds), [as_frame(image)]
        results: list[ResultT] = []
        for start in range(0, len(maps), self.max_batch):
            some = maps[start : start + self.max_batch]
            found = self.run(frames, thresholds, {REGIONS: some.reshape(-1, 8)})
            results += [self.named(each.to_source(affine)) for each, affine in zip(found, some)]
        return results

    def submit(
        self, image: Image | RunInputs, thresholds: Thresholds = DEFAULT_THRESHOLDS, **limits: Any
    ) -> Future[ResultT]:
        """
        Start one run and return while the GPU works; on the CPU, finish it first.

        A GPU has `frames_in_flight` frames at a time: where there are as many, the next `submit`
        waits until the result of one of them is collected.

        :param image: as for a call; it must stay unchanged until the result is there.
        :param limits: fields of `Thresholds` by name.
        """
        if limits:
            thresholds = self._with_limits(thresholds, limits)
        return self._start(image, thresholds, self.submit_run).map(
            lambda results: self.named(results[0])
        )

    def _start(
        self, image: Image | RunInputs, thresholds: Thresholds, start: Callable[..., RunT]
    ) -> RunT:
        """Start a run of one image, or of an image or array per network input, by a method."""
        if self._is_closed or thresholds is not self._prepared or thresholds.chooses_classes:
            thresholds = self._prepare(thresholds)
        if not isinstance(image, (dict, Mapping)):  # Mapping is slow to ask.
            if self.is_one_image:
                return start([as_frame(image)], thresholds)
            image = inputs_of_image(self.feeds, image)
        elif not image.keys() <= self.feeds.keys():
            image = by_input(self.feeds, self.bindings, image)
        if self._kept is not None:
            image = {**self._kept, **image}
        frames, tensors = split_inputs(self.feeds, image)
        self._kept = image if self._kept is not None else None
        return start(frames, thresholds, tensors)

    def named(self, result: ResultT) -> ResultT:
        """Return a result with the class names; the watch sees it."""
        result.class_names = self.class_names
        self.watch.add(result)
        return result

    def _prepare(self, thresholds: Thresholds) -> Thresholds:
        if self._is_closed:
            raise ClosedError('The pipeline')
        if not isinstance(thresholds, Thresholds):
            raise ParameterError(
                f'The thresholds are {thresholds!r}.', remedy='Name them, as in score=0.5.'
            )
        resolved = self.resolve_classes(thresholds)
        if resolved is thresholds:
            self._prepared = thresholds
        return resolved

    def resolve_classes(self, thresholds: Thresholds) -> Thresholds:
        """Look up the classes of thresholds, once for many images, or raise ParameterError."""
        if not thresholds.chooses_classes:
            return thresholds
        if not self._finds_objects:
            raise no_objects(self.decoder.name)
        return self._classes(thresholds, self.class_names)

    @property
    def _finds_objects(self) -> bool:
        return self.decoder.task in OBJECT_TASKS or self.decoder.head.finds_instances

    def _with_limits(self, thresholds: Thresholds, limits: Mapping[str, Any]) -> Thresholds:
        found = with_limits(thresholds, limits)
        if not self._finds_objects:
            raise no_objects(self.decoder.name, f'Limits by name ({", ".join(limits)})')
        return found

    @property
    def log_lines(self) -> tuple[str, ...]:
        """Lines for the log: each decision with its reason."""
        lines = (*self._choice, *self._fitted.log_lines, *self._own_log_lines())
        return tuple(map(printable, lines))

    @property
    def preprocess(self) -> Preprocess:
        """The preprocessing of the (first) image; raises TensorMismatchError without images."""
        return self._fitted.preprocess

    @property
    def nonfinite_count(self) -> int:
        """Number of frames and regions whose outputs had NaN or infinite values."""
        return self.nonfinite.count

    def diagnostics(self) -> Mapping[str, str]:
        """Return values for /diagnostics by their key; empty where there are none."""
        if self._is_closed:
            return {}
        return {
            'frames with non-finite values': str(self.nonfinite.count),
            **self._own_diagnostics(),
            'impossible results': self.watch.problem,
        }

    def close(self) -> None:
        """Close the network; may be called twice."""
        self._is_closed = True
        self._close()
