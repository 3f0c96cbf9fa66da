"""ONNX in, plan out, in a child process that can be killed at any moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
import os
from pathlib import Path
from typing import IO, Any

from trt_ros.child import Child, memory_limit
from trt_ros.engine.build.config import refuse_unsupported
from trt_ros.engine.build.onnx_check import check_model_file
from trt_ros.engine.key import total_nbytes
from trt_ros.engine.options import BuildOptions
from trt_ros.progress import Reporter
from trt_ros.trt import Flavour


@dataclass(frozen=True)
class Built:
    """
    A plan in a nameless file in memory; close() gives it back.

    :param report: what was built, as the sidecar keeps it.
    :param timing_cache: the library's updated kernel times; b'' where it keeps none.
    """

    plan: IO[bytes]
    report: Mapping[str, Any]
    timing_cache: bytes

    def close(self) -> None:
        self.plan.close()


def build(
    onnx: Path,
    options: BuildOptions,
    flavour: Flavour,
    *,
    report: Reporter | None = None,
    timeout_seconds: float | None = None,
    device: int = 0,
    timing_cache: Path | None = None,
) -> Built:
    """
    Build an engine.

    :param report: told phases and percents on this thread, and asked whether to stop; both
        within a second whatever TensorRT does.
    :param device: the GPU to build on, where one is needed.
    :raises CancelledError: when `report` was cancelled; the child is dead by then.
    :raises TimeLimitError: when it took longer than `timeout_seconds`.
    :raises ModelError: when the model cannot be read, parsed or built, or takes too much memory.
    :raises ParameterError: when an option cannot be honoured.
    """
    refuse_unsupported(flavour, options)
    check_model_file(onnx)
    with _memory_file('plan') as plan, _memory_file('timing') as timing:
        child = Child(
            'trt_ros.engine.build.child:run_build',
            title=f'The build of {onnx}',
            remedy='Check the model with `trt-ros inspect`, allow more time, or lower '
            'optimization_level.',
            memory_nbytes=memory_limit(total_nbytes(onnx), base_nbytes=8 << 30, factor=16),
            pass_fds=(plan.fileno(), timing.fileno()),
            environment=_visible(device),
        )
        with closing(child):
            done = child.call(
                {
                    'onnx': str(onnx.absolute()),
                    'options': options.to_json(),
                    'flavour': flavour.name,
                    'plan_fd': plan.fileno(),
                    'timing_fd': timing.fileno(),
                    'timing_cache': timing_cache and str(timing_cache),
                },
                report=report or Reporter(),
                phase='starting the build',
                timeout_seconds=timeout_seconds,
            )
        timing.seek(0)
        plan.seek(0)
        return Built(os.fdopen(os.dup(plan.fileno()), 'rb'), done, timing.read())


@contextmanager
def _memory_file(name: str) -> Iterator[IO[bytes]]:
    with os.fdopen(os.memfd_create(f'trt_ros {name}'), 'w+b') as file:
        yield file


def _visible(device: int) -> dict[str, str]:
    """Return the environment in which GPU `device` is the first one."""
    visible = [name for name in os.environ.get('CUDA_VISIBLE_DEVICES', '').split(',') if name]
    if device < len(visible):
        return {'CUDA_VISIBLE_DEVICES': visible[device]}
    return {'CUDA_VISIBLE_DEVICES': str(device)} if device else {}
