"""The backends and their selection."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from trt_ros.errors import BackendError, ModelError, ParameterError
from trt_ros.progress import Reporter
from trt_ros.runtime.bundle import open_members
from trt_ros.runtime.options import PipelineOptions, ignored
from trt_ros.runtime.runner import Runner

#: Options that only apply to TensorRT.
FOR_GPUS = frozenset(
    (
        *('precision', 'dla_core', 'device', 'engine_in_memory', 'plugins', 'unified_memory'),
        *('gpu_wait', 'gpu_timeout', 'stream_priority', 'gpu_share', 'memory_budget_mb'),
        'contexts',
    )
)
#: Options that only apply to a model of an inference server.
FOR_SERVERS = frozenset(('remote_timeout', 'remote_ca_path', 'remote_token_path'))


@dataclass(frozen=True)
class Backend:
    """
    A library that runs networks.

    :param name: value of the `backend` parameter.
    :param title: name in log lines.
    :param missing: returns why it cannot be used on this machine, '' when it can; without heavy
        imports.
    :param open: opens the network of the options for a batch size.
    :param pipeline: makes the pipeline of that network, a ResolvedModel and the same batch size;
        it owns the network from then on.
    :param ignores: names of the options that have no effect with it.
    :param is_local: whether it runs the model files of this machine.
    """

    name: str
    title: str
    missing: Callable[[], str]
    open: Callable[[PipelineOptions, Reporter, int], Runner]
    pipeline: Callable[..., Any]
    ignores: frozenset[str] = frozenset()
    is_local: bool = True


def _pipeline(name: str) -> Callable[..., Any]:
    return lambda *args: resolve_name(name)(*args)


def _open_onnxruntime(options: PipelineOptions, report: Reporter, batch: int) -> Runner:
    from trt_ros.engine.plan import is_plan
    from trt_ros.runtime.cpu.bundle_runner import BundleRunner
    from trt_ros.runtime.cpu.checked_runner import CheckedRunner

    if is_plan(Path(options.model_path).expanduser()):
        raise ModelError(
            f'{options.model_path} is a TensorRT engine, which ONNX Runtime cannot run.',
            remedy='Use the ONNX file that it was built from, or run `trt-ros doctor` to see why '
            'TensorRT is not used.',
        )
    if options.is_bundle:
        return open_members(
            options, BundleRunner, lambda member, _: _open_onnxruntime(member, report, 1)
        )
    return CheckedRunner.open(
        options.model_path,
        threads=options.cpu_threads,
        report=report,
        engine_cache_dir=options.engine_cache_dir,
    )


def _tensorrt_missing(name: str) -> str:
    from trt_ros.driver import nvidia_driver
    from trt_ros.trt import installed

    return nvidia_driver().problem if installed(name) else f'{name} is not installed'


def _open_tensorrt(name: str, options: PipelineOptions, report: Reporter, batch: int) -> Runner:
    from trt_ros.runtime.gpu.open import open_tensor_runner
    from trt_ros.runtime.gpu.profile import build_options_of
    from trt_ros.runtime.gpu.split_runner import open_split

    build = build_options_of(options, batch)
    opened = partial(open_tensor_runner, options, build, report=report, backend=name)
    return open_split(options, report, opened) or opened()


def _open_triton(options: PipelineOptions, report: Reporter, batch: int) -> Runner:
    from trt_ros.runtime.remote.address import parse_address
    from trt_ros.runtime.remote.remote_runner import RemoteRunner

    report('connecting to the server')
    return RemoteRunner(
        parse_address(options.model_path),
        timeout_seconds=options.remote_timeout,
        ca_path=options.remote_ca_path,
        token_path=options.remote_token_path,
        in_flight=options.frames_in_flight or 1,
        report=report,
    )


# Fastest first: 'auto' takes the first that this machine can use.
BACKENDS: tuple[Backend, ...] = (
    *(
        Backend(
            name,
            title,
            partial(_tensorrt_missing, name),
            partial(_open_tensorrt, name),
            _pipeline('trt_ros.runtime.gpu.pipeline:GpuPipeline'),
            FOR_SERVERS | {'cpu_threads'},
        )
        for name, title in (('tensorrt', 'TensorRT'), ('tensorrt_rtx', 'TensorRT for RTX'))
    ),
    Backend(
        'onnxruntime',
        'ONNX Runtime on the CPU',
        lambda: '' if find_spec('onnxruntime') else 'onnxruntime is not installed',
        _open_onnxruntime,
        _pipeline('trt_ros.runtime.cpu.pipeline:CpuPipeline'),
        FOR_SERVERS | FOR_GPUS,
    ),
    Backend(
        'triton',
        'Triton or another inference server',
        str,  # Opening it reports a missing tritonclient.
        _open_triton,
        _pipeline('trt_ros.runtime.remote.pipeline:RemotePipeline'),
        FOR_GPUS | {'cpu_threads', 'engine_cache_dir'},
        is_local=False,
    ),
)


def cpu_backend() -> Backend:
    """Return the backend of the CPU, whose pipelines take any Runner."""
    return next(each for each in BACKENDS if each.name == 'onnxruntime')


def choose_backend(wanted: str, backends: tuple[Backend, ...] = BACKENDS) -> tuple[Backend, str]:
    """Return the backend of a name, or the best one for 'auto', and a log line; or raise."""
    if wanted == 'auto':
        reasons: list[str] = []
        for backend in (each for each in backends if each.is_local):
            if missing := backend.missing():
                reasons.append(f'no {backend.name}: {missing}')
                continue
            reason = '; '.join(reasons) or 'the fastest on this machine'
            return backend, f'backend {backend.name}: {backend.title} ({reason})'
        raise BackendError(
            'No backend can run a network on this machine.',
            cause='; '.join(reasons),
            remedy='pip install onnxruntime',
        )
    known = {backend.name: backend for backend in backends}
    if wanted not in known:
        raise ParameterError(
            f'The backend {wanted!r} does not exist.',
            remedy=f'Choose one of {", ".join(["auto", *known])}.',
        )
    backend = known[wanted]
    if reason := backend.missing():
        raise BackendError(
            f'The backend {wanted} cannot be used on this machine.',
            cause=reason,
            remedy='Follow the advice of `trt-ros doctor`, or set backend to auto.',
        )
    return backend, f'backend {backend.name}: {backend.title} (as requested)'


def open_network(
    options: PipelineOptions, report: Reporter, batch: int = 1
) -> tuple[Runner, Backend, tuple[str, ...]]:
    """Open the network of the options for a batch; return it, its backend and log lines."""
    if not options.model_path:
        raise ParameterError('model_path is empty.', remedy='Set model_path to an ONNX file.')
    backend, chosen = choose_backend('triton' if options.is_remote else options.backend)
    network = backend.open(options, report, batch)
    lines = (chosen, *ignored(options, backend.ignores, backend.title))
    return network, cpu_backend() if network.arrays_only else backend, lines
