"""Opening of engines on a GPU, which `device: auto` chooses."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
import logging
import os
from pathlib import Path
import threading
from typing import Any

from trt_ros.cuda.device import open_gpu
from trt_ros.cuda.monitor import read_load
from trt_ros.cuda.share import has_shares
from trt_ros.driver import nvidia_driver
from trt_ros.engine.engine import engines_on
from trt_ros.engine.open import open_engine
from trt_ros.engine.options import BuildOptions
from trt_ros.model.bundle import NetworkFile
from trt_ros.progress import Reporter
from trt_ros.runtime.bundle import open_members
from trt_ros.runtime.gpu.bundle import TensorRTBundle
from trt_ros.runtime.gpu.profile import build_options_of_member, with_published_size
from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
from trt_ros.runtime.machine_options import LEAST_BUSY
from trt_ros.runtime.options import PipelineOptions, options_of

log = logging.getLogger('trt_ros.runtime')
_lock = threading.Lock()
_opening: Counter[int] = Counter()  # Pipelines that are being opened, by GPU.


@dataclass(frozen=True)
class GpuLoad:
    """
    Use of one GPU.

    :param device: CUDA device index.
    :param pipelines: number of pipelines of this process on it, open or being opened.
    :param utilization: percentage of the last second in which a kernel ran, of all processes.
    """

    device: int
    pipelines: int
    utilization: int
    free_nbytes: int

    def __str__(self) -> str:
        return (
            f'{self.pipelines} pipelines of this process, '
            f'utilization {self.utilization} %, {self.free_nbytes / 1e9:.1f} GB free'
        )


def gpu_loads() -> list[GpuLoad]:
    """Return the use of all GPUs, without a CUDA context; zeros where NVML cannot read it."""
    return [
        GpuLoad(gpu.index, engines_on(gpu.index) + _opening[gpu.index], *read_load(gpu.pci_bus_id))
        for gpu in nvidia_driver().gpus
    ]


def least_busy(loads: Sequence[GpuLoad]) -> GpuLoad:
    """
    Return the least busy GPU, of equally busy ones that with most free memory.

    A pipeline of this process counts as much as full utilization: those that are being opened, or
    whose node is not active yet, use nothing so far.
    """
    return min(
        loads,
        key=lambda load: (
            load.pipelines + round(load.utilization / 100, 1),
            -load.free_nbytes,
            load.device,
        ),
    )


@contextmanager
def reserved_device(device: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    """
    Yield the GPU of a pipeline and lines for the log; the body opens the pipeline.

    Pipelines that are opened at the same time spread over the GPUs.

    :param device: CUDA device index, or LEAST_BUSY.
    """
    with _lock:
        lines: tuple[str, ...] = ()
        if device == LEAST_BUSY:
            found = gpu_loads()
            # Without a GPU, opening device 0 reports why.
            device = least_busy(found).device if found else 0
            lines = tuple(
                f'device {load.device}{"" if load.device == device else " not"} chosen: {load}'
                for load in found
            )
        _opening[device] += 1
    try:
        yield device, lines
    finally:
        with _lock:
            _opening[device] -= 1


def open_tensor_runner(
    model: PipelineOptions | str | os.PathLike[str],
    build: BuildOptions | None = None,
    *,
    report: Reporter | None = None,
    use_graph: bool = True,
    **changes: Any,
) -> TensorRTRunner:
    """Open a network with TensorRT; build its engine the first time. The caller closes it."""
    options = options_of(model, changes)

    def open_one(own: PipelineOptions, build: BuildOptions | None) -> TensorRTRunner:
        with gpu.context:
            found = open_engine(
                own.model_path,
                with_published_size(build, Path(own.model_path).expanduser()),
                backend=own.backend,
                device=device,
                engine_cache_dir=own.engine_cache_dir,
                memory_if_unwritable=own.engine_in_memory,
                report=report,
            )
        # The open engine counts by itself from now on.
        return TensorRTRunner(
            gpu,
            found.engine,
            cache=found.runtime_cache,
            log_lines=found.log_lines if options.is_bundle else (*lines, *found.log_lines),
            options=own,
            use_graph=use_graph,
        )

    def open_member(own: PipelineOptions, file: NetworkFile) -> TensorRTRunner:
        return open_one(own, build_options_of_member(build or BuildOptions(), file))

    with reserved_device(options.device) as (device, lines), ExitStack() as undo:
        if bool(options.gpu_share) != has_shares(device) and (
            engines_on(device) or not options.gpu_share
        ):
            log.warning(
                'Of the pipelines of this process on GPU %s, some have a gpu_share and some do '
                'not: the latter run on all SMs, also on those of the shares.',
                device,
            )
        gpu = open_gpu(device, options.gpu_share)
        undo.callback(gpu.close)
        if options.is_bundle:
            network: TensorRTRunner = open_members(options, TensorRTBundle, open_member)
        else:
            network = open_one(options, build)
        undo.pop_all()
        return network
