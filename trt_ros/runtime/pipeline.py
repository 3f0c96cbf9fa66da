"""A network from image to result, as the nodes, the command line and Python programs use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from difflib import get_close_matches
import logging
import os
from pathlib import Path
import threading
from typing import Any, Generic, TypeVar, overload

import numpy as np

from trt_ros.errors import (
    BadFrameError,
    ClosedError,
    GpuFailedError,
    ParameterError,
    TrtRosError,
    printable,
)
from trt_ros.families.family import Family, Head
from trt_ros.families.registry import ALL_FAMILIES, TENSORS
from trt_ros.progress import Progress, Reporter
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.runtime.backends import open_network
from trt_ros.runtime.cpu.frame_runner import StepByStep
from trt_ros.runtime.feeds import ImageFeed, RunInputs, image_feeds
from trt_ros.runtime.fitting import ResolvedModel, fit
from trt_ros.runtime.future import Future
from trt_ros.runtime.options import ModelOptions, PipelineOptions
from trt_ros.runtime.runner import FrameRunner, Runner
from trt_ros.tensors import TensorSpec
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

log = logging.getLogger('trt_ros.runtime')

ResultT = TypeVar('ResultT', bound=Result)

OBJECT_TASKS = ('detect', 'obb', 'pose')  # Tasks whose results are objects with a class and score.


#: An image: a frame, pixels of (H, W, 3) uint8 in BGR order, or the path of a picture.
Image = Frame | np.ndarray | str | os.PathLike[str]


class Pipeline(Generic[ResultT]):
    """
    A network with its preprocessing and decoding. Owns the network until close().

    A context manager. docs/python_api.md lists which thread may call what.

    :param backend: name of the backend that runs it.
    :param log_lines: lines for the log: each decision with its reason.
    :param outputs: the network's outputs that are decoded, in order.
    :ivar feeds: origin of each network input, by its name.
    :ivar class_names: by class index; () where nothing names them.
    """

    def __init__(
        self,
        frames: FrameRunner[ResultT],
        fitted: ResolvedModel[ResultT],
        *,
        backend: str,
        log_lines: tuple[str, ...],
        outputs: tuple[TensorSpec, ...] = (),
    ) -> None:
        self.frames: FrameRunner[ResultT] | None = frames
        self._fitted, self.feeds, self.decoder = fitted, fitted.feeds, fitted.decoder
        self.class_names = fitted.class_names
        self.backend, self.outputs = backend, outputs
        self.log_lines = tuple(map(printable, log_lines))
        self._last_look_up: tuple[Thresholds, Thresholds] = DEFAULT_THRESHOLDS, DEFAULT_THRESHOLDS

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

        :param model: options, or the path of an ONNX file or a TensorRT engine.
        :param families: model families that the option `decoder` chooses from; by default those
            of every task.
        :param on_progress: called with each phase, on this thread.
        :param cancelled: set it from another thread to stop at the next phase.
        :param batch: maximum number of frames per run; an engine is built for it.
        :param runner: an open runner to use instead of opening one; the pipeline then owns it,
            also when this raises, and does not warm it up.
        :param options: fields of `ModelOptions` by name, which are also the nodes' parameters.
        :raises TrtRosError: a ParameterError, ModelError, BackendError, TensorMismatchError or
            CancelledError; nothing stays open.
        """
        report = Reporter(on_progress, cancelled)
        with ExitStack() as undo:
            if runner is not None:
                undo.callback(runner.close)
            chosen_options = _options(model, options)
            if runner is None:
                network, backend, chosen = open_network(chosen_options, report, batch)
                make_frame_runner = backend.frame_runner
                undo.callback(network.close)
            else:
                network, chosen = runner, f'backend {runner.backend}'
                make_frame_runner = StepByStep
            report('choosing the decoder')
            fitted = fit(network, chosen_options, families or _default_families(chosen_options))
            frames: FrameRunner[ResultT] = make_frame_runner(network, fitted, batch)
            undo.callback(frames.close)
            if runner is None:
                report('warming up')
                frames.warm_up()
            report('ready', 100.0)
            undo.pop_all()
            return cls(
                frames,
                fitted,
                backend=network.backend,
                log_lines=(chosen, *fitted.log_lines, *frames.log_lines),
                outputs=tuple(
                    spec
                    for name in fitted.outputs
                    for spec in network.outputs
                    if spec.name == name
                ),
            )

    def __enter__(self) -> Pipeline[ResultT]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def __call__(
        self,
        image: Image | RunInputs,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        **limits: Any,
    ) -> ResultT: ...

    @overload
    def __call__(
        self,
        image: Sequence[Image],
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        **limits: Any,
    ) -> Sequence[ResultT]: ...

    def __call__(
        self,
        image: Image | RunInputs | Sequence[Image],
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        **limits: Any,
    ) -> ResultT | Sequence[ResultT]:
        """
        Run one image, several, or an image or array per network input.

        >>> pipeline('street.jpg', score=0.5)

        :param image: see `infer`; a list of images, see `infer_all`; or a mapping from network
            inputs to images and arrays, see `infer_inputs`.
        :param limits: fields of `Thresholds` by name.
        """
        if limits:
            thresholds = replace(thresholds, **limits)
        if isinstance(image, Mapping):
            return self.infer_inputs(image, thresholds)
        if isinstance(image, (list, tuple)):
            return self.infer_all(image, thresholds)
        return self.infer(image, thresholds)  # type: ignore[arg-type]

    def infer(self, image: Image, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> ResultT:
        """
        Run one image; the thresholds are for boxes.

        :returns: the task's result, in the image's pixels.
        :raises ParameterError: when the thresholds name an unknown class.
        :raises BadFrameError: when the image cannot be read, or not as its encoding declares.
        :raises ClosedError: after close().
        """
        thresholds = self.resolve_classes(thresholds)
        return self._named(self._open_frames().infer(_as_frame(image), thresholds))

    def infer_all(
        self, images: Sequence[Image], thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> Sequence[ResultT]:
        """
        Run several images, in as few runs as the network allows.

        :param images: of any sizes and encodings; may be empty.
        :returns: the task's result per image, in its pixels.
        :raises BadFrameError: when one of them cannot be read, or not as its encoding declares.
        :raises ClosedError: after close().
        """
        thresholds = self.resolve_classes(thresholds)
        found = self._open_frames().infer_all(list(map(_as_frame, images)), thresholds)
        return list(map(self._named, found))

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
        :returns: the task's result per region, in the image's pixels.
        :raises ParameterError: when the pipeline was opened without `regions`.
        :raises BadFrameError: when the image cannot be read as its encoding declares.
        :raises ClosedError: after close().
        """
        crop = next((feed.crop for feed in image_feeds(self.feeds).values()), None)
        if crop is None:
            raise ParameterError(
                'The pipeline runs on whole images.', remedy='Open it with regions=True.'
            )
        boxes = regions.rotated_boxes() if isinstance(regions, Objects) else regions
        maps, thresholds = crop.maps(boxes), self.resolve_classes(thresholds)
        found = self._open_frames().infer_regions(_as_frame(image), maps, thresholds)
        return list(map(self._named, found))

    def infer_inputs(
        self, inputs: RunInputs, thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> ResultT:
        """
        Run the network once, on an image or array for each of its inputs but states and constants.

        :param inputs: by network input: a frame or pixels where an image is fed, two frames where
            the second is the fourth channel, else an array of the input's shape.
        :returns: the task's result; boxes are in pixels of the first image.
        :raises TensorMismatchError: when an input is missing, unknown, or does not fit.
        :raises BadFrameError: when an image cannot be read as its encoding declares.
        :raises ClosedError: after close().
        """
        thresholds = self.resolve_classes(thresholds)
        found = self._open_frames().infer_inputs(self._with_frames(inputs), thresholds)
        return self._named(found)

    def _named(self, result: ResultT) -> ResultT:
        result.class_names = self.class_names
        return result

    def resolve_classes(self, thresholds: Thresholds) -> Thresholds:
        """
        Look up the classes of thresholds, once for many images; the methods accept both.

        :raises ParameterError: for an unknown class, or where the results are no objects.
        """
        if not thresholds.chooses_classes or isinstance(thresholds, ClassThresholds):
            return thresholds
        last, found = self._last_look_up
        if thresholds == last:
            return found
        head = self.decoder.head
        if self.decoder.task not in OBJECT_TASKS and not head.finds_instances:
            raise ParameterError(
                'classes, class_score_thresholds and class_agnostic_nms are for objects, but '
                f'decoder {self.decoder.name} finds none.',
                remedy='Leave them out.',
            )
        # Copies: a program may change its list of classes between calls.
        asked = replace(
            thresholds,
            classes=tuple(thresholds.classes),
            class_scores=dict(thresholds.class_scores),
        )
        if asked != last:
            found = ClassThresholds.of(asked, self.class_names)
            self._last_look_up = asked, found
        return found

    def _with_frames(self, inputs: RunInputs) -> RunInputs:
        """Return the inputs with pixels wrapped as frames where an image is fed."""
        return {
            name: _as_frame(value)
            if isinstance(value, np.ndarray) and isinstance(self.feeds.get(name), ImageFeed)
            else value
            for name, value in inputs.items()
        }

    def open_jpeg_decoder(self) -> str:
        """
        Decode frames that are JpegFrame on the GPU from now on, where that is possible.

        :returns: why it is not; '' when it is.
        """
        return self._open_frames().open_jpeg_decoder()

    def reset_state(self) -> None:
        """Set the states of the network to zeros before the next run."""
        self._open_frames().reset_state()

    def submit(
        self,
        image: Image | RunInputs,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        **limits: Any,
    ) -> Future[ResultT]:
        """
        Start one run and return while the GPU works; on the CPU, finish it first.

        A GPU has `frames_in_flight` frames at a time: where there are as many, the next `submit`
        waits until the result of one of them is collected.

        :param image: as for a call; it must stay unchanged until the result is there.
        :param limits: fields of `Thresholds` by name.
        :raises BadFrameError: when the image cannot be read, or not as its encoding declares.
        :raises ClosedError: after close().
        """
        if limits:
            thresholds = replace(thresholds, **limits)
        frames = self._open_frames()
        thresholds = self.resolve_classes(thresholds)
        if isinstance(image, Mapping):
            pending = frames.submit_inputs(self._with_frames(image), thresholds)
        else:
            pending = frames.submit([_as_frame(image)], thresholds)
        return pending.map(lambda results: self._named(results[0]))

    @property
    def preprocess(self) -> Preprocess:
        """
        The preprocessing of the (first) image.

        :raises TensorMismatchError: when the network takes no image.
        """
        return self._fitted.preprocess

    @property
    def max_batch(self) -> int:
        """Maximum number of frames per run."""
        return self._open_frames().max_batch

    @property
    def max_detections(self) -> int:
        """Maximum number of detections per image, whatever the thresholds allow."""
        return self._open_frames().max_detections

    @property
    def expected_image_nbytes(self) -> int:
        """Bytes of the largest image to expect in registered memory; 0 if unknown."""
        return self._open_frames().expected_image_nbytes

    def _open_frames(self) -> FrameRunner[ResultT]:
        if self.frames is None:
            raise ClosedError('The pipeline')
        return self.frames

    def on_fault(self, callback: Callable[[GpuFailedError], None]) -> None:
        """Call `callback` once, on any thread, when the GPU has failed or does not answer."""
        self._open_frames().on_fault(callback)

    def diagnostics(self) -> Mapping[str, str]:
        """Return values for /diagnostics by their key; empty where there are none."""
        return self.frames.diagnostics() if self.frames is not None else {}

    def register(self, memory: np.ndarray) -> None:
        """
        Prepare `memory`, (N,) uint8, for a GPU to read frames in place.

        Best effort: falls back to copying. The caller keeps the memory in place until
        `unregister` or close().
        """
        if self.frames is not None:
            with _logged('page-lock the receive buffers: the CPU copies images from them'):
                self.frames.register(memory)

    def unregister(self, memory: np.ndarray) -> None:
        """Stop using registered memory, in which no submitted frame lies any more."""
        if self.frames is not None:
            with _logged('unlock the receive buffers'):
                self.frames.unregister(memory)

    def close(self) -> None:
        """Close the network; may be called twice."""
        if self.frames is not None:
            self.frames.close()
            self.frames = None


@contextmanager
def _logged(action: str) -> Iterator[None]:
    """Log an error of an action that can be left undone."""
    try:
        yield
    except TrtRosError as error:
        log.warning('Could not %s. %s', action, error)


def _options(
    model: PipelineOptions | str | os.PathLike[str], changes: Mapping[str, Any]
) -> PipelineOptions:
    """
    Return the options of `Pipeline.open`; lists count as tuples.

    :raises ParameterError: when an option does not exist.
    """
    kind = type(model) if isinstance(model, PipelineOptions) else ModelOptions
    known = [each.name for each in fields(kind) if each.init]
    for name in changes:
        if name not in known:
            close = get_close_matches(name, known, n=3, cutoff=0.6)
            raise ParameterError(
                f'{kind.__name__} has no option {name!r}.',
                remedy=f'Did you mean {" or ".join(close)}?'
                if close
                else f'Use {", ".join(known)}.',
            )
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()
    }
    if isinstance(model, PipelineOptions):
        return replace(model, **values) if values else model
    return ModelOptions(model_path=os.fspath(model), **values)


def _as_frame(image: Any) -> Frame:
    """
    Return a frame as it is, and pixels or a picture file as a frame.

    :raises BadFrameError: when it is none of them, or cannot be read.
    """
    if isinstance(image, Frame):
        return image
    if isinstance(image, (str, os.PathLike)):
        from trt_ros.media import read_picture  # Imports OpenCV.

        return Frame.from_pixels(read_picture(Path(image)))
    if not isinstance(image, np.ndarray):
        unread = 'cv2.imread returns None for a file that it cannot read.'
        raise BadFrameError(
            'wrong data',
            f'The image is of type {type(image).__name__}.',
            cause=unread if image is None else '',
            remedy='Pass an array (H, W, 3) uint8 in BGR order, a path, or a Frame.',
        )
    return Frame.from_pixels(image)


def _default_families(options: PipelineOptions) -> tuple[Family[Head[Any]], ...]:
    """Return the families of every task; undecoded outputs only where chosen by name."""
    names = [family.name for family in TENSORS]
    return TENSORS if options.decoder in names else ALL_FAMILIES
