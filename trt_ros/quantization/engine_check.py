"""Results and latency of the quantized network's engine, on the GPU of this machine."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trt_ros.engine.options import BuildOptions
from trt_ros.errors import BackendError, TrtRosError
from trt_ros.progress import Reporter
from trt_ros.quantization.result_agreement import Evaluation, FrameNetwork, ResultAgreement
from trt_ros.runtime import backends
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.options import PipelineOptions

ENGINE_DROP = 0.05  # By which an engine may agree less than the same file with ONNX Runtime.


@dataclass(frozen=True)
class EngineCheck:
    """Agreement of an engine's results with the original's; `error`: why there is none."""

    agreement: ResultAgreement | None
    error: str = ''
    problem: str = ''

    def raise_problem(self, output: Path) -> None:
        """Check that the engine computes what the file says; raise BackendError if it does not."""
        if self.problem:
            raise BackendError(
                f'The engine of {output} is wrong: {self.problem}.',
                cause='ONNX Runtime computes the file as it should. TensorRT or this GPU does not '
                'support one of its quantized layers.',
                remedy=f'Use the original with precision fp16, or find the layer with `trt-ros '
                f'verify {output} --precision fp16 --layers` and name it with --keep.',
            )


def check_engine(
    output: Path,
    fitted: ResolvedModel[Any],
    evaluation: Evaluation,
    file_agreement: ResultAgreement,
    options: PipelineOptions,
    report: Reporter,
) -> EngineCheck | None:
    """Build the engine of a quantized file, the rest in fp16, and compare; None without GPU."""
    backend, _ = backends.choose_backend('auto')
    if backend.name == 'onnxruntime':
        return None
    report('comparing the engine')
    options = replace(options, model_path=str(output), precision='fp16')
    try:
        runner = backend.open(options, report, 1)
        with FrameNetwork(runner, fitted) as engine:
            outputs = [spec.name for spec in runner.outputs]
            if not set(fitted.outputs) <= set(outputs):  # NMS is cut off.
                here, there = ', '.join(outputs), ', '.join(fitted.outputs)
                return EngineCheck(
                    None, error=f'not compared, as it has the outputs {here} instead of {there}'
                )
            found = evaluation.agreement(engine)
    except TrtRosError as error:
        return EngineCheck(None, error=error.problem)
    return EngineCheck(found, problem=_problem(found, file_agreement))


def _problem(engine: ResultAgreement, file: ResultAgreement) -> str:
    for name, each in engine.outputs.items():
        if each.overflows_here_only:
            return f'{each.non_finite_here} values of {name} are NaN or Inf'
    # A NaN compares false, so it is a problem.
    if engine.value >= file.value - ENGINE_DROP:
        return ''
    return f'{engine.metric} {engine.value:.4f}, and {file.value:.4f} with ONNX Runtime'


ROUNDS = 100
UNQUANTIZED = ('tf32', 'fp16', 'bf16')
EQUAL = 1.05  # Ratio of times up to which two precisions count as equally fast.


@dataclass(frozen=True)
class PrecisionLatency:
    """
    Times of a precision.

    :param graph_ms: median time on the GPU, of the graph of a frame: copies, network, decoding.
    :param frame_ms: median time from image in hand to result.
    :param error: why it was not measured; '' where it was.
    """

    precision: str
    graph_ms: float = 0.0
    frame_ms: float = 0.0
    error: str = ''


@dataclass(frozen=True)
class LatencyTable:
    """Times by precision, the quantized one last, and a sentence; no rows without any."""

    rows: tuple[PrecisionLatency, ...]
    verdict: str

    def lines(self) -> list[str]:
        """Return lines to print."""
        if not self.rows:
            return [self.verdict]
        lines = [f'{"latency (ms)":14}{"graph":>9}{"frame":>9}']
        for row in self.rows:
            times = f'{row.graph_ms:9.3f}{row.frame_ms:9.3f}'
            lines.append(f'{row.precision:14}{f"  {row.error}" if row.error else times}')
        return [*lines, self.verdict]


def measure_latency(
    model: Path, quantized: Path, to: str, options: PipelineOptions, report: Reporter
) -> LatencyTable:
    """Measure both networks, other layers in fp16, on gray images; not without a GPU."""
    backend, reason = backends.choose_backend('auto')
    if backend.name == 'onnxruntime':
        return LatencyTable((), f'no GPU: latency not measured ({reason})')
    variants = [(name, model, name) for name in UNQUANTIZED]
    variants.append((f'{to} and fp16', quantized, 'fp16'))
    rows = []
    for name, path, precision in variants:
        report(f'measuring {name}')
        try:
            rows.append(_measure(name, path, precision, options, report))
        except TrtRosError as error:
            rows.append(PrecisionLatency(name, error=error.problem))
    return LatencyTable(tuple(rows), verdict(to, rows))


def _measure(
    name: str, path: Path, precision: str, options: PipelineOptions, report: Reporter
) -> PrecisionLatency:
    from trt_ros.runtime.gpu.measure import measure, open_frames

    build = BuildOptions(precision=precision, input_size=options.input_size)
    pipeline = open_frames(
        options, build, report=report, model_path=str(path), backend='auto', precision='auto'
    )
    with closing(pipeline):
        found = measure(pipeline, None, rounds=ROUNDS)
    return PrecisionLatency(
        name, found['graph_ms']['gpu']['p50'], found['host_ms']['frame']['p50']
    )


def verdict(to: str, rows: Sequence[PrecisionLatency]) -> str:
    """Return which precision to use, by the time on the GPU; `rows`: the quantized one last."""
    *others, quantized = rows
    measured = [row for row in others if not row.error]
    if quantized.error:
        return f'{to} cannot be used here: {quantized.error}'
    if not measured:
        return f'{to} alone could be measured'
    best = min(measured, key=lambda row: row.graph_ms)
    ratio = quantized.graph_ms / best.graph_ms
    if ratio > EQUAL:
        return f'{to} is {ratio:.2g} times slower than {best.precision} here: use {best.precision}'
    if ratio > 1 / EQUAL:
        return f'{to} is as fast as {best.precision} here: use {best.precision}'
    return f'{to} is {1 / ratio:.2g} times faster than {best.precision} here'
