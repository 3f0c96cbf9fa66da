"""
Model repository of Triton from an ONNX file or an engine.

Writes REPOSITORY/NAME/config.pbtxt and REPOSITORY/NAME/VERSION/model.onnx or model.plan, as
tritonserver --model-repository REPOSITORY loads them, with dynamic batching where the batch size
is dynamic. The metadata of the model (class names and the like) become parameters, from which
nodes with backend triton recognize it. Engines are those of TensorRT: Triton has no TensorRT for
RTX.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
import io
from pathlib import Path
import re
import sys
from typing import IO, Any

from trt_ros.cli._flags import add_flags, model_argument, positive, refuse_bundle
from trt_ros.errors import ModelError, ParameterError, printable
from trt_ros.regular_file import open_regular, write_atomically, writing

DEFAULT_BATCH = 8


def add_arguments(parser: ArgumentParser) -> None:
    add_flags(
        parser,
        ('model', model_argument, None, 'ONNX file, or an engine of TensorRT'),
        ('--output REPOSITORY', Path, ..., 'folder of the model repository'),
        ('--name NAME', str, '', 'name of the model (default: that of the file)'),
        ('--model-version N', positive, 1, 'version of the model'),
        (
            '--max-batch-size N',
            positive,
            None,
            f'maximum batch size where it is dynamic (default: {DEFAULT_BATCH}; of an engine, the '
            'one it was built for)',
        ),
    )


def run(args: Namespace) -> int:
    """Write the model and its configuration."""
    from trt_ros.cli._inspect import describe_model

    refuse_bundle(args.model, 'A model of Triton')
    path = args.model.expanduser()
    name = args.name or path.stem
    if not re.fullmatch(r'\w[\w.+-]*', name):
        raise ParameterError(
            f'The model name {name!r} cannot be the name of a folder and part of an address.',
            remedy='Choose one of letters, digits, _, - and . with --name.',
        )
    found = describe_model(path, parsed=False)
    if found['kind'] == 'engine':
        _check_engine(path, found)
    batch = _max_batch(found, args.max_batch_size)
    text = '\n'.join(_config(name, found, batch)) + '\n'
    folder = args.output / name
    _write(path, found, folder, args.model_version, text)
    batching = f'dynamic batching up to {batch}' if batch else 'fixed batch size, no batching'
    print(printable(f'{folder}: {batching}'), file=sys.stderr)
    print(f'model_path: grpc://HOST:8001/{name}', file=sys.stderr)
    return 0


def _check_engine(path: Path, found: Mapping[str, Any]) -> None:
    if found['library'] != 'tensorrt':
        raise ModelError(
            f'Triton cannot load {path}.',
            cause=f'It is an engine of {found["library"]}; Triton runs those of tensorrt.',
            remedy='Use the ONNX file, or build the engine with --backend tensorrt of the version '
            'in the container of Triton.',
        )
    if not found['matches_sidecar']:
        raise ModelError(
            f'Inputs and outputs of {path} are unknown.',
            cause='The engine has no sidecar (NAME.json beside it), or that of another one.',
            remedy='Use an engine of `trt-ros build` with its sidecar, or the ONNX file.',
        )


def _max_batch(found: Mapping[str, Any], wanted: int | None) -> int:
    """Return the largest batch, 0 for fixed ones; raise ParameterError if below `wanted`."""
    tensors = [*found['inputs'], *found['outputs']]
    limit = DEFAULT_BATCH if wanted is None else wanted
    is_dynamic = all(each['shape'][:1] == [-1] for each in tensors)
    if not is_dynamic:
        limit = 0
    elif found['kind'] == 'engine':
        built = min(each['high'][0] for profile in found['profiles'][:1] for each in profile)
        limit = built if wanted is None else min(wanted, built)
    if wanted is not None and limit < wanted:
        raise ParameterError(
            f'--max-batch-size is {wanted}, but the model takes '
            f'{f"up to {limit}" if limit else "a fixed batch size"}.',
            remedy='Leave it out, or export or build with a dynamic batch of that size.',
        )
    return limit


def _config(name: str, found: Mapping[str, Any], batch: int) -> Iterator[str]:
    is_engine = found['kind'] == 'engine'
    yield f'name: {_quoted(name)}'
    yield f'backend: "{"tensorrt" if is_engine else "onnxruntime"}"'
    yield f'default_model_filename: "{_file_name(found)}"'
    yield f'max_batch_size: {batch}'
    for kind in ('input', 'output'):
        for each in found[f'{kind}s']:
            yield from _tensor(kind, each, has_batch=batch > 0)
    if batch:
        yield 'dynamic_batching { }'
    for key, value in (found.get('metadata') or {}).items():
        yield (f'parameters {{ key: {_quoted(key)} value {{ string_value: {_quoted(value)} }} }}')


def _tensor(kind: str, tensor: Mapping[str, Any], *, has_batch: bool) -> Iterator[str]:
    from trt_ros.runtime.remote.remote_runner import DATATYPES

    if tensor['dtype'] not in DATATYPES:
        raise ModelError(
            f'The {kind} {tensor["name"]} has the type {tensor["dtype"]}, which Triton lacks.',
            remedy='Export with float32 inputs and outputs.',
        )
    dims = tensor['shape'][1:] if has_batch else tensor['shape']
    yield f'{kind} {{'
    yield f'  name: {_quoted(tensor["name"])}'
    yield f'  data_type: TYPE_{DATATYPES[tensor["dtype"]]}'
    yield f'  dims: {dims or [1]}'
    if not dims:  # Triton has no scalars.
        yield '  reshape { shape: [ ] }'
    yield '}'


def _quoted(text: str) -> str:
    """Return a string of the text format of protocol buffers."""
    escaped = re.sub(r'["\\]', r'\\\g<0>', text)
    return '"' + re.sub(r'[\x00-\x1f\x7f]', lambda one: f'\\{ord(one[0]):03o}', escaped) + '"'


def _file_name(found: Mapping[str, Any]) -> str:
    return 'model.plan' if found['kind'] == 'engine' else 'model.onnx'


def _write(path: Path, found: Mapping[str, Any], folder: Path, version: int, config: str) -> None:
    """Write the configuration last: Triton loads a model when it appears."""
    target = folder / str(version)
    with writing(folder.parent, 'Choose another folder with --output.'):
        for name in found.get('external_data', ()):
            with open_regular(path.parent / name) as file:
                _write_file(target / name, file)
        with open_regular(path) as file:
            _write_file(target / _file_name(found), file)
        _write_file(folder / 'config.pbtxt', io.BytesIO(config.encode()))


def _write_file(path: Path, source: IO[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, source)
    path.chmod(0o644)
