"""
Engine cache on disk: `<cache>/<model>/<precision>/bs<batch>/<model>-<library>-<key>.engine`.

Each engine has a sidecar, `.engine.json`. An engine that does not match its sidecar is not used.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
import json
import logging
import os
from pathlib import Path
import re
from typing import Any

from trt_ros.driver import nvidia_driver
from trt_ros.engine.builder.model_file import check_model_file
from trt_ros.engine.builder.parent import BuildLog, Built, build
from trt_ros.engine.files import check_private, locked, make_private
from trt_ros.engine.key import OnnxFile, cache_key, machine
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.plan import read_plan_header
from trt_ros.engine.sidecar import SUFFIX, read_sidecar, sidecar_path, write_sidecar
from trt_ros.errors import ModelError, ParameterError
from trt_ros.progress import Reporter
from trt_ros.regular_file import PART, Blob, sha256_of, sha256_of_file, write_atomically
from trt_ros.trt import Library

#: Keys of a sidecar without which an engine is built again.
_USED = {
    *('key', 'library', 'tensorrt', 'plan_sha256', 'plan_nbytes'),
    *('build_seconds', 'options', 'onnx', 'parser_warnings'),
}
log = logging.getLogger('trt_ros.engine')


@dataclass(frozen=True)
class Entry:
    """An engine of the cache, with its sidecar; `build_reason`: why it was built, or ''."""

    path: Path
    sidecar: Mapping[str, Any]
    build_reason: str = ''


def default_cache_dir() -> Path:
    """Return the default engine cache, or raise ParameterError without a home folder."""
    base = os.environ.get('XDG_CACHE_HOME', '')
    try:
        return (Path(base) if Path(base).is_absolute() else Path.home() / '.cache') / 'trt_ros'
    except RuntimeError as error:
        raise ParameterError(
            'The default folder of the engine cache cannot be determined.',
            cause=str(error),
            remedy='Set engine_cache_dir or XDG_CACHE_HOME.',
        ) from error


def kernel_folder(engine_cache_dir: Path | str = '') -> Path | None:
    """Create and return the folder of compiled kernels in the engine cache, or None."""
    try:
        base = EngineCache(engine_cache_dir).root
        make_private(base / 'kernels', base)
        return base / 'kernels'
    except (ParameterError, OSError) as error:
        log.info('CUDA kernels are not cached and are compiled at each start. %s', error)
        return None


class EngineCache:
    """A folder of engines, by default `default_cache_dir()`, which several processes may use."""

    def __init__(self, root: Path | str = '') -> None:
        self.root = Path(root).expanduser().absolute() if str(root) else default_cache_dir()

    def get_or_build(
        self,
        onnx: Path,
        options: BuildOptions,
        library: Library,
        *,
        device: int = 0,
        report: Reporter | None = None,
        timeout_seconds: float | None = None,
        force: bool = False,
        build_log: BuildLog | None = None,
    ) -> Entry:
        """
        Return the engine of a model; build it if it is missing. Only one process builds it.

        :param report: progress and cancellation of the build.
        :param force: build even if the engine is cached.
        :raises ParameterError: if the cache is not secure or writable, or an option unsupported.
        :raises ModelError: if the model cannot be built.
        """
        report = report or Reporter()
        report('looking for the engine')
        check_model_file(onnx)
        model = OnnxFile.read(onnx)

        def key_of(file: OnnxFile) -> str:
            return cache_key(file, options, library, device)

        key = key_of(model)
        folder = self.root / _safe_name(onnx.stem) / options.precision
        try:
            make_private(folder, self.root)
            with locked(folder, report):
                _sweep(folder)
                reason = 'forced' if force else _miss_reason(folder, model, options, library)
                for path in [] if force else _engines(folder, key):
                    reason = self.problem(path, key=key)
                    if not reason:
                        return Entry(path, read_sidecar(path))
                    log.warning('Rebuilding %s: %s', path.name, reason)
                    remove(path)
                timing = self.timing_cache(library, device) if options.timing_cache else None
                built = build(
                    onnx,
                    options,
                    library,
                    report=report,
                    device=device,
                    timeout_seconds=timeout_seconds,
                    timing_cache=timing.path if timing else None,
                    build_log=build_log,
                    refit=self._refittable(folder, key_of)
                    if options.refit and not force
                    else None,
                )
                with built.plan:
                    sidecar = {
                        'key': key,
                        'built_at': datetime.now(timezone.utc).isoformat(timespec='seconds'),
                        'onnx': model.description(),
                        'options': asdict(options),
                        **machine(library, device),
                        **built.report,
                    }
                    return self._store(folder, model, built, sidecar, reason)
        except OSError as error:
            # An engine on a read-only disk, or one that belongs to root, can still be used.
            for path in [] if force else _engines(folder, key):
                if not self.problem(path, key=key):
                    return Entry(path, read_sidecar(path))
            raise ParameterError(
                f'The engine cache {self.root} cannot be written.',
                cause=str(error),
                remedy='Set engine_cache_dir to a writable folder, or set engine_in_memory.',
            ) from error

    def _refittable(
        self, folder: Path, key_of: Callable[[OnnxFile], str]
    ) -> Mapping[str, str] | None:
        """Return path and structure of the newest engine that differs in its model alone."""
        for path in reversed(_by_age(folder)):
            if self.problem(path):
                continue
            sidecar = read_sidecar(path)
            onnx = sidecar['onnx']
            file = OnnxFile(path, onnx['sha256'], 0, onnx.get('external', ()))
            if sidecar['key'] == key_of(file):
                return {'path': str(path), 'structure': sidecar.get('structure', '')}
        return None

    def _store(
        self, folder: Path, model: OnnxFile, built: Built, sidecar: dict[str, Any], reason: str
    ) -> Entry:
        """Write an engine and its sidecar."""
        if OnnxFile.read(model.path) != model:
            raise ModelError(
                f'The model {model.path} changed during the build.', remedy='Build it again.'
            )
        stem = f'{_safe_name(model.path.stem)}-{sidecar["library"]}{sidecar["tensorrt"]}'
        path = folder / f'bs{sidecar["batch"]}' / f'{stem}-{sidecar["key"][:16]}.engine'
        make_private(path.parent, self.root)
        sidecar['plan_sha256'], sidecar['plan_nbytes'] = sha256_of(built.plan), built.plan.tell()
        built.plan.seek(0)
        write_atomically(path, built.plan)
        try:
            write_sidecar(path, sidecar)
        except OSError:
            remove(path)  # Without its sidecar, it is never used.
            raise
        return Entry(path, sidecar, reason)

    def problem(self, path: Path, *, key: str = '') -> str:
        """Return why an entry must not be used, '' if it may; does not load the engine."""
        try:
            check_private(path, self.root)
            sidecar = read_sidecar(path)
            check_private(sidecar_path(path), self.root)
            header = read_plan_header(path)
            if not sidecar.keys() >= _USED:
                return 'its sidecar is incomplete'
            if key and sidecar['key'] != key:
                return 'its cache key differs'
            if header.library != sidecar['library'] or not sidecar['tensorrt'].startswith(
                header.version_text[: len(sidecar['tensorrt'])]
            ):
                return (
                    f'it was built by {header.library} {header.version_text}, its sidecar says '
                    f'{sidecar["library"]} {sidecar["tensorrt"]}'
                )
            if sha256_of_file(path) != sidecar['plan_sha256']:
                return 'its SHA-256 differs from the one in its sidecar'
        except (ModelError, ParameterError, OSError) as error:
            return str(error).replace('\n', ' ')
        return ''

    def entries(self) -> Iterator[Path]:
        """Yield the path of every engine, sorted."""
        yield from sorted(self.root.glob('*/*/bs*/*.engine'))

    def blobs(self) -> Iterator[Blob]:
        """Yield what is kept beside the engines: compiled kernels and kernel times."""
        for pattern in ('kernels/*.blob', '.timing/*.timing', '*/*/bs*/*.runtime'):
            yield from map(Blob, sorted(self.root.glob(pattern)))

    def timing_cache(self, library: Library, device: int) -> Blob | None:
        """Return the file of measured kernel times: tensorrt only, one per release and GPU."""
        if library.is_rtx:
            return None
        folder = self.root / '.timing'
        make_private(folder, self.root)
        gpu = _safe_name(nvidia_driver().gpu(device).name)
        return Blob(folder / f'{library.name}{library.version_text}-{gpu}.timing')


def runtime_cache(library: Library, engine: Path, device: int) -> Blob | None:
    """Return the file of an engine's compiled kernels: tensorrt_rtx, one per GPU and driver."""
    if not library.is_rtx:
        return None
    driver = nvidia_driver()
    tag = _safe_name(f'{driver.gpu(device).name}-{driver.version or driver.cuda_version}')
    return Blob(engine.with_name(f'{engine.name}.{tag}.runtime'))


def remove(path: Path) -> None:
    """Delete an engine, its sidecar and kernels; raise ParameterError for a folder."""
    for each in (path, sidecar_path(path), *path.parent.glob(f'{path.name}.*.runtime')):
        if each.is_dir() and not each.is_symlink():
            raise ParameterError(
                f'{each} is a folder, not a file of the engine cache.', remedy=f'Remove {each}.'
            )
        each.unlink(missing_ok=True)


def _engines(folder: Path, key: str) -> list[Path]:
    return sorted(folder.glob(f'bs*/*-{key[:16]}.engine'))


def _by_age(folder: Path) -> list[Path]:
    return sorted(folder.glob('bs*/*.engine'), key=lambda path: path.stat().st_mtime)


def _miss_reason(folder: Path, model: OnnxFile, options: BuildOptions, library: Library) -> str:
    """Return how the requested engine differs from the newest one of this model."""
    for other in _by_age(folder)[-1:]:
        try:
            sidecar = read_sidecar(other)
            built, requested = sidecar['options'], json.loads(options.to_json())
            changed = [name for name in requested if built.get(name) != requested[name]]
            if sidecar['onnx']['sha256'] != model.sha256:
                return 'the model has changed'
            if sidecar['tensorrt'] != library.version_text:
                return f'the cached engine was built by {sidecar["library"]} {sidecar["tensorrt"]}'
            if changed:
                return f'changed options: {", ".join(changed)}'
            return 'the cached engine belongs to another machine or data file'
        except (ModelError, KeyError, TypeError):
            pass
    return 'not built yet'


def _sweep(folder: Path) -> None:
    """Delete the leftovers of killed writers; call it only with the folder locked."""
    for pattern in (f'bs*/.*.engine.*{PART}', f'bs*/.*.engine{SUFFIX}.*{PART}'):
        for part in folder.glob(pattern):
            part.unlink(missing_ok=True)


def _safe_name(text: str) -> str:
    return re.sub(r'[^A-Za-z0-9._-]+', '_', text).lstrip('.') or 'model'
