"""A network from image to result: the one thing that the nodes and the command line use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
import logging
import threading
from typing import Generic, TypeVar

import numpy as np

from trt_ros.errors import ClosedError, GpuFailedError, TrtRosError
from trt_ros.progress import Progress, Reporter
from trt_ros.runtime.backends import open_network
from trt_ros.runtime.cpu.frame_runner import StepByStep
from trt_ros.runtime.fitting import fit
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.runner import FrameRunner, Runner
from trt_ros.vision.decoders.family import Family, Head
from trt_ros.vision.decoders.registry import FAMILIES, Decoder
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

log = logging.getLogger('trt_ros.runtime')

ResultT = TypeVar('ResultT')


class Pipeline(Generic[ResultT]):
    """
    Owns an open network; turns frames into what its task finds with it, one call at a time.

    :param backend: the name of what runs it.
    :param log_lines: lines for the log: what was chosen, and why.
    :param class_names: by class index; () where nothing names them.
    """

    def __init__(
        self,
        frames: FrameRunner[ResultT],
        preprocess: Preprocess,
        decoder: Decoder[ResultT],
        *,
        backend: str,
        log_lines: tuple[str, ...],
        class_names: tuple[str, ...],
    ) -> None:
        self.frames: FrameRunner[ResultT] | None = frames
        self.preprocess, self.decoder = preprocess, decoder
        self.backend, self.log_lines, self.class_names = backend, log_lines, class_names

    @classmethod
    def open(
        cls,
        options: PipelineOptions,
        *,
        families: tuple[Family[Head[ResultT]], ...] = FAMILIES,  # type: ignore[assignment]
        on_progress: Callable[[Progress], None] | None = None,
        cancelled: threading.Event | None = None,
        batch: int = 1,
        runner: Runner | None = None,
    ) -> Pipeline[ResultT]:
        """
        Open the model and settle how images go in and results come out.

        :param families: those that `options.decoder` chooses from.
        :param on_progress: told each phase, on this thread.
        :param cancelled: set it from another thread to stop at the next phase.
        :param batch: how many frames may come together; an engine is built for so many in a run.
        :param runner: an open runner to use instead of opening one; the pipeline then owns it,
            also when this raises, and does not warm it up.
        :raises TrtRosError: a ParameterError, ModelError, BackendError, TensorMismatchError or
            CancelledError; nothing stays open.
        """
        report = Reporter(on_progress, cancelled)
        with ExitStack() as undo:
            if runner is None:
                network, backend, chosen = open_network(options, report, batch)
                make_frame_runner = backend.frame_runner
            else:
                network, chosen = runner, f'backend {runner.backend}'
                make_frame_runner = StepByStep
            undo.callback(network.close)
            report('choosing the decoder')
            fitted = fit(network, options, families)
            frames: FrameRunner[ResultT] = make_frame_runner(
                network, fitted.preprocess, fitted.decoder, batch
            )
            undo.callback(frames.close)
            if runner is None:
                report('warming up')
                frames.warm_up()
            report('ready', 100.0)
            undo.pop_all()
            return cls(
                frames,
                fitted.preprocess,
                fitted.decoder,
                backend=network.backend,
                log_lines=(chosen, *fitted.log_lines, *frames.log_lines),
                class_names=fitted.class_names,
            )

    def infer(self, frame: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> ResultT:
        """
        Find what is in one image; the thresholds are for boxes.

        :returns: what its task finds, in the image's pixels.
        :raises BadFrameError: when the image cannot be read as its encoding says.
        :raises ClosedError: after close().
        """
        return self._open_frames().infer(frame, thresholds)

    def infer_all(
        self, frames: Sequence[Frame], thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> Sequence[ResultT]:
        """
        Find what is in each of several images, in as few runs as the network allows.

        :param frames: of any sizes and encodings; maybe none.
        :returns: for each frame what its task finds, in that image's pixels.
        :raises BadFrameError: when one of them cannot be read as its encoding says.
        :raises ClosedError: after close().
        """
        return self._open_frames().infer_all(frames, thresholds)

    @property
    def max_batch(self) -> int:
        """How many frames one run takes."""
        return self._open_frames().max_batch

    @property
    def max_detections(self) -> int:
        """Maximum number of detections per image, whatever is asked for."""
        return self._open_frames().max_detections

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
        Let a GPU read frames in place in `memory`, (N,) uint8.

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
