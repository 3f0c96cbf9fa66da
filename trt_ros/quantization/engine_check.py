"""Comparison of the quantized network's engine with the original, on the GPU of this machine."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trt_ros.errors import BackendError, TrtRosError
from trt_ros.progress import Reporter
from trt_ros.quantization.frame_network import FrameNetwork
from trt_ros.quantization.result_agreement import Evaluation, ResultAgreement
from trt_ros.runtime.backends import choose_backend
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.options import PipelineOptions

ENGINE_DROP = 0.05  # By which an engine may agree less than the same file with ONNX Runtime.


@dataclass(frozen=True)
class EngineCheck:
    """
    Agreement of the engine's results with those of the original.

    :param agreement: None where the engine cannot be built or run.
    :param error: why there is no agreement.
    :param problem: in what the engine differs from the file, '' where it does not.
    """

    agreement: ResultAgreement | None
    error: str = ''
    problem: str = ''

    def raise_problem(self, output: Path) -> None:
        """
        Check that the engine computes what the file says.

        :raises BackendError: if it does not.
        """
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
    """
    Build the engine of a quantized file, its other layers in fp16, and compare its results.

    :param file_agreement: agreement of the file with ONNX Runtime.
    :returns: None on a machine without a GPU.
    """
    backend, _ = choose_backend('auto')
    if backend.name == 'onnxruntime':
        return None
    report('comparing the engine')
    options = replace(options, model_path=str(output), precision='fp16')
    try:
        runner = backend.open(options, report, 1)
        with FrameNetwork.of_runner(runner, fitted) as engine:
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
