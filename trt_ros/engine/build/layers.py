"""Data types of the layers of a built engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
import json
import re
from typing import Any

from trt_ros.engine.engine import DTYPES

Layer = tuple[str, str, str]  # Name, kind, dtype of its output

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


def of_network(network: Any) -> list[Layer]:
    """Return the layers of a strongly typed network before fusion, which keeps their types."""
    layers = (network.get_layer(index) for index in range(network.num_layers))
    return [
        (layer.name, layer.type.name, DTYPES[layer.get_output(0).dtype.name])
        for layer in layers
        if layer.num_outputs
        and layer.get_output(0) is not None
        and layer.type.name not in ('CONSTANT', 'SHAPE', 'CAST')
        and layer.get_output(0).dtype.name not in ('INT32', 'INT64', 'BOOL')
    ]


def of_engine(flavour: Any, handle: Any) -> list[Layer]:
    """Return the layers of an engine; empty if built without DETAILED profiling verbosity."""
    text = handle.create_engine_inspector().get_engine_information(
        flavour.trt.LayerInformationFormat.JSON
    )
    return list(parse_inspector(text))


def parse_inspector(text: str) -> Iterator[Layer]:
    """Yield the layers in the JSON of an engine inspector; nothing if it is not such JSON."""
    try:
        layers = json.loads(text)['Layers']
    except (ValueError, KeyError, TypeError):
        return
    for entry in layers:
        outputs = entry.get('Outputs') if isinstance(entry, dict) else None
        if outputs:
            type_text = ' '.join(
                str(value) for key, value in outputs[0].items() if 'type' in key.lower()
            )
            dtype = next(
                (
                    name
                    for name, spelling in _SPELLINGS
                    if re.search(rf'\b({spelling})\b', type_text, re.IGNORECASE)
                ),
                '',
            )
            if dtype:
                yield str(entry.get('Name', '')), str(entry.get('LayerType', '')), dtype


def counts(layers: Sequence[Layer]) -> dict[str, int]:
    """Count layers by dtype, most frequent first."""
    return dict(Counter(dtype for _, _, dtype in layers).most_common())
