"""Sidecars of engines: JSON files with their origin, `MODEL.engine.json`."""

from collections.abc import Mapping
import json
from pathlib import Path
from typing import Any, Literal

from trt_ros.child import MAX_RESULT_NBYTES
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ModelError
from trt_ros.parameter_field import specifications
from trt_ros.regular_file import read_regular
from trt_ros.tensors import TensorSpec

SUFFIX = '.json'
_COUNT = (int, type(None))
_TENSOR = {'name': str, 'shape': [int], 'dtype': str}
_RANGE = {'name': str, 'low': [int], 'best': [int], 'high': [int]}
_LAYER = {
    'name': str,
    'kind?': str,
    'dtype?': str,
    'shape?': [int],
    'format?': str,
    'tactic?': str,
    'output_nbytes?': _COUNT,
    'weights_nbytes?': _COUNT,
    'input_dtype?': str,
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
    'key?': str,
    'plan_sha256?': str,
    'plan_nbytes?': int,
    'library?': str,
    'tensorrt?': str,
    'built_at?': str,
    'build_seconds?': (int, float),
    'gpu?': ({'name': str}, type(None)),
    'onnx?': {'path': str, 'sha256?': str},
    'options?': _OPTIONS,
    'inputs?': [_TENSOR],
    'outputs?': [_TENSOR],
    'profiles?': [[_RANGE]],
    'metadata?': {str: str},
    'layers?': [(_LAYER, [str])],
    'layers_from?': str,
    'layer_precisions?': ({str: int}, type(None)),
    'quantized?': {str: [str]},
    **dict.fromkeys(('lowered?', 'cut_nms?', 'refitted?', 'structure?'), str),
    'advice?': [str],
    'compared?': bool,
    'parser_errors?': [str],
    'parser_warnings?': [str],
    'build_warnings?': [str],
    'ignored_options?': [str],
    'dla_fallback?': [str],
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
    wrong = _mismatch(sidecar, _SIDECAR, '')
    if wrong is not None:
        raise ModelError(
            f'The sidecar of {engine} is damaged.',
            cause=f'The value of {wrong[:200]!r} has a wrong type.'
            if wrong
            else 'It is no object.',
            remedy=f'Copy {path.name} again, or remove it and rebuild the engine.',
        )
    return dict(sidecar)


def tensors_of(sidecar: Mapping[str, Any]) -> tuple[tuple[TensorSpec, ...], ...]:
    """Return the inputs and the outputs of a sidecar."""
    modes: tuple[Literal['input', 'output'], ...] = ('input', 'output')
    return tuple(
        tuple(
            TensorSpec(each['name'], tuple(each['shape']), each['dtype'], mode)
            for each in sidecar.get(f'{mode}s', ())
        )
        for mode in modes
    )


def _mismatch(value: Any, expected: Any, where: str) -> str | None:
    """Return where a value differs from the expected types; None if it does not."""
    if isinstance(expected, tuple):
        found = [_mismatch(value, each, where) for each in expected]
        return None if None in found else where
    if isinstance(expected, list):
        if not isinstance(value, list):
            return where
        checks = ((f'{where}[{i}]', each, expected[0]) for i, each in enumerate(value))
    elif isinstance(expected, dict):
        if not isinstance(value, dict):
            return where
        of_all = expected.get(str)
        expects = dict.fromkeys(value, of_all) if of_all else expected
        missing = [key for key in expects if not key.endswith('?') and key not in value]
        if missing:
            return f'{where}.{missing[0]}'.lstrip('.')
        if any(_mismatch(key, str, where) is not None for key in value):
            return where
        checks = (
            (f'{where}.{key}'.lstrip('.'), value[key], expects.get(key, expects.get(f'{key}?')))
            for key in value
            if key in expects or f'{key}?' in expects
        )
    else:
        return None if type(value) is expected and _is_printable(value) else where
    return next(
        (wrong for at, each, kind in checks if (wrong := _mismatch(each, kind, at)) is not None),
        None,
    )


def _is_printable(value: Any) -> bool:
    """Return whether a text is Unicode without lone surrogates, and an integer has 64 bits."""
    if isinstance(value, str):
        return value.isascii() or not any('\ud800' <= each <= '\udfff' for each in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63
