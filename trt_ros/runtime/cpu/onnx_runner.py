"""ONNX Runtime on the CPU, the backend of every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
import json
import os
from pathlib import Path
import re
import statistics
from tempfile import TemporaryDirectory
import time
from typing import Any

import numpy as np

from trt_ros.engine.builder.model_file import check_model_file, has_fp8
from trt_ros.errors import BackendError, ClosedError, MemoryLimitError, ModelError, TrtRosError
from trt_ros.runtime.runner import Runner, check_inputs, tensor_specs
from trt_ros.tensors import INTEGERS, Arrays

DTYPES = {
    **{'tensor(float)': 'float32', 'tensor(double)': 'float64', 'tensor(string)': 'object'},
    **{f'tensor({name})': name for name in ('float16', 'bool', *INTEGERS)},
}
# Pattern of an ONNX Runtime message, the problem, and the remedy; the first match counts.
KNOWN_FAILURES = (
    (
        r'external (data|initializer)|cannot get file size',
        'The external weights of {path} are missing or truncated.',
        'Copy the complete external data file (often NAME.onnx.data) beside the model.',
    ),
    (
        r'EfficientNMS_TRT|BatchedNMS',
        'ONNX Runtime cannot run the NMS of {path}, which is a TensorRT plugin.',
        'Export without NMS, or run it on a GPU, where TensorRT runs it or trt_ros cuts it off.',
    ),
    (
        r'implementation for ConvInteger',
        'ONNX Runtime cannot run convolutions that are quantized to int8 dynamically, '
        'as in {path}.',
        'Quantize the float model statically in Q/DQ format (onnxruntime.quantization: '
        'quantize_static with quant_format=QuantFormat.QDQ), which TensorRT builds, too; or '
        'dynamically with weight_type=QuantType.QUInt8.',
    ),
    (
        r'not a registered function/op|No Op registered|NOT_IMPLEMENTED',
        'ONNX Runtime cannot run an operator of {path}.',
        'Export without custom operators, or update with `pip install -U onnxruntime`.',
    ),
    (
        r'Unsupported model IR version|Opset \d+ is under development',
        '{path} is newer than this ONNX Runtime.',
        '`pip install -U onnxruntime`, or export with a lower opset.',
    ),
    (
        r'INVALID_PROTOBUF|No graph was found',
        '{path} is not an ONNX model, or is truncated.',
        'Export or download it again, and compare its size with the original.',
    ),
)


OUT_OF_MEMORY = re.compile(r'bad.?alloc|Failed to allocate memory|smaller than requested bytes')
# Slower networks use all CPUs: measuring fewer would take long and seldom help.
MEASURED_SECONDS = 0.1
TIMED_RUNS = 5


def _run_seconds(session: Any, tensors: Arrays) -> float:
    """Return the median time of a run, or a first time above MEASURED_SECONDS."""
    times = []
    for _ in range(1 + TIMED_RUNS):
        began = time.perf_counter()
        session.run(None, tensors)
        times.append(time.perf_counter() - began)
        if times[0] > MEASURED_SECONDS:
            return times[0]
    return statistics.median(times[1:])  # The first one allocates.


class OnnxRuntimeRunner(Runner):
    """
    An ONNX file on the CPU. Owns its session; the arrays it returns belong to the caller.

    :param open_session: opens another session with a number of threads, for `tune_threads`;
        None keeps the session.
    """

    backend = 'onnxruntime'

    def __init__(
        self, session: Any, path: Path, open_session: Callable[[int], Any] | None = None
    ) -> None:
        self.inputs = tensor_specs(session.get_inputs(), 'type', DTYPES, 'input', path)
        self.outputs = tensor_specs(session.get_outputs(), 'type', DTYPES, 'output', path)
        self.metadata: Mapping[str, str] = dict(session.get_modelmeta().custom_metadata_map)
        self._session, self._path, self._open_session = session, path, open_session
        self._names = [spec.name for spec in self.outputs]

    @classmethod
    def open(
        cls, model_path: str | Path, *, threads: int = 0, exact_qdq: bool = False
    ) -> OnnxRuntimeRunner:
        """
        Load a model.

        :param threads: threads of a run; 0 uses as many as this process has CPUs, until
            `tune_threads` finds that fewer are enough.
        :param exact_qdq: compute quantized layers in float between their Q/DQ nodes, as TensorRT
            rounds, instead of with int8 kernels, which saturate on some CPUs.
        :raises BackendError: when onnxruntime is not installed.
        :raises ModelError: when the file cannot be read, is not ONNX, or cannot be run here.
        """
        path = Path(model_path).expanduser()
        check_model_file(path)
        open_session = partial(_open_session, load_onnxruntime(), path, exact_qdq=exact_qdq)
        # ONNX Runtime's default ignores a restricted CPU set and pins a thread to each CPU.
        session = open_session(threads or len(os.sched_getaffinity(0)))
        try:
            return cls(session, path, None if threads else open_session)
        except UnicodeDecodeError as error:
            raise ModelError(
                f'Names or metadata of {path} are not UTF-8.',
                cause=str(error),
                remedy='Export or copy the model again.',
            ) from error

    def tune_threads(
        self, tensors: Arrays, run_seconds: Callable[[Any, Arrays], float] = _run_seconds
    ) -> tuple[str, ...]:
        """
        Use the fewest threads that run `tensors` in about the time that all CPUs take.

        A small network gains nothing from the last threads, and camera and DDS need CPUs, too.

        :param run_seconds: measures a run of a session.
        :returns: lines for the log.
        """
        if self._session is None or self._open_session is None:
            return ()
        count = self._session.get_session_options().intra_op_num_threads
        if count == 1:
            return ()
        fastest = seconds = run_seconds(self._session, tensors)
        measured = [f'{count}: {1e3 * seconds:.3g} ms']
        while count > 1 and seconds <= MEASURED_SECONDS:
            session = self._open_session(count // 2)
            seconds = run_seconds(session, tensors)
            measured.append(f'{count // 2}: {1e3 * seconds:.3g} ms')
            if seconds > 1.1 * fastest:
                break
            self._session, fastest, count = session, min(fastest, seconds), count // 2
        return (f'CPU threads: {count} (median run with {"; with ".join(measured)})',)

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        """Run the network once; see Runner.infer. The arrays stay valid."""
        session = self._session  # Another thread may close the runner.
        if session is None:
            raise ClosedError(f'The runner of {self._path}')
        try:
            return dict(zip(self._names, session.run(self._names, tensors)))
        except Exception as error:
            check_inputs(self.inputs, tensors)  # Only now: it takes as long as small networks.
            _raise_out_of_memory(error, self._path)
            shapes = ', '.join(f'{name} {array.shape}' for name, array in tensors.items())
            raise ModelError(
                f'ONNX Runtime could not run {self._path} on {shapes}.',
                cause=_brief(error),
                remedy='Give the network sizes and values that it can take: of images, a dynamic '
                'size is set by input_size (detectors want multiples of 32).',
            ) from error

    def close(self) -> None:
        self._session = None


def operator_times(path: Path, tensors: Arrays, rounds: int) -> dict[str, float]:
    """Return ms per run by 'operator name' of ONNX Runtime; fused layers are missing."""
    totals: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        session = _open_session(
            load_onnxruntime(), path, len(os.sched_getaffinity(0)), profile=f'{folder}/run'
        )
        for _ in range(1 + rounds):
            session.run(None, tensors)
        events = json.loads(Path(session.end_profiling()).read_text())
    runs = 0
    for event in events:
        runs += event['name'] == 'model_run'
        # The first run is the first event of its kind, and its layers precede it.
        if runs and event['name'].endswith('_kernel_time'):
            layer = event['name'].removesuffix('_kernel_time')
            name = f'{event["args"]["op_name"]} {layer}'
            totals[name] = totals.get(name, 0.0) + event['dur'] / 1e3
    return {name: total / rounds for name, total in totals.items()}


def _open_session(
    onnxruntime: Any, path: Path, threads: int, *, exact_qdq: bool = False, profile: str = ''
) -> Any:
    options = onnxruntime.SessionOptions()
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    options.log_severity_level = 4  # Errors are raised as exceptions; its warnings help no user.
    options.intra_op_num_threads = threads
    # A spinning thread takes its CPU from camera and DDS between frames, and within a run on a
    # busy machine from the very thread that it waits for.
    options.add_session_config_entry('session.intra_op.allow_spinning', '0')
    disabled = []
    if exact_qdq or has_fp8(path):
        # ONNX Runtime 1.23 fuses fp8 into kernels of int8, whose types it then refuses, and
        # removes a Relu before fp8, as if a zero point of 0 were the smallest value.
        options.add_session_config_entry('session.disable_quant_qdq', '1')
        disabled = ['ReluQuantRewrite']
    try:
        return onnxruntime.InferenceSession(
            str(path), options, providers=['CPUExecutionProvider'], disabled_optimizers=disabled
        )
    except Exception as error:
        raise _explain(error, path) from error


def load_onnxruntime() -> Any:
    """Import ONNX Runtime; raise BackendError if it is not installed."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        if error.name != 'onnxruntime':
            raise  # Installed but broken: its own message beats ours.
        raise BackendError(
            'ONNX Runtime is not installed.', remedy='pip install onnxruntime'
        ) from error
    return onnxruntime


def _explain(error: Exception, path: Path) -> TrtRosError:
    _raise_out_of_memory(error, path)
    text = str(error)
    for pattern, problem, remedy in KNOWN_FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return ModelError(problem.format(path=path), cause=_brief(error), remedy=remedy)
    return ModelError(
        f'ONNX Runtime cannot load {path}.',
        cause=_brief(error),
        remedy='Check it with `trt-ros inspect`; export it again, with another opset.',
    )


def _raise_out_of_memory(error: Exception, path: Path) -> None:
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)):
        raise MemoryLimitError(
            f'Out of memory for {path}.',
            cause=_brief(error),
            remedy='Choose a smaller input size, or free memory.',
        ) from error


def _brief(error: Exception) -> str:
    """Return the message without prefixes such as '[ONNXRuntimeError] : 1 : FAIL : ..'."""
    text = re.sub(r'^\[ONNXRuntimeError\] : \d+ : \w+ : ', '', str(error))
    text = re.sub(r'^Load model from .*? failed:', '', text, flags=re.DOTALL)
    text = re.sub(r'^/\S+:\d+ .*?\) (?=[A-Z])', '', text)  # Source line and signature.
    return text.strip() or type(error).__name__
