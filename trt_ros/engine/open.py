"""Opening of engines: load a cached engine, build a missing one, report why a model is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
import json
import logging
import os
from pathlib import Path
import shlex
from typing import Any

from trt_ros.cuda.memory import measured
from trt_ros.driver import nvidia_driver
from trt_ros.engine import cache as caches
from trt_ros.engine import precision
from trt_ros.engine.builder.config import load_plugins
from trt_ros.engine.builder.parent import build
from trt_ros.engine.engine import Engine, load_engine, refuse_formats, refuse_other_tensors
from trt_ros.engine.files import check_trusted
from trt_ros.engine.options import BuildOptions, flag_of
from trt_ros.engine.plan import is_plan, read_plan_header
from trt_ros.engine.sidecar import read_sidecar, sidecar_path, tensors_of
from trt_ros.errors import ModelError, ParameterError, TrtRosError
from trt_ros.progress import Reporter
from trt_ros.regular_file import Blob, sha256_of_file
from trt_ros.trt import Library, load_trt, numbers

log = logging.getLogger('trt_ros.engine')


@dataclass(frozen=True)
class OpenedEngine:
    """
    A loaded engine and its origin; the caller of `open_engine` closes `engine`.

    :param runtime_cache: kernels that tensorrt_rtx compiles at run time; None for tensorrt.
    """

    engine: Engine
    runtime_cache: Blob | None
    sidecar: Mapping[str, Any]
    log_lines: tuple[str, ...]


def open_engine(
    model: Path | str,
    options: BuildOptions | None = None,
    *,
    backend: str = 'auto',
    device: int = 0,
    engine_cache_dir: Path | str = '',
    memory_if_unwritable: bool = False,
    report: Reporter | None = None,
) -> OpenedEngine:
    """
    Load the engine of a model on the current CUDA device; build it first if it is not cached.

    :param memory_if_unwritable: build in memory on each start if the cache cannot be written.
    :raises TrtRosError: a ParameterError, ModelError, BackendError or CancelledError.
    """
    path, options = Path(model).expanduser(), options or BuildOptions()
    report = report or Reporter()
    nvidia_driver().gpu(device)  # Fail before a build of minutes that could not be loaded.
    if is_plan(path):
        return open_plan(path, device, options)
    library = load_trt(backend)
    cache = caches.EngineCache(engine_cache_dir)
    for attempt in range(2):
        try:
            entry = cache.get_or_build(
                path, options, library, device=device, report=report, force=attempt > 0
            )
        except ParameterError as error:
            if not memory_if_unwritable or not isinstance(error.__cause__, OSError):
                raise
            log.warning('%s Building the engine in memory, for this process only.', error.problem)
            return _build_in_memory(path, options, library, device, report)
        try:
            engine = _load(entry.path, entry.sidecar, device)
            break
        except ModelError as error:
            if entry.build_reason:
                raise  # Just built: another build would not differ.
            log.warning('Rebuilding %s: %s', entry.path.name, error)
    origin = 'from the cache'
    if entry.build_reason:
        origin = f'built ({entry.build_reason}) in {entry.sidecar["build_seconds"]:.1f} s'
    return OpenedEngine(
        engine,
        caches.runtime_cache(library, entry.path, device),
        entry.sidecar,
        (f'engine {entry.path}, {origin}{_sharing(engine)}', *build_summary(entry.sidecar)),
    )


def build_summary(sidecar: Mapping[str, Any]) -> tuple[str, ...]:
    """Return log lines on the build: layer precisions, options without effect, DLA fallbacks."""
    lines = []
    precisions = _precisions(sidecar)
    if precisions:
        lines.append(f'layer precisions ({sidecar.get("layers_from", "")}): {precisions}')
    lines += [sidecar[name] for name in ('lowered', 'cut_nms', 'refitted') if sidecar.get(name)]
    budget_mib = sidecar.get('options', {}).get('weight_streaming_budget_mib')
    if budget_mib is not None:
        lines.append(f'weight streaming: at most {budget_mib} MiB of weights stay on the GPU')
    lines += [f'option without effect: {line}' for line in sidecar.get('ignored_options', ())]
    targets = {*(sidecar.get('options', {}).get('compute_capabilities') or ())} - {'current'}
    lines += precision.summary(
        sidecar.get('quantized') or {},
        sidecar.get('library', ''),
        numbers(sidecar.get('tensorrt', '')),
        is_checked=bool(targets or sidecar.get('gpu')),
    )
    lines += sidecar.get('advice') or ()
    if sidecar.get('compared') is False:
        lines.append(
            f'adopted, results not compared with those of {_onnx_of(sidecar)}: run trt-ros adopt '
            '--force on a machine with a GPU'
        )
    fallback = sidecar.get('dla_fallback')
    if fallback:
        lines.append(
            f'{len(fallback)} layers run on the GPU, not the DLA: {", ".join(fallback[:10])}. '
            'Export other operators, or leave out dla_core'
        )
    return tuple(lines)


def _precisions(sidecar: Mapping[str, Any]) -> str:
    counts = sidecar.get('layer_precisions') or {}
    return ', '.join(f'{count} {dtype}' for dtype, count in counts.items())


def diagnostics_of(sidecar: Mapping[str, Any]) -> dict[str, str]:
    """Return the diagnostics of an engine; its key as in the file name."""
    key, precisions = str(sidecar.get('key', ''))[:16], _precisions(sidecar)
    diagnostics = {'engine key': key, 'layer precisions': precisions}
    return {name: value for name, value in diagnostics.items() if value}


def _sharing(engine: Engine) -> str:
    """Return the end of a log line about an engine that others use, too."""
    return f', shared by {engine.users} pipelines of this process' if engine.users > 1 else ''


def _load(path: Path | bytes, sidecar: Mapping[str, Any], device: int) -> Engine:
    options = sidecar.get('options', {})
    budget_mib = options.get('weight_streaming_budget_mib')
    check_precision(sidecar, device)
    for plugin in options.get('plugins', ()):
        check_trusted(Path(plugin))
    if options.get('plugins'):
        load_plugins(load_trt(sidecar['library']), options['plugins'])
    engine = load_engine(
        path,
        device=device,
        metadata=sidecar.get('metadata', {}),
        trusted_code=bool(options.get('version_compatible')),
        dla_core=options.get('dla_core'),
        weight_budget_nbytes=None if budget_mib is None else budget_mib << 20,
        shared=not options.get('strip_weights'),  # Its weights come from a file that may change.
    )
    engine.diagnostics = diagnostics_of(sidecar)
    if options.get('strip_weights'):
        _refit(engine, Path(sidecar['onnx']['path']))
    return engine


def check_precision(sidecar: Mapping[str, Any], device: int) -> None:
    """Raise BackendError if tensorrt_rtx cannot run a quantized layer; tensorrt logs it."""
    quantized = sidecar.get('quantized') or {}
    if quantized:
        capability = nvidia_driver().gpu(device).compute_capability
        for line in precision.check_precisions(
            load_trt(sidecar['library']), capability, quantized
        ):
            log.warning('%s', line)


def _refit(engine: Engine, onnx: Path) -> None:
    """Load the weights into an engine that was built without them (strip_weights)."""
    trt, log_ = engine.library.trt, engine.library.log
    with log_.collect() as captured, measured(engine.account, 'engine'):
        refitter = trt.Refitter(engine.handle, log_)
        weights = trt.OnnxParserRefitter(refitter, log_)
        is_refitted = weights.refit_from_file(str(onnx)) and refitter.refit_cuda_engine()
    if not is_refitted:
        engine.close()
        raise ModelError(
            f'The weights of {onnx} cannot be loaded into the stripped engine.',
            cause='\n'.join(captured.errors),
            remedy='Rebuild the engine: trt-ros build --force MODEL.onnx',
        )


def _build_in_memory(
    path: Path, options: BuildOptions, library: Library, device: int, report: Reporter
) -> OpenedEngine:
    built = build(path, options, library, report=report, device=device)
    sidecar = {
        'library': library.name,
        'options': vars(options),
        'onnx': {'path': str(path.absolute())},
        **built.report,
    }
    with built.plan:
        engine = _load(built.plan.read(), sidecar, device)
    return OpenedEngine(engine, None, sidecar, ('engine built in memory', *build_summary(sidecar)))


def open_plan(path: Path, device: int, options: BuildOptions) -> OpenedEngine:
    """Load an engine file; raise ModelError if it cannot be loaded or is not its sidecar's."""
    check_trusted(path)
    has_sidecar = os.path.lexists(sidecar_path(path))
    if has_sidecar:
        check_trusted(sidecar_path(path))
    sidecar = read_sidecar(path) if has_sidecar else {}
    try:
        header = read_plan_header(path)
        if has_sidecar and sha256_of_file(path) != sidecar.get('plan_sha256'):
            raise ModelError(
                f'The engine {path} does not match its sidecar.', cause='The SHA-256 differs.'
            )
        _check_plugins(path, header.library, sidecar, options)
        engine = _load(path, {**sidecar, 'library': header.library}, device)
        if 'key' not in sidecar:  # Of another tool.
            try:
                refuse_formats(engine, path)
                if sidecar.get('compared') is False:
                    found, wanted = (*engine.inputs, *engine.outputs), tensors_of(sidecar)
                    refuse_other_tensors(path, found, _onnx_of(sidecar), sum(wanted, ()))
            except TrtRosError:
                engine.close()
                raise
    except ModelError as error:
        remedy = f'Rebuild it on this machine: {build_command(sidecar)}'
        raise ModelError(error.problem, cause=error.cause, remedy=remedy) from error
    return OpenedEngine(
        engine,
        _trusted(caches.runtime_cache(engine.library, path, device)),
        sidecar,
        (
            f'engine {path}, built by {header.library} {header.version_text}{_sharing(engine)}',
            *build_summary(sidecar),
            *ineffective_options(options, sidecar),
        ),
    )


def _check_plugins(
    path: Path, library: str, sidecar: Mapping[str, Any], options: BuildOptions
) -> None:
    """Check that the plugins of a sidecar are those that the user allows."""
    cause = 'Plugins are executable code, and the option plugins does not list this one.'
    remedy, allowed = 'Add it to the parameter plugins if you trust it.', options.plugins
    if library == 'tensorrt_rtx':
        cause, remedy, allowed = f'{library} has no plugins.', 'Rebuild it without plugins.', ()
    for each in sidecar.get('options', {}).get('plugins', ()):
        if each not in allowed:
            problem = f'The engine {path} needs the plugin library {each}.'
            raise ParameterError(problem, cause=cause, remedy=remedy)


def _trusted(runtime_cache: Blob | None) -> Blob | None:
    if runtime_cache is not None and os.path.lexists(runtime_cache.path):
        try:
            check_trusted(runtime_cache.path)
        except ParameterError as error:
            log.warning('Compiled kernels are not used. %s', error)
            return None
    return runtime_cache


def ineffective_options(options: BuildOptions, sidecar: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a log line per requested option that a prebuilt engine does not have."""
    built = sidecar.get('options', {})
    requested, default = (json.loads(each.to_json()) for each in (options, BuildOptions()))
    return tuple(
        f'option without effect: {name} {requested[name]}, the engine is already built'
        for name in requested
        if requested[name] not in (default[name], built.get(name))
    )


def _onnx_of(sidecar: Mapping[str, Any]) -> str:
    return str(sidecar.get('onnx', {}).get('path', 'MODEL.onnx'))


def _range_text(shapes: Mapping[str, Any]) -> str:
    ends = ('x'.join(map(str, shapes[key])) for key in ('low', 'best', 'high'))
    return f'{shapes["name"]}={":".join(ends)}'


def build_command(sidecar: Mapping[str, Any]) -> str:
    """Return the command that rebuilds the engine of a sidecar, which may be empty."""
    words = ['trt-ros', 'build', _onnx_of(sidecar)]
    default = json.loads(BuildOptions().to_json())
    for name, value in sidecar.get('options', {}).items():
        if name not in default or value == default[name]:  # Older releases had other options.
            continue
        if name == 'profiles':
            values = [','.join(map(_range_text, profile)) for profile in value]
        elif name == 'input_size':
            values = ['x'.join(map(str, value))]
        else:
            values = value if isinstance(value, list) else [str(value)]
        for each in values:
            words += [flag_of(name)] if isinstance(value, bool) else [flag_of(name), each]
    return shlex.join(words)
