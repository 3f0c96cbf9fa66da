"""From a model file to an engine that is loaded: found, built, or refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json
import logging
from pathlib import Path
import shlex
from typing import Any

from trt_ros.driver import nvidia_driver
from trt_ros.engine import cache as caches
from trt_ros.engine.build.config import load_plugins
from trt_ros.engine.build.parent import build
from trt_ros.engine.engine import Engine, load_engine
from trt_ros.engine.files import sha256_of_file
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.plan import is_plan, read_plan_header
from trt_ros.errors import ModelError, ParameterError
from trt_ros.progress import Reporter
from trt_ros.trt import Flavour, load_trt

log = logging.getLogger('trt_ros.engine')


@dataclass(frozen=True)
class OpenedEngine:
    """
    A loaded engine and where it came from; whoever opened it closes `engine`.

    :param runtime_cache: where tensorrt_rtx's compiled kernels are kept; None where it has none.
    :param sidecar: what is known of the build; empty for an engine that came without.
    :param log_lines: lines for the log.
    """

    engine: Engine
    runtime_cache: caches.Blob | None
    sidecar: Mapping[str, Any]
    log_lines: tuple[str, ...]


def open_engine(
    model: Path | str,
    options: BuildOptions | None = None,
    *,
    backend: str = 'auto',
    device: int = 0,
    cache_dir: Path | str = '',
    memory_if_unwritable: bool = False,
    report: Reporter | None = None,
    timeout_seconds: float | None = None,
) -> OpenedEngine:
    """
    Load the engine of a model on the current CUDA device, building it first where there is none.

    :param model: an ONNX file, or an engine.
    :param backend: 'tensorrt', 'tensorrt_rtx' or 'auto'.
    :param device: which GPU; the caller has made it the current one.
    :param memory_if_unwritable: where the cache cannot be written, build in memory, each time.
    :raises TrtRosError: a ParameterError, ModelError, BackendError or CancelledError.
    """
    path, options = Path(model).expanduser(), options or BuildOptions()
    report = report or Reporter()
    nvidia_driver().gpu(device)  # Before minutes of building what could not be loaded.
    if is_plan(path):
        return open_plan(path, device, options)
    flavour = load_trt(backend)
    cache = caches.EngineCache(cache_dir)
    for attempt in range(2):
        try:
            entry = cache.get_or_build(
                path,
                options,
                flavour,
                device=device,
                report=report,
                timeout_seconds=timeout_seconds,
                force=attempt > 0,
            )
        except ParameterError as error:
            if not memory_if_unwritable or not isinstance(error.__cause__, OSError):
                raise
            log.warning('%s Building in memory, for this process only.', error.problem)
            return _build_in_memory(path, options, flavour, device, report, timeout_seconds)
        try:
            engine = _load(entry.path, entry.sidecar)
            break
        except ModelError as error:
            if entry.build_reason:
                raise  # Fresh from the builder: another build would not differ.
            log.warning('Rebuilding %s: %s', entry.path.name, error)
    how = (
        f'built ({entry.build_reason}) in {entry.sidecar["build_seconds"]:.1f} s'
        if (entry.build_reason)
        else 'from the cache'
    )
    return OpenedEngine(
        engine,
        caches.runtime_cache(flavour, entry.path, device),
        entry.sidecar,
        (f'engine {entry.path}, {how}', *build_summary(entry.sidecar)),
    )


def build_summary(sidecar: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what was really built, a line each: precisions, options without effect, fallbacks."""
    lines = []
    precisions = _precisions(sidecar)
    if precisions:
        lines.append(f'layers of the {sidecar["layers_from"]}: {precisions}')
    lines += [sidecar[name] for name in ('lowered', 'cut_nms') if sidecar.get(name)]
    lines += [f'option without effect: {line}' for line in sidecar.get('ignored_options', ())]
    fallback = sidecar.get('dla_fallback')
    if fallback:
        lines.append(f'{len(fallback)} layers on the GPU, not the DLA: {", ".join(fallback[:10])}')
    return tuple(lines)


def _precisions(sidecar: Mapping[str, Any]) -> str:
    counts = sidecar.get('layer_precisions') or {}
    return ', '.join(f'{count} {dtype}' for dtype, count in counts.items())


def diagnostics_of(sidecar: Mapping[str, Any]) -> dict[str, str]:
    """Return what is worth showing of it all the time; its key as in the file's name."""
    diagnostics = {
        'engine key': str(sidecar.get('key', ''))[:16],
        'layer precisions': _precisions(sidecar),
    }
    return {name: value for name, value in diagnostics.items() if value}


def _load(path: Path | bytes, sidecar: Mapping[str, Any]) -> Engine:
    options = sidecar.get('options', {})
    if options.get('plugins'):
        load_plugins(load_trt(sidecar['flavour']), options['plugins'])
    engine = load_engine(
        path,
        metadata=sidecar.get('metadata', {}),
        trusted_code=bool(options.get('version_compatible')),
        dla_core=options.get('dla_core'),
    )
    engine.diagnostics = diagnostics_of(sidecar)
    if options.get('strip_weights'):
        _refit(engine, Path(sidecar['onnx']['path']))
    return engine


def _refit(engine: Engine, onnx: Path) -> None:
    """Put the weights back into an engine that was built without them."""
    trt, log_ = engine.flavour.trt, engine.flavour.log
    with log_.collect() as captured:
        refitter = trt.Refitter(engine.handle, log_)
        weights = trt.OnnxParserRefitter(refitter, log_)
        done = weights.refit_from_file(str(onnx)) and refitter.refit_cuda_engine()
    if not done:
        engine.close()
        raise ModelError(
            f'The stripped engine cannot take its weights from {onnx}.',
            cause='\n'.join(captured.errors),
            remedy='Build it again.',
        )


def _build_in_memory(
    path: Path,
    options: BuildOptions,
    flavour: Flavour,
    device: int,
    report: Reporter,
    timeout_seconds: float | None,
) -> OpenedEngine:
    built = build(
        path, options, flavour, report=report, device=device, timeout_seconds=timeout_seconds
    )
    try:
        sidecar = {
            'flavour': flavour.name,
            'options': vars(options),
            'onnx': {'path': str(path.absolute())},
            **built.report,
        }
        engine = _load(built.plan.read(), sidecar)
    finally:
        built.close()
    return OpenedEngine(engine, None, sidecar, ('engine built in memory', *build_summary(sidecar)))


def open_plan(path: Path, device: int, options: BuildOptions) -> OpenedEngine:
    """Load an engine given as such; its sidecar, where there is one, must be its own."""
    has_sidecar = caches.sidecar_path(path).exists()
    sidecar = caches.read_sidecar(path) if has_sidecar else {}
    try:
        header = read_plan_header(path)
        if has_sidecar and sha256_of_file(path) != sidecar.get('plan_sha256'):
            raise ModelError(f'{path} is not the engine that its sidecar describes.')
        engine = _load(path, sidecar)
    except ModelError as error:
        raise ModelError(error.problem, cause=error.cause, remedy=_rebuild(sidecar)) from error
    return OpenedEngine(
        engine,
        caches.runtime_cache(engine.flavour, path, device),
        sidecar,
        (
            f'engine {path}, of {header.flavour} {header.version_text}',
            *build_summary(sidecar),
            *ineffective_options(options, sidecar),
        ),
    )


def ineffective_options(options: BuildOptions, sidecar: Mapping[str, Any]) -> tuple[str, ...]:
    """Name what was asked of an engine that is built already, and is not so as far as known."""
    have = sidecar.get('options', {})
    wanted, plain = (json.loads(each.to_json()) for each in (options, BuildOptions()))
    return tuple(
        f'option without effect: {name} {wanted[name]}, the engine is built already'
        for name in wanted
        if wanted[name] not in (plain[name], have.get(name))
    )


def _rebuild(sidecar: Mapping[str, Any]) -> str:
    return f'Build it here: {build_command(sidecar)}'


def build_command(sidecar: Mapping[str, Any]) -> str:
    """Give the command that builds such an engine once more, of a sidecar or of nothing."""
    words = ['trt-ros', 'build', sidecar.get('onnx', {}).get('path', 'MODEL.onnx')]
    plain = json.loads(BuildOptions().to_json())
    for name, value in sidecar.get('options', {}).items():
        if name not in plain or value == plain[name]:  # Older releases had other options.
            continue
        flag = f'--{name.replace("_", "-")}'
        if name == 'timing_cache':
            words.append('--no-timing-cache')
        elif name == 'profiles':
            for profile in value:
                words += [
                    '--profile',
                    ','.join(
                        f'{each["name"]}='
                        + ':'.join(
                            'x'.join(map(str, each[key])) for key in ('low', 'best', 'high')
                        )
                        for each in profile
                    ),
                ]
        elif name == 'input_size':
            words += [flag, 'x'.join(map(str, value))]
        elif name in ('plugins', 'compute_capabilities'):
            each_flag = {'plugins': '--plugin'}.get(name, '--compute-capability')
            words += [word for each in value for word in (each_flag, each)]
        else:
            words += [flag] if value is True else [flag, str(value)]
    return shlex.join(words)
