"""Quantization of a model: calibration, choice of the layers, output file and report."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
import hashlib
from itertools import islice
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from trt_ros.engine.builder.onnx_check import refuse_beyond_protobuf
from trt_ros.engine.builder.onnx_nodes import inlined, to_quantizing_opset
from trt_ros.engine.key import OnnxFile
from trt_ros.errors import ParameterError
from trt_ros.model.run_inputs import is_one_image
from trt_ros.progress import Reporter
from trt_ros.quantization.by_modelopt import quantize_by_modelopt, quantized_layers
from trt_ros.quantization.calibration import Calibration
from trt_ros.quantization.engine_check import EngineCheck, LatencyTable, check_engine
from trt_ros.quantization.layers import FORMATS, QuantNetwork
from trt_ros.quantization.options import QuantOptions
from trt_ros.quantization.result_agreement import Evaluation, FrameNetwork, ResultAgreement
from trt_ros.quantization.search import LayerSearch
from trt_ros.regular_file import check_output_file, replacing, writing
from trt_ros.runtime.cpu.checked_runner import CheckedRunner
from trt_ros.runtime.fitting import ResolvedModel, resolve
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.frame import Frame

EVALUATED_FRAMES = 32


@dataclass(frozen=True)
class FrameSource:
    """Frames to calibrate with: `open` yields about `count`; `fingerprint` names them."""

    open: Callable[[], Iterator[Frame]]
    count: int
    fingerprint: str


@dataclass(frozen=True)
class LayerResult:
    """
    A convolution or matrix product in the result.

    :param error: error of the last layers when this one alone is quantized, infinite for NaN; None
        if it was never.
    :param reason: why it stays in float; '' where it is quantized.
    """

    name: str
    error: float | None
    reason: str


@dataclass
class QuantReport:
    """Result of a quantization; `resumed` frames are of an earlier run."""

    model: str
    output: str
    to: str
    tool: str
    method: str
    frames: int
    resumed: int
    agreement: ResultAgreement
    layers: list[LayerResult]
    log_lines: tuple[str, ...]
    engine: EngineCheck | None = None
    latency: LatencyTable | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        found = {**asdict(self), 'agreement': self.agreement.as_dict()}
        for layer in found['layers']:
            if layer['error'] == math.inf:  # JSON has no infinity.
                layer['error'] = None
        if self.engine and self.engine.agreement:
            found['engine']['agreement'] = self.engine.agreement.as_dict()
        return found


def quantize(
    options: QuantOptions,
    pipeline_options: PipelineOptions,
    source: FrameSource,
    output: Path,
    report: Reporter,
) -> QuantReport:
    """Quantize a model and write it; keep the calibration beside it, as NAME.calibration.npz."""
    path = Path(pipeline_options.model_path).expanduser()
    _check_output(output, path)
    fitted = _fitted(path, pipeline_options, report)
    network = QuantNetwork(_load(path, options.to), options.keep, options.to)
    quantization = _Quantization(options, network, fitted, _Frames(source), report)
    if options.tool == 'modelopt':
        found = quantization.by_modelopt()
    else:
        key = _key(path, source, fitted, [layer.activation for layer in network.layers])
        found = quantization.own(calibration_path(output), key)
    _write(found.model, output)
    engine = None
    if options.engine:
        engine = check_engine(
            output, fitted, found.evaluation, found.agreement, pipeline_options, report
        )
    left_out = [LayerResult(name, None, why) for name, why in network.left_out.items()]
    return QuantReport(
        str(path),
        str(output),
        options.to,
        options.tool,
        options.chosen_method,
        found.frames,
        found.resumed,
        found.agreement,
        found.layers + left_out,
        fitted.log_lines,
        engine,
    )


class _Frames:
    """The frames of the source; keeps some to evaluate with."""

    def __init__(self, source: FrameSource) -> None:
        self._source, self.count = source, source.count
        self._stride = -(-source.count // EVALUATED_FRAMES)
        self.evaluated: list[Frame] = []
        self.done = 0

    def __iter__(self) -> Iterator[Frame]:
        for index, frame in enumerate(self._source.open()):
            if index % self._stride == 0 and len(self.evaluated) < EVALUATED_FRAMES:
                self.evaluated.append(frame)
            self.done = index + 1
            yield frame


@dataclass(frozen=True)
class _Quantized:
    model: Any
    evaluation: Evaluation
    agreement: ResultAgreement
    layers: list[LayerResult]
    frames: int
    resumed: int = 0


@dataclass(frozen=True)
class _Quantization:
    """A network, and what either tool needs to quantize it."""

    options: QuantOptions
    network: QuantNetwork
    fitted: ResolvedModel[Any]
    frames: _Frames
    report: Reporter

    def own(self, kept: Path, key: str) -> _Quantized:
        """Calibrate with histograms, and return the most sensitive layers to float."""
        options, network = self.options, self.network
        quant_format, method = FORMATS[options.to], options.chosen_method
        activations = sorted({layer.activation for layer in network.layers})
        calibration = Calibration(activations, kept, key)
        resumed = calibration.done
        with FrameNetwork.open(network.model, self.fitted, activations) as instrumented:
            calibration.run(instrumented, self.frames, self.frames.count, self.report)
        with FrameNetwork.open(network.model, self.fitted) as original:
            evaluation = self._evaluation(original)
        amax = calibration.ranges(method, quant_format)
        search = LayerSearch(
            network, self.fitted, amax, method, quant_format, evaluation, self.report
        )
        errors = search.errors(calibration)
        layers, agreement = search.fallback(errors, options.max_drop)
        results = self._results(
            {layer.name for layer in layers}, errors, 'in float to meet --max-drop'
        )
        model = search.model(layers)
        return _Quantized(model, evaluation, agreement, results, calibration.done, resumed)

    def by_modelopt(self) -> _Quantized:
        """Quantize with nvidia-modelopt, which chooses among the layers that may be quantized."""
        options, network = self.options, self.network

        def inputs(original: FrameNetwork) -> Iterator[dict[str, np.ndarray]]:
            for index, frame in enumerate(self.frames):
                self.report('calibrating', 100.0 * index / self.frames.count)
                yield original.inputs_of(frame)

        with FrameNetwork.open(network.model, self.fitted) as original:
            chosen = options.to, options.chosen_method, network.left_out
            model = quantize_by_modelopt(network.model, *chosen, inputs(original))
            evaluation = self._evaluation(original)
        with FrameNetwork.open(model, self.fitted) as variant:
            agreement = evaluation.agreement(variant)
        if not agreement.drop <= options.max_drop:
            raise ParameterError(
                f'The network of nvidia-modelopt has a drop of more than {options.max_drop:g}.',
                cause=f'{agreement}.',
                remedy='Keep layers in float with --keep, or quantize without --tool, which '
                'chooses them.',
            )
        results = self._results(quantized_layers(model), {}, 'left out by nvidia-modelopt')
        return _Quantized(model, evaluation, agreement, results, self.frames.done)

    def _evaluation(self, original: FrameNetwork) -> Evaluation:
        """Return the frames to evaluate with, which calibration has kept, or raise."""
        if not self.frames.done:
            raise ParameterError('The files have no images.', remedy='Calibrate with some images.')
        return Evaluation(original, self.frames.evaluated, self.options.score_threshold)

    def _results(
        self, quantized: Collection[str], errors: Mapping[str, float], reason: str
    ) -> list[LayerResult]:
        return [
            LayerResult(each.name, errors.get(each.name), '' if each.name in quantized else reason)
            for each in self.network.layers
        ]


def calibration_path(output: Path) -> Path:
    """Return the path of the file that keeps the calibration."""
    return output.with_suffix('.calibration.npz')


def _check_output(output: Path, model: Path) -> None:
    problem = f'The file {output} cannot be written.'
    if output.suffix != '.onnx':
        raise ParameterError(problem, cause='It is not an .onnx file.', remedy='Name it so.')
    check_output_file(output)
    if output.exists() and model.exists() and output.samefile(model):
        raise ParameterError(
            problem, cause='It is the model itself.', remedy='Choose another name.'
        )


def _fitted(path: Path, options: PipelineOptions, report: Reporter) -> ResolvedModel[Any]:
    """Load the model in a child process first, and decide about preprocessing and decoder."""
    folder = options.engine_cache_dir
    with closing(CheckedRunner.open(path, report=report, engine_cache_dir=folder)) as original:
        fitted = resolve(original, options)
    if not is_one_image(fitted.feeds):
        raise ParameterError(
            f'{path} cannot be calibrated with images.',
            cause=f'Its inputs are {"; ".join(map(str, original.inputs))}.',
            remedy='Quantize it with a tool that takes arrays for all inputs.',
        )
    return fitted


def _load(path: Path, to: str) -> Any:
    """Return the ModelProto with its weights, in an opset with the types of Q/DQ nodes."""
    refuse_beyond_protobuf(path, 'be quantized', 'Quantize it with the tools of its exporter.')
    model = inlined(onnx.load(str(path)))
    return to_quantizing_opset(model, to)


def _key(
    path: Path, source: FrameSource, fitted: ResolvedModel[Any], activations: list[str]
) -> str:
    """Return the hash of all that the histograms depend on."""
    onnx = OnnxFile.read(path)
    parts = [onnx.sha256, onnx.external, source.fingerprint, str(fitted.preprocess), activations]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _write(model: Any, output: Path) -> None:
    onnx.checker.check_model(model)
    with writing(output, 'Choose another folder.'), replacing(output) as part:
        onnx.save(model, str(part))


def limited(frames: Iterator[Frame], count: int, limit: int) -> Iterator[Frame]:
    """Yield at most `limit` of about `count` frames, evenly spread."""
    chosen = (
        frame
        for index, frame in enumerate(frames)
        if index * limit // max(1, count) > (index - 1) * limit // max(1, count)
    )
    return islice(chosen, limit)
