"""Descriptions of networks as they print themselves, and the heads of families that read them."""

from collections.abc import Mapping
import re
from typing import Any

import numpy as np

from support.recipes import code_of, names_of
from trt_ros.decode.choice import open_head
from trt_ros.families import registry
from trt_ros.families.family import Family, NetworkDescription
from trt_ros.families.registry import ALL_FAMILIES
from trt_ros.tensors import TensorSpec

#: Source of the family in docs/adding_a_decoder.md, a whole file.
TOY_SOURCE = code_of('adding_a_decoder')
TOY: Family[Any] = names_of('adding_a_decoder')['TOY']
FAMILIES = {
    family.name: family for family in (*ALL_FAMILIES, *registry.ENHANCERS, *registry.TENSORS, TOY)
}
#: Families by task, as the nodes choose from them.
TASKS = {
    'detect': registry.DETECTORS,
    'segment': registry.SEGMENTERS,
    'pose': registry.POSES,
    'obb': registry.ORIENTED,
    'classify': registry.CLASSIFIERS,
    'text': registry.TEXTS,
    'depth': registry.DEPTHS,
    'embed': registry.EMBEDDINGS,
    'tensor': registry.TENSORS,
}


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


def specs_of(arrays: Mapping[str, np.ndarray]) -> str:
    """Write the outputs that arrays are."""
    return '; '.join(
        f'{name} ({", ".join(map(str, np.shape(value)))}) {value.dtype.name}'
        for name, value in arrays.items()
    )


def network(
    outputs: str | Mapping[str, np.ndarray],
    *,
    inputs: str = '',
    hw: tuple[int, int] = (640, 640),
    class_count: int | None = None,
    **metadata: str,
) -> NetworkDescription:
    """Describe a network by its outputs and the inputs beside the image; see `specs`."""
    image = TensorSpec('images', (1, 3, *hw), 'float32', 'input')
    text = outputs if isinstance(outputs, str) else specs_of(outputs)
    return NetworkDescription(
        (image, *specs(inputs, 'input')), specs(text), metadata, hw, class_count
    )


def head(family: str, outputs: str | Mapping[str, np.ndarray], **how: Any) -> Any:
    """Open the head of a family for a network; see `network`."""
    return open_head(FAMILIES[family], network(outputs, **how))
