"""Descriptions of networks as they print themselves, and the heads of families that read them."""

from __future__ import annotations

import re
from typing import Any

from trt_ros.families.family import NetworkDescription
from trt_ros.families.registry import ALL_FAMILIES, Decoder, choose_decoder
from trt_ros.tensors import TensorSpec


def specs(text: str, mode: Any = 'output') -> tuple[TensorSpec, ...]:
    """
    Parse tensors written as they print: 'boxes (1, ?, 4); labels (1, ?) int64'.

    float32 may be left out.
    """
    return tuple(
        TensorSpec(
            name,
            tuple(-1 if size == '?' else int(size) for size in re.findall(r'[?\d]+', shape)),
            dtype or 'float32',
            mode,
        )
        for name, shape, dtype in re.findall(r'(\S+) \(([^)]*)\)(?: (\w+))?', text)
    )


def network(
    outputs: str,
    *,
    inputs: str = '',
    hw: tuple[int, int] = (640, 640),
    class_count: int | None = None,
    **metadata: str,
) -> NetworkDescription:
    """Describe a network by its outputs and the inputs beside the image; see `specs`."""
    image = TensorSpec('images', (1, 3, *hw), 'float32', 'input')
    return NetworkDescription(
        (image, *specs(inputs, 'input')), specs(outputs), metadata, hw, class_count
    )


def decoder(family: str, outputs: str, **how: Any) -> Decoder[Any]:
    """Choose the decoder of a family for a network; see `network`."""
    described = network(outputs, **how)
    return choose_decoder(
        family,
        described.inputs,
        described.outputs,
        described.metadata,
        described.input_hw,
        described.class_count,
        families=ALL_FAMILIES,
    )
