"""Provenance of results: the model, versions, options and thresholds."""

from contextlib import suppress
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trt_ros.engine.download import local_model
from trt_ros.engine.key import external_names
from trt_ros.labelling.task import LabelTask
from trt_ros.progress import Reporter
from trt_ros.regular_file import sha256_of_file
from trt_ros.runtime.options import LabeledOptions, RunOptions
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


def provenance(
    options: LabeledOptions, hashes: dict[str, str], pipeline: Pipeline[Any], task: LabelTask
) -> dict[str, Any]:
    """
    Return what the results of a task depend on, as JSON values; equal in each of its runs.

    :param hashes: as model_hashes() returns them.
    """
    ignored = _WITHOUT_EFFECT | {each.name for each in fields(RunOptions)}
    return {
        'model': options.model_path.rsplit('/', 1)[-1],
        'model_sha256': hashes,
        'backend': pipeline.backend,
        'decoder': pipeline.decoder.name,
        'versions': _versions(),
        'options': {
            each.name: _plain(getattr(options, each.name))
            for each in fields(options)
            if each.name not in ignored and getattr(options, each.name) != each.default
        },
        'thresholds': _plain(asdict(task.thresholds)),
        'selection': {
            name: _plain(getattr(task, name))
            for name in ('start', 'end', 'every', 'with_input', 'max_pixels', 'track')
        },
    }


def model_hashes(options: LabeledOptions) -> dict[str, str]:
    """Return the SHA-256 of the files of a local model by name."""
    if options.is_remote:
        return {}
    model = local_model(options.model_path, Reporter(), options.engine_cache_dir)
    path = Path(model).expanduser()
    if options.is_bundle:
        names = [each.name for each in path.parent.iterdir() if each.suffix in ('.onnx', '.yaml')]
    else:
        names = [path.name, *(external_names(path) if path.suffix == '.onnx' else ())]
    return {name: sha256_of_file(path.parent / name) for name in sorted(names)}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return list(value) if isinstance(value, (tuple, list)) else value
