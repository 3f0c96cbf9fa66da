"""Layers of a built engine: types, formats, kernels and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
import json
from math import prod
import re
from typing import Any

from trt_ros.engine.engine import DTYPES
from trt_ros.errors import ModelError

# Spellings of a tensor's type in the engine inspectors of all releases.
_SPELLINGS = (
    ('bfloat16', r'bf16|bfloat16'),
    ('float16', r'fp16|half|float16'),
    ('float8_e4m3fn', r'fp8|e4m3'),
    ('int8', r'int8'),
    ('float4_e2m1fn', r'fp4'),
    ('int4', r'int4'),
    ('int64', r'int64'),
    ('int32', r'int32'),
    ('bool', r'bool'),
    ('float32', r'fp32|float|float32'),
)
# Of the other types: 8.
_BITS = {'int64': 64, 'float32': 32, 'int32': 32, 'float16': 16, 'bfloat16': 16} | dict.fromkeys(
    ('float4_e2m1fn', 'int4'), 4
)


@dataclass(frozen=True)
class EngineLayer:
    """
    A layer; empty and None where TensorRT does not report it.

    :param kind: TensorRT's type of the layer.
    :param dtype: type of the first output.
    :param shape: of the first output; -1 for a dynamic dimension.
    :param format: TensorRT's text on the memory layout of the first output.
    :param tactic: kernel that runs it.
    :param output_nbytes: size of all outputs without padding; None with a dynamic shape.
    :param weights_nbytes: size of weights and bias.
    :param input_dtype: type of the first input.
    """

    name: str
    kind: str = ''
    dtype: str = ''
    shape: tuple[int, ...] = ()
    format: str = ''
    tactic: str = ''
    output_nbytes: int | None = None
    weights_nbytes: int | None = None
    input_dtype: str = ''

    @classmethod
    def read(cls, entry: Mapping[str, Any] | Sequence[Any]) -> EngineLayer:
        """Return a layer of a sidecar; those of older releases have name, kind and dtype only."""
        if not isinstance(entry, Mapping):
            return cls(*(entry[:3] or ('',)))
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in entry.items() if name in known}
        return cls(**{**values, 'shape': tuple(values.get('shape', ()))})


@dataclass(frozen=True)
class InspectedEngine:
    """
    The layers of an engine, and its memory.

    :param verbosity: ProfilingVerbosity of the build. Only DETAILED engines have more than names.
    :param activations_nbytes: size of the memory for values between the layers.
    :param weights_nbytes: size of all weights; None where TensorRT does not report it.
    """

    layers: list[EngineLayer]
    verbosity: str
    activations_nbytes: int
    weights_nbytes: int | None


def of_network(network: Any) -> list[EngineLayer]:
    """Return the layers of a strongly typed network before fusion, which keeps their types."""
    found = []
    for layer in map(network.get_layer, range(network.num_layers)):
        output = layer.get_output(0) if layer.num_outputs else None
        if (
            output is None
            or layer.type.name in ('CONSTANT', 'SHAPE', 'CAST')
            or output.dtype.name in ('INT32', 'INT64', 'BOOL')
        ):
            continue
        shape, dtype = tuple(output.shape), DTYPES[output.dtype.name]
        nbytes = None if min(shape, default=0) < 0 else _nbytes(prod(shape), dtype)
        found.append(EngineLayer(layer.name, layer.type.name, dtype, shape, output_nbytes=nbytes))
    return found


def read_engine(library: Any, plan: Any) -> InspectedEngine:
    """Return the layers of a plan by TensorRT's inspector; BackendError without a GPU."""
    runtime = library.new_runtime()
    with library.log.collect() as captured:
        handle = runtime.deserialize_cuda_engine(plan)
    if handle is None:
        raise ModelError(
            'The engine cannot be loaded on this machine.', cause='\n'.join(captured.errors)
        )
    trt = library.trt
    text = handle.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    stat = getattr(handle, 'get_engine_stat', None)
    activations = getattr(handle, 'device_memory_size_v2', None)
    found = InspectedEngine(
        list(parse_inspector(text)),
        handle.profiling_verbosity.name,
        int(handle.device_memory_size if activations is None else activations),
        None if stat is None else int(stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE)),
    )
    del handle  # Before its runtime.
    return found


def parse_inspector(text: str) -> Iterator[EngineLayer]:
    """Yield the layers in the JSON of an engine inspector; nothing if it is not such JSON."""
    try:
        layers = json.loads(text)['Layers']
    except (ValueError, KeyError, TypeError):
        return
    for entry in layers:
        if isinstance(entry, str):  # ProfilingVerbosity.LAYER_NAMES_ONLY
            yield EngineLayer(entry)
        elif isinstance(entry, dict):
            yield _inspected(entry)


def _inspected(entry: Mapping[str, Any]) -> EngineLayer:
    inputs, outputs = (
        [each for each in entry.get(name) or () if isinstance(each, dict)]
        for name in ('Inputs', 'Outputs')
    )
    first: Mapping[str, Any] = outputs[0] if outputs else {}
    sizes = [_output_nbytes(each) for each in outputs]
    known = [size for size in sizes if size is not None]
    weights = [
        _nbytes(int(each['Count']), _dtype(str(each['Type'])))
        for each in entry.values()
        if isinstance(each, dict) and {'Type', 'Count'} <= each.keys()
    ]
    return EngineLayer(
        str(entry.get('Name', '')),
        str(entry.get('LayerType', '')),
        _dtype_of(first),
        _shape_of(first),
        str(first.get('Format/Datatype', first.get('Format', ''))),
        str(entry.get('TacticName') or entry.get('TacticValue') or ''),
        sum(known) if known and len(known) == len(sizes) else None,
        sum(weights) if weights else None,
        _dtype_of(inputs[0]) if inputs else '',
    )


def _shape_of(tensor: Mapping[str, Any]) -> tuple[int, ...]:
    shape = tensor.get('Dimensions')
    return tuple(map(int, shape)) if isinstance(shape, list) else ()


def _output_nbytes(tensor: Mapping[str, Any]) -> int | None:
    shape, dtype = _shape_of(tensor), _dtype_of(tensor)
    if 'Dimensions' not in tensor or not dtype or any(size < 0 for size in shape):
        return None
    return _nbytes(prod(shape), dtype)


def _dtype_of(tensor: Mapping[str, Any]) -> str:
    # 'Format/Datatype' of TensorRT 10, 'Datatype' beside 'Format' since 11.
    return _dtype(' '.join(str(value) for key, value in tensor.items() if 'type' in key.lower()))


def _dtype(text: str) -> str:
    for name, spelling in _SPELLINGS:
        if re.search(rf'\b({spelling})\b', text, re.IGNORECASE):
            return name
    return ''


def _nbytes(count: int, dtype: str) -> int:
    return (count * _BITS.get(dtype, 8) + 7) // 8


def counts(layers: Sequence[EngineLayer]) -> dict[str, int]:
    """Count layers by dtype, most frequent first; without layers of unknown dtype."""
    return dict(Counter(each.dtype for each in layers if each.dtype).most_common())
