"""A network from image to result: the one thing that the nodes and the command line use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
import logging
import sys
import threading
from typing import Any, Generic, TypeVar

import numpy as np

from trt_ros.engine.build.profiles import DEFAULT_INPUT_HW, metadata_hw
from trt_ros.errors import (
    ClosedError,
    GpuFailedError,
    ParameterError,
    TensorMismatchError,
    TrtRosError,
)
from trt_ros.progress import Progress, Reporter
from trt_ros.runtime.backends import open_network
from trt_ros.runtime.cpu.frame_runner import StepByStep
from trt_ros.runtime.options import LabelledOptions, PipelineOptions
from trt_ros.runtime.runner import FrameRunner, Network, Runner
from trt_ros.tensors import TensorSpec, refuse_large
from trt_ros.vision.decoders.family import Family, Head
from trt_ros.vision.decoders.registry import FAMILIES, Decoder, choose_decoder
from trt_ros.vision.frame import Frame
from trt_ros.vision.labels import begins_with_background, class_names
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

log = logging.getLogger('trt_ros.runtime')

IMAGE_DTYPES = ('float32', 'float16', 'bfloat16', 'uint8')
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
            image_input, layout, input_hw, size_why = _image_input(network, options)
            inputs, outputs = _of_one_image(network, image_input)
            labels, labels_path = (
                (options.labels, options.labels_path)
                if isinstance(options, LabelledOptions)
                else ((), '')
            )
            given = class_names(labels, labels_path, network.metadata, None)
            decoder = choose_decoder(
                options.decoder,
                inputs,
                outputs,
                network.metadata,
                input_hw,
                len(given) or None,
                has_background=begins_with_background(given),
                families=families,
            )
            if {spec.name for spec in network.inputs} != {
                image_input.name,
                *decoder.constant_inputs,
            }:
                raise _too_many_inputs(network)
            names = class_names(labels, labels_path, network.metadata, decoder.class_count)
            preprocess = _preprocess(options, decoder.preprocess, image_input, layout, input_hw)
            if preprocess.resize == 'center_crop' and decoder.task in ('segment', 'depth'):
                raise ParameterError(
                    'With resize center_crop the network does not see the whole image, for all of '
                    'which its results are wanted.',
                    remedy='Choose letterbox or stretch.',
                )
            frames: FrameRunner[ResultT] = make_frame_runner(network, preprocess, decoder, batch)
            undo.callback(frames.close)
            if runner is None:
                report('warming up')
                frames.warm_up()
            report('ready', 100.0)
            log_lines = [
                chosen,
                f'decoder {decoder.name}: {decoder.why}',
                _describe(preprocess, size_why),
            ]
            if isinstance(options, LabelledOptions):
                log_lines.append(_describe_names(names, given))
            undo.pop_all()
            return cls(
                frames,
                preprocess,
                decoder,
                backend=network.backend,
                log_lines=(*log_lines, *frames.log_lines),
                class_names=names,
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
    def most_detections(self) -> int:
        """Maximum number of detections per image, whatever is asked for."""
        return int(getattr(self._open_frames(), 'most_detections', sys.maxsize))

    def _open_frames(self) -> FrameRunner[ResultT]:
        if self.frames is None:
            raise ClosedError('The pipeline')
        return self.frames

    def tell_fault(self, on_fault: Callable[[GpuFailedError], None]) -> None:
        """Have `on_fault` called, on any thread, when the GPU fails for good or hangs."""
        faults = getattr(self.frames, 'faults', None)
        if faults is not None:
            faults.report_to(on_fault)

    def diagnostics(self) -> Mapping[str, str]:
        """Return what else is worth showing on /diagnostics; empty where there is nothing."""
        diagnostics: Callable[[], Mapping[str, str]] = getattr(self.frames, 'diagnostics', dict)
        return diagnostics()

    def register(self, memory: np.ndarray) -> None:
        """
        Say that frames will lie in `memory`, (N,) uint8: a GPU may then read them there.

        The lender keeps it in place until `unregister` or close(). It is a favour: what cannot
        be done is left, and frames are copied.
        """
        self._try(
            'register', memory, 'page-lock the receive buffers: the CPU copies images from them'
        )

    def unregister(self, memory: np.ndarray) -> None:
        """Say that `memory` goes; no frame in hand lies there."""
        self._try('unregister', memory, 'unlock the receive buffers')

    def _try(self, method: str, memory: np.ndarray, doing: str) -> None:
        do = getattr(self.frames, method, None)
        if do is not None:
            try:
                do(memory)
            except TrtRosError as error:
                log.warning('Could not %s. %s', doing, error)

    def close(self) -> None:
        """Close the network; may be called twice."""
        if self.frames is not None:
            self.frames.close()
            self.frames = None


def _image_input(
    network: Network,
    options: PipelineOptions,
) -> tuple[TensorSpec, str, tuple[int, int], str]:
    """The network's image input, its layout, its height and width, and where those come from."""
    images = [spec for spec in network.inputs if len(spec.shape) == 4]
    if len(network.inputs) > 1 and len(images) != 1:
        raise _too_many_inputs(network)
    spec = images[0] if images else network.inputs[0]
    if len(spec.shape) != 4:
        raise TensorMismatchError(
            f'The input {spec} is no batch of images.',
            remedy='Export with an input of (1, 3, height, width) or (1, height, width, 3).',
        )
    if spec.dtype not in IMAGE_DTYPES:
        raise TensorMismatchError(
            f'The input {spec} takes no pixels.',
            remedy=f'Export with one of {", ".join(IMAGE_DTYPES)}.',
        )
    layout = _layout(spec)
    height, width = spec.shape[2:] if layout == 'nchw' else spec.shape[1:3]
    if options.input_size:
        asked, why = (options.input_size[0], options.input_size[1]), 'as asked'
        if any(size not in (-1, want) for size, want in zip((height, width), asked)):
            raise ParameterError(
                f'input_size is {list(asked)}, but the network takes only {height} by {width}.',
                remedy='Leave input_size out: it is for networks with a dynamic size.',
            )
    elif -1 in (height, width):
        found = metadata_hw(network.metadata)
        asked, why = (
            found or DEFAULT_INPUT_HW,
            ('from the metadata' if found else 'by default') + ', the network leaves it open',
        )
    else:
        asked, why = (height, width), 'fixed by the network'
    input_hw = (height if height > 0 else asked[0], width if width > 0 else asked[1])
    size = (3, *input_hw) if layout == 'nchw' else (*input_hw, 3)
    refuse_large([replace(spec, shape=(spec.shape[0], *size))])
    return spec, layout, input_hw, why


def _of_one_image(
    network: Network,
    image: TensorSpec,
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """
    Describe inputs and outputs as those of a run of one image, which families are known by.

    :raises TensorMismatchError: when a fixed batch does not go through to the outputs.
    """
    batch = image.shape[0]
    if batch in (1, -1):
        return network.inputs, network.outputs
    if batch == 0 or any(spec.shape[:1] not in ((batch,), (-1,)) for spec in network.outputs):
        raise TensorMismatchError(
            f'The input {image} takes {batch} images at a time, the outputs are not of so many.',
            cause='; '.join(str(spec) for spec in network.outputs),
            remedy='Export with a batch size of 1, or a dynamic one.',
        )

    def of_one(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(
            replace(spec, shape=(1, *spec.shape[1:])) if spec.shape[:1] == (batch,) else spec
            for spec in specs
        )

    return of_one(network.inputs), of_one(network.outputs)


def _too_many_inputs(network: Network) -> TensorMismatchError:
    return TensorMismatchError(
        f'The network has {len(network.inputs)} inputs.',
        cause='; '.join(str(spec) for spec in network.inputs),
        remedy='Export it with one image as its only input.',
    )


def _layout(spec: TensorSpec) -> str:
    if spec.shape[1] == 3:
        return 'nchw'
    if spec.shape[3] == 3:
        return 'nhwc'
    if spec.shape[1] == -1:
        return 'nchw'  # What exporters write unless told otherwise.
    raise TensorMismatchError(
        f'The input {spec} has no dimension of 3 colours.',
        remedy='Export with an input of (1, 3, height, width) or (1, height, width, 3).',
    )


def _preprocess(
    options: PipelineOptions,
    trained_with: Mapping[str, object],
    spec: TensorSpec,
    layout: str,
    input_hw: tuple[int, int],
) -> Preprocess:
    """The family's preprocessing with what the options override."""
    values: dict[str, Any] = dict(trained_with)
    given = {
        'resize': options.resize != 'auto' and options.resize,
        'channel_order': options.channel_order != 'auto' and options.channel_order,
        'mean': options.mean,
        'std': options.std,
        'scale': options.scale,
        'crop_fraction': options.crop_fraction,
    }
    if spec.dtype == 'uint8':
        refused = [name for name in ('mean', 'std', 'scale') if given[name]]
        if refused:
            raise ParameterError(
                f'{" and ".join(refused)} cannot be honoured.',
                cause=f'The input {spec} takes the pixels as they are.',
                remedy='Leave them out: such a network normalises by itself.',
            )
        values.update(scale=1.0, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    values.update({name: value for name, value in given.items() if value})
    if options.pad_value >= 0:
        values['pad_value'] = options.pad_value
    if options.crop_fraction and values.get('resize') != 'center_crop':
        raise ParameterError(
            f'crop_fraction is given, but with resize {values.get("resize")} nothing is cropped.',
            remedy='Leave crop_fraction out, or set resize to center_crop.',
        )
    preprocess = Preprocess(input_hw=input_hw)
    return replace(
        preprocess, **values, antialias=options.antialias, layout=layout, dtype=spec.dtype
    )


def _describe_names(names: tuple[str, ...], given: tuple[str, ...]) -> str:
    if not names:
        return 'no class names: classes are numbers'
    left_out = f', without {given[0]!r}, which the network does not count'
    return f'{len(names)} class names{left_out if len(names) < len(given) else ""}'


def _describe(preprocess: Preprocess, size_why: str) -> str:
    height, width = preprocess.input_hw
    padding = f' padded with {preprocess.pad_value}' if 'letterbox' in preprocess.resize else ''
    if preprocess.resize == 'center_crop':
        padding = f' of {preprocess.crop_fraction:.4g} of the shorter side'
    averaged = ' with antialias' if preprocess.antialias else ''
    line = (
        f'input {width}x{height} ({size_why}), {preprocess.resize}{padding}{averaged}, '
        f'{preprocess.channel_order}, {preprocess.layout} {preprocess.dtype}, '
        f'scale {preprocess.scale:.6g}'
    )
    if any(preprocess.mean) or any(value != 1 for value in preprocess.std):
        line += f', mean {preprocess.mean}, std {preprocess.std}'
    return line
