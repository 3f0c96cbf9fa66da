"""The engines on this machine and the files beside them: list, verify, prune."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trt_ros.cli._flags import add_flags, add_option_flags, refuse_without_effect
from trt_ros.errors import BackendError, ModelError, counted, printable
from trt_ros.progress import Reporter

if TYPE_CHECKING:
    from trt_ros.engine.cache import EngineCache


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        'action',
        choices=('list', 'verify', 'prune'),
        help='prune removes damaged files and engines of a TensorRT that is not installed',
    )
    add_option_flags(parser, ('engine_cache_dir',))
    add_flags(
        parser,
        ('--all', 'prune: remove every engine'),
        ('--dry-run', 'prune: only list the engines to remove'),
        ('--json', 'print as JSON'),
    )


def run(args: Namespace) -> int:
    """List, verify or remove engines; 1 when an engine or a file beside them is damaged."""
    from trt_ros.engine.cache import EngineCache, remove
    from trt_ros.engine.files import locked

    prunes = args.action == 'prune'
    refuse_without_effect(
        ('--all', args.all, prunes, 'prune'), ('--dry-run', args.dry_run, prunes, 'prune')
    )
    cache = EngineCache(args.engine_cache_dir)
    rows = [_row(cache, path, verify=args.action != 'list') for path in cache.entries()]
    if args.action == 'prune':
        rows = [row for row in rows if args.all or row['problem'] or not row['installed']]
        for row in rows if not args.dry_run else []:
            path = Path(row['engine'])
            with locked(path.parents[1], Reporter()):
                remove(path)
    blobs = cache.blobs() if args.action != 'list' else ()  # Compiled kernels and kernel times.
    problems = ((str(blob.path), blob.problem()) for blob in blobs)
    damaged = [{'file': file, 'problem': problem} for file, problem in problems if problem]
    if args.action == 'prune' and not args.dry_run:
        for row in damaged:
            Path(row['file']).unlink(missing_ok=True)
    if args.json:
        print(json.dumps(rows + damaged, indent=1))
    else:
        for row in rows:
            print(printable(_line(row)))
        for row in damaged:
            print(printable(f'{row["file"]}: {row["problem"]}'))
        size = sum(row['nbytes'] for row in rows) / 2**20
        what = {'list': '', 'verify': '', 'prune': ' to remove' if args.dry_run else ' removed'}
        summary = (
            f'{counted(len(rows), "engine")}{what[args.action]}, {size:.1f} MiB, in {cache.root}'
        )
        print(printable(summary))
    has_problem = bool(damaged) or any(row['problem'] for row in rows)
    return 1 if args.action == 'verify' and has_problem else 0


def _row(cache: EngineCache, path: Path, *, verify: bool) -> dict[str, Any]:
    from trt_ros.engine.sidecar import read_sidecar

    try:
        sidecar = read_sidecar(path)
        problem = ''
    except ModelError as error:
        sidecar, problem = {}, str(error).replace('\n', ' ')
    model, precision, batch = path.relative_to(cache.root).parts[:3]
    library, release = sidecar.get('library', ''), sidecar.get('tensorrt', '')
    return {
        'engine': str(path),
        'model': model,
        'precision': precision,
        'batch': int(batch[2:]),
        'library': library,
        'tensorrt': release,
        'installed': _installed(library, release),
        'gpu': (sidecar.get('gpu') or {}).get('name'),
        'built_at': sidecar.get('built_at'),
        'nbytes': path.stat().st_size,
        'problem': problem or (cache.problem(path) if verify else ''),
    }


def _installed(library: str, release: str) -> bool:
    from trt_ros.trt import LIBRARIES, load_trt

    try:
        return library in LIBRARIES and load_trt(library).version_text == release
    except BackendError:
        return False


def _line(row: dict[str, Any]) -> str:
    if row['problem']:
        return f'{row["engine"]}: {row["problem"]}'
    here = '' if row['installed'] else ', not installed'
    return (
        f'{row["engine"]}: {row["nbytes"] / 2**20:.1f} MiB, '
        f'{row["library"]} {row["tensorrt"]}{here}, {row["built_at"]}'
    )
