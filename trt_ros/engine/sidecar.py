"""Sidecars of engines: JSON files with their origin, `MODEL.engine.json`."""

from collections.abc import Iterator, Mapping
import io
import json
from pathlib import Path
from typing import Any, Literal

from trt_ros.child import MAX_RESULT_NBYTES
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ModelError
from trt_ros.parameter_field import specifications
from trt_ros.regular_file import read_regular, write_atomically
from trt_ros.tensors import TensorSpec

SUFFIX = '.json'
_TENSOR = {'name': str, 'shape': [int], 'dtype': str}
_RANGE = {'name': str, 'low': [int], 'best': [int], 'high': [int]}
_LAYER = {
    'name': str,
    'shape?': [int],
    **dict.fromkeys(('kind?', 'dtype?', 'format?', 'tactic?', 'input_dtype?'), str),
    **dict.fromkeys(('output_nbytes?', 'weights_nbytes?'), (int, type(None))),
}
_OPTIONS = {
    **{
        f'{each.name}?': [each.entry_type]
        if each.entry_type
        else (each.python_type, type(each.default))
        for each in specifications(BuildOptions).values()
    },
    'profiles?': [[_RANGE]],
}
#: Types of the values that are used; others may be anything. '?' marks keys that may be missing.
_SIDECAR = {
    'plan_sha256': str,
    'plan_nbytes?': int,
    'build_seconds?': (int, float),
    'gpu?': ({'name': str}, type(None)),
    'onnx?': {'path': str, 'sha256?': str},
    'options?': _OPTIONS,
    'inputs?': [_TENSOR],
    'outputs?': [_TENSOR],
    'profiles?': [[_RANGE]],
    'metadata?': {str: str},
    'layers?': [(_LAYER, [str])],
    'layer_precisions?': ({str: int}, type(None)),
    'quantized?': {str: [str]},
    'compared?': bool,
    **dict.fromkeys(('key?', 'library?', 'tensorrt?', 'built_at?', 'layers_from?'), str),
    **dict.fromkeys(('lowered?', 'cut_nms?', 'refitted?', 'structure?'), str),
    **{key: [str] for key in ('advice?', 'ignored_options?', 'dla_fallback?')},
    **{key: [str] for key in ('parser_errors?', 'parser_warnings?', 'build_warnings?')},
}


def sidecar_path(engine: Path) -> Path:
    """Return the path of an engine's sidecar."""
    return engine.with_name(engine.name + SUFFIX)


def read_sidecar(engine: Path) -> dict[str, Any]:
    """Read the sidecar of an engine; raise ModelError if it is missing or damaged."""
    path = sidecar_path(engine)
    try:
        sidecar = json.loads(read_regular(path, MAX_RESULT_NBYTES))
    except (OSError, ValueError, RecursionError) as error:
        cause = error.strerror or '' if isinstance(error, OSError) else str(error)
        raise ModelError(
            f'The sidecar of {engine} cannot be read.',
            cause=cause,
            remedy=f'Copy {path.name} again, or remove it and rebuild the engine.',
        ) from error
    wrong = next(_mismatches(sidecar, _SIDECAR, ''), None)
    if wrong is not None:
        raise ModelError(
            f'The sidecar of {engine} is damaged.',
            cause=f'The value of {wrong[:200]!r} is missing or has a wrong type.'
            if wrong
            else 'It is no object.',
            remedy=f'Copy {path.name} again, or remove it and rebuild the engine.',
        )
    return dict(sidecar)


def write_sidecar(engine: Path, sidecar: Mapping[str, Any]) -> None:
    """Write the sidecar of an engine."""
    text = json.dumps(sidecar, indent=1, sort_keys=True)
    write_atomically(sidecar_path(engine), io.BytesIO(text.encode()))


def tensors_of(sidecar: Mapping[str, Any]) -> tuple[tuple[TensorSpec, ...], ...]:
    """Return the inputs and the outputs of a sidecar, or of another description."""
    modes: tuple[Literal['input', 'output'], ...] = ('input', 'output')
    return tuple(
        tuple(
            TensorSpec(each['name'], tuple(each['shape']), each['dtype'], mode)
            for each in sidecar.get(f'{mode}s', ())
        )
        for mode in modes
    )


def _mismatches(value: Any, expected: Any, where: str) -> Iterator[str]:
    """Yield where a value differs from the expected types."""
    if isinstance(expected, tuple):
        if all(next(_mismatches(value, each, where), None) is not None for each in expected):
            yield where
    elif isinstance(expected, list) and isinstance(value, list):
        for i, each in enumerate(value):
            yield from _mismatches(each, expected[0], f'{where}[{i}]')
    elif isinstance(expected, dict) and isinstance(value, dict) and all(map(_is_printable, value)):
        kinds = dict.fromkeys(value, expected[str]) if str in expected else expected
        for name, kind in kinds.items():
            key = name if name in value else name.removesuffix('?')
            at = f'{where}.{key}'.lstrip('.')
            if key in value:
                yield from _mismatches(value[key], kind, at)
            elif key == name:
                yield at
    elif type(value) is not expected or not _is_printable(value):
        yield where


def _is_printable(value: Any) -> bool:
    """Return whether a text is Unicode without lone surrogates, and an integer has 64 bits."""
    if isinstance(value, str):
        return value.isascii() or not any('\ud800' <= each <= '\udfff' for each in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63
