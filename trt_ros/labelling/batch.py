"""Recordings of a run: found in folders, chosen, shared out, and reported."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
import json
import os
from pathlib import Path
from typing import Any

from trt_ros.errors import ParameterError, TrtRosError
from trt_ros.labelling.job import LabelReport
from trt_ros.labelling.provenance import changed_values
from trt_ros.labelling.task import LabelTask
from trt_ros.recording import is_recording, recordings_in
from trt_ros.regular_file import check_output_file, parsing, writing


def find_recordings(
    paths: Sequence[Path],
    *,
    recursive: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> list[tuple[Path, Path]]:
    """
    Return recordings and their paths below the folders that were named, in natural order.

    :param paths: recordings and folders of them.
    :param recursive: whether to look into the folders of folders, too.
    :param include: patterns of paths below a folder, of which one must match; () for all.
    :param exclude: patterns of which none may match.
    :raises ParameterError: when none is found, or one twice.
    """
    found = [(each, below) for path in paths for each, below in _in_folder(path, recursive)]
    chosen = [
        (path, below)
        for path, below in found
        if (not include or _matches(below, include)) and not _matches(below, exclude)
    ]
    names = dict[str, Path]()
    for path, _ in chosen:
        other = names.setdefault(
            os.path.abspath(path) if isinstance(path, Path) else str(path), path
        )
        if other is not path:
            raise ParameterError(
                f'Recording {path} is named twice, also as {other}.',
                remedy='Name it once, or leave one out with --exclude.',
            )
    if not chosen:
        raise ParameterError(
            f'No recordings are found in {", ".join(map(str, paths))}.',
            cause=f'None of {len(found)} is included, and not excluded.' if found else '',
            remedy='Correct the patterns.'
            if found
            else 'Set --recursive to look into their folders.',
        )
    return chosen


def _in_folder(path: Path, recursive: bool) -> Iterator[tuple[Path, Path]]:
    if path.is_dir() and not is_recording(path):
        yield from _walk(path, Path(), recursive)
    else:
        yield path, Path(path.name)


def _walk(folder: Path, below: Path, recursive: bool) -> Iterator[tuple[Path, Path]]:
    inside, folders = recordings_in(folder), list[Path]()
    if recursive:
        folders = [each for each in folder.iterdir() if each.is_dir() and not is_recording(each)]
    are_numbered = all(
        path.name.startswith(f'{folder.name}_{number}.') and not path.is_dir()
        for number, path in enumerate(inside)
    )
    if inside and not folders and are_numbered:
        # The recorder was killed before it wrote metadata.yaml.
        yield folder, below if below.name else Path(folder.name)
        return
    yield from ((each, below / each.name) for each in inside)
    for each in sorted(folders):
        yield from _walk(each, below / each.name, recursive)


def _matches(below: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(str(below), each) or fnmatch(below.name, each) for each in patterns)


def output_names(found: Sequence[tuple[Path, Path]]) -> list[Path]:
    """Return a file name per recording, below the folder of the outputs, all different."""
    names = [below.parent / _stem(path) for path, below in found]
    if len(set(names)) < len(names):
        # A URL has the path within its storage.
        full = [Path(getattr(path, 'path', path)).absolute() for path, _ in found]
        root = os.path.commonpath([each.parent for each in full])
        names = [
            each.relative_to(root).parent / _stem(path) for each, (path, _) in zip(full, found)
        ]
    counts = Counter(names)
    return [
        each.with_name(f'{path.name if counts[each] > 1 else each.name}.mcap')
        for each, (path, _) in zip(names, found)
    ]


def _stem(path: Path) -> str:
    return path.name if path.is_dir() else path.stem


class RunReport:
    """
    A file with one JSON object per recording of a run, in the order in which they end.

    Before them, it has the settings of the run and all its recordings.

    :param path: of a file, which is created or continued; None to write nothing.
    :ivar settings: those of the earlier runs, after entries().
    :raises ParameterError: when it cannot be read or written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.settings: dict[str, Any] = {}
        self._unwritten: list[dict[str, Any]] = []

    def begin(
        self, settings: Mapping[str, Any], tasks: Sequence[LabelTask], earlier: Mapping[str, Any]
    ) -> None:
        """Compare the settings of this run with what entries() found, or raise ParameterError."""
        assert self._path is not None
        check_output_file(self._path)
        difference = changed_values(self.settings, settings) if self.settings else ''
        if difference:
            raise ParameterError(
                f'Report {self._path} is of a run with other options.',
                cause=f'{difference}.',
                remedy='Use the options of that run, or another --report and another --output.',
            )
        first = {} if self.settings else {'settings': dict(settings)}
        new = [entry_of(task) for task in tasks if str(task.output) not in earlier]
        self._unwritten = [first | {'recordings': new}] if first or new else []

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the entries of each output in one, by its path; the last values count."""
        if self._path is None or not self._path.exists():
            return {}
        problem = f'Report {self._path} cannot be read.'
        with parsing(problem, 'Choose the file of --report of an earlier run.'):
            content = self._path.read_bytes()
            whole = content[: content.rfind(b'\n') + 1]
            if whole != content:  # A kill has cut the last line.
                os.truncate(self._path, len(whole))
            found: dict[str, dict[str, Any]] = {}
            for each in map(json.loads, whole.splitlines()):
                self.settings = each.get('settings', self.settings)
                for entry in each.get('recordings', [each]):
                    found[entry['output']] = found.get(entry['output'], {}) | entry
            return found

    def append(self, task: LabelTask, outcome: LabelReport | TrtRosError | None) -> None:
        """Write the outcome of a recording; None: it begins."""
        if self._path is None:
            return
        lines, entry = self._unwritten, entry_of(task)
        if isinstance(outcome, TrtRosError):
            entry |= {'status': 'failed', 'error': str(outcome)}
        elif outcome is None:
            entry |= {'status': 'begun', 'begun': True}
        else:
            entry |= {
                'status': 'damaged' if outcome.damage else 'done',
                'frames': outcome.resumed + outcome.frames,
                'dropped': dict(outcome.dropped),
                'non_finite': outcome.nonfinite,
                'error': str(outcome.damage or ''),
            }
        if outcome is not None or task.starts_over:
            lines = [*lines, entry]
        with writing(self._path, 'Choose another file.'), self._path.open('a') as file:
            file.write(''.join(f'{json.dumps(each)}\n' for each in lines))
        self._unwritten = []


def entry_of(task: LabelTask) -> dict[str, Any]:
    """Return what an entry of a report has before its outcome."""
    return {
        'recording': str(task.path),
        'output': str(task.output),
        'start': task.start,
        'end': task.end,
    }
