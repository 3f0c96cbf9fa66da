"""Builders of network descriptions."""

from __future__ import annotations

from collections.abc import Callable
import re

import pytest

from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.family import NetworkDescription


@pytest.fixture(scope='session')
def network() -> Callable[..., NetworkDescription]:
    """
    Make a `NetworkDescription` of outputs (and inputs beside the image) written as it prints them.

    'boxes (1, ?, 4); labels (1, ?) int64': float32 may be left out. Keywords are its metadata.
    """

    def specs(text, mode):
        return tuple(
            TensorSpec(
                name,
                tuple(-1 if size == '?' else int(size) for size in re.findall(r'[?\d]+', shape)),
                dtype or 'float32',
                mode,
            )
            for name, shape, dtype in re.findall(r'(\S+) \(([^)]*)\)(?: (\w+))?', text)
        )

    def make(outputs, *, inputs='', hw=(640, 640), class_count=None, **metadata):
        image = TensorSpec('images', (1, 3, *hw), 'float32', 'input')
        return NetworkDescription(
            (image, *specs(inputs, 'input')), specs(outputs, 'output'), metadata, hw, class_count
        )

    return make
