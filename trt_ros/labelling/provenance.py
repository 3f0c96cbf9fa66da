"""Provenance of results: the model, versions, options and thresholds."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cache
import hashlib
from importlib.metadata import PackageNotFoundError, version
import json
from pathlib import Path
from typing import Any

from trt_ros.engine.download import local_model
from trt_ros.engine.key import external_names
from trt_ros.errors import ParameterError
from trt_ros.labelling.task import LabelTask
from trt_ros.progress import Reporter
from trt_ros.recording import Recording
from trt_ros.regular_file import reading, sha256_of_file
from trt_ros.runtime.machine_options import RunOptions
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline

PACKAGES = (
    'trt_ros',
    'numpy',
    'opencv-python-headless',
    'onnxruntime',
    'tensorrt',
    'tensorrt-rtx',
)
# They change where or how fast a network runs.
_WITHOUT_EFFECT = {'model_path', 'backend', 'device', 'engine_cache_dir', 'engine_in_memory'}
_OF_BUNDLE = ('.onnx', '.yaml')
_END_NBYTES = 1 << 16  # Of each end of a file of a recording.


def provenance(
    options: LabeledOptions,
    hashes: dict[str, str],
    pipeline: Pipeline[Any],
    task: LabelTask,
    recording: Recording,
) -> dict[str, Any]:
    """Return what the results of a task depend on, as JSON values; equal in each of its runs."""
    return {
        **_settings(options, hashes, task),
        'backend': pipeline.backend,
        'decoder': pipeline.decoder.name,
        'recording': _identity(recording),
    }


def job_settings(options: LabeledOptions, task: LabelTask) -> dict[str, Any]:
    """Return what all results of a job depend on before a pipeline is open, as JSON values."""
    found = _settings(options, model_hashes(options), task)
    del found['selection']['start'], found['selection']['end']
    names = ('video', 'data_sets', 'images')
    return {
        **found,
        'backend': options.backend,
        'outputs': _plain({name: getattr(task, name) for name in names}),
        'select': asdict(task.select) if task.select else {},
    }


def changed_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the values that differ, as in 'thresholds.score: 0.25 -> 0.5'; '' if none do."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    return '; '.join(
        f'{name}: {before.get(name, "unset")} -> {after.get(name, "unset")}'
        for name in [*before, *(after.keys() - before.keys())]
        if before.get(name, ...) != after.get(name, ...)
    )


def _leaves(values: Mapping[str, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f'{prefix}{name}.')
        else:
            yield prefix + name, value


def _identity(recording: Recording) -> dict[str, Any]:
    """Return what a recording has in common with its copies alone."""
    digest, nbytes = hashlib.sha256(), 0
    for path in recording.paths:
        with path.open('rb') as file:
            digest.update(file.read(_END_NBYTES))
            size = file.seek(0, 2)
            file.seek(max(0, size - _END_NBYTES))
            digest.update(file.read())
        nbytes += size
    return {'nbytes': nbytes, 'sha256_of_ends': digest.hexdigest()}


def _settings(options: LabeledOptions, hashes: dict[str, str], task: LabelTask) -> dict[str, Any]:
    ignored = _WITHOUT_EFFECT | {each.name for each in fields(RunOptions)}
    selection = ('topics', 'start', 'end', 'every', 'with_input', 'max_pixels', 'track')
    return _plain(
        {
            'model': options.model_path.rsplit('/', 1)[-1],
            'model_sha256': hashes,
            'versions': _versions(),
            'options': {
                each.name: getattr(options, each.name)
                for each in fields(options)
                if each.name not in ignored and getattr(options, each.name) != each.default
            },
            'thresholds': asdict(task.thresholds),
            'selection': {name: getattr(task, name) for name in selection},
        }
    )


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(values))
    return found


def model_hashes(options: LabeledOptions) -> dict[str, str]:
    """Return the SHA-256 of the files of a local model by name; raise ParameterError."""
    if options.is_remote:
        return {}
    model = local_model(options.model_path, Reporter(), options.engine_cache_dir)
    path = Path(model).expanduser()
    with reading(f'Model {path}', 'Correct --model.', ParameterError):
        if options.is_bundle:
            names = [each.name for each in path.parent.iterdir() if each.suffix in _OF_BUNDLE]
        else:
            names = [path.name, *(external_names(path) if path.suffix == '.onnx' else ())]
        return {name: sha256_of_file(path.parent / name) for name in sorted(names)}


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
