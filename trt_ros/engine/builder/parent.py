"""Engine builds from ONNX in a child process that can be killed at any time."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
import logging
import os
from pathlib import Path
from typing import IO, Any, NamedTuple

from trt_ros.child import Child, memory_limit
from trt_ros.engine.builder.config import refuse_unsupported
from trt_ros.engine.builder.model_file import check_model_file
from trt_ros.engine.key import total_nbytes
from trt_ros.engine.options import BuildOptions
from trt_ros.progress import Reporter
from trt_ros.trt import Library

#: Memory limit of a build, to which 16 bytes are added per byte of the model.
BASE_NBYTES = 8 << 30


class BuildLog(NamedTuple):
    """Destination of TensorRT's own log of a build; `verbose` adds fusions and kernels."""

    file: IO[bytes]
    verbose: bool


class Built(NamedTuple):
    """A built plan in an anonymous memory file, which the caller closes, and its report."""

    plan: IO[bytes]
    report: Mapping[str, Any]


def build(
    onnx: Path,
    options: BuildOptions,
    library: Library,
    *,
    report: Reporter | None = None,
    timeout_seconds: float | None = None,
    device: int = 0,
    timing_cache: Path | None = None,
    build_log: BuildLog | None = None,
    refit: Mapping[str, str] | None = None,
) -> Built:
    """
    Build an engine.

    :param report: called on this thread with phases and percentages and to check for
        cancellation, both within a second whatever TensorRT does.
    :param timing_cache: file of measured kernel times to start from, and to keep them in.
    :param build_log: destination of TensorRT's own log; None for the logger of the library at
        debug level, if that is enabled.
    :param refit: `path` and `structure` of an engine whose weights may be replaced instead.
    :raises CancelledError: if `report` was cancelled; the child process has exited by then.
    :raises TrtRosError: a TimeLimitError, ModelError or ParameterError.
    """
    refuse_unsupported(library, options)
    check_model_file(onnx)
    with _memory_file('plan') as plan, _debug_log(library, build_log) as log_to:
        log_fds = () if log_to is None else (log_to.file.fileno(),)
        child = Child(
            'trt_ros.engine.builder.child:run_build',
            title=f'The build of {onnx}',
            remedy='Check the model with `trt-ros inspect`, increase the time limit, or reduce '
            'optimization_level.',
            memory_nbytes=memory_limit(total_nbytes(onnx), base_nbytes=BASE_NBYTES, factor=16),
            pass_fds=(plan.fileno(), *log_fds),
            environment=_first_gpu(device),
        )
        with closing(child):
            done = child.call(
                {
                    'onnx': str(onnx.absolute()),
                    'options': options.to_json(),
                    'library': library.name,
                    'plan_fd': plan.fileno(),
                    'timing_cache': timing_cache and str(timing_cache),
                    'refit': refit,
                    'log_fd': log_to and log_to.file.fileno(),
                    'log_verbose': bool(log_to and log_to.verbose),
                },
                report=report or Reporter(),
                phase='starting the build',
                timeout_seconds=timeout_seconds,
            )
        plan.seek(0)
        return Built(os.fdopen(os.dup(plan.fileno()), 'rb'), done)


def _memory_file(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(f'trt_ros {name}'), 'w+b')


@contextmanager
def _debug_log(library: Library, given: BuildLog | None) -> Iterator[BuildLog | None]:
    out = logging.getLogger(f'trt_ros.{library.name}')
    if given is not None or not out.isEnabledFor(logging.DEBUG):
        yield given
        return
    with _memory_file('log') as file:
        try:
            yield BuildLog(file, verbose=True)
        finally:  # Also of builds that failed.
            file.seek(0)
            for line in file.read().decode(errors='replace').splitlines():
                out.debug('%s', line)


def _first_gpu(device: int) -> dict[str, str]:
    """Return environment variables that make GPU `device` the first visible one."""
    visible = [name for name in os.environ.get('CUDA_VISIBLE_DEVICES', '').split(',') if name]
    if device < len(visible):
        return {'CUDA_VISIBLE_DEVICES': visible[device]}
    return {'CUDA_VISIBLE_DEVICES': str(device)} if device else {}
