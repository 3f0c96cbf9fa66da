"""What is said before and after an engine is opened; opening one needs a GPU."""

from __future__ import annotations

import pytest

from trt_ros.engine.open import describe, open_engine
from trt_ros.errors import BackendError


def test_without_a_gpu_nothing_is_built_in_vain(models, no_gpu, tmp_path):
    with pytest.raises(BackendError, match='No NVIDIA GPU can be used here'):
        open_engine(models.conv(), cache_dir=tmp_path / 'cache')
    assert not (tmp_path / 'cache').exists()


def test_nothing_known_is_nothing_told():
    assert describe({}) == ()


def test_precisions_ignored_options_and_fallbacks_are_told():
    assert describe({
        'layer_precisions': {'float16': 3, 'float32': 1}, 'layers_from': 'engine',
        'ignored_options': ['aux_streams: without effect'],
        'dla_fallback': [f'layer{i}' for i in range(12)]}) == (
            'layers of the engine: 3 float16, 1 float32',
            'option without effect: aux_streams: without effect',
            '12 layers on the GPU, not the DLA: ' + ', '.join(f'layer{i}' for i in range(10)))
