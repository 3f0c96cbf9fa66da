from __future__ import annotations

import numpy as np
import pytest

from trt_ros.errors import TensorMismatchError
from trt_ros.vision.embedding import EmbeddingHead


@pytest.mark.parametrize('shape', [(1, 3), (1, 3, 1, 1)])
def test_a_vector_comes_as_it_is_in_memory_of_its_own(shape):
    output = np.array([3, -4, 12], np.float16).reshape(shape)
    values = EmbeddingHead('pooled')({'pooled': output, 'hidden': np.zeros((1, 9, 3))}).values
    assert values.tolist() == [3, -4, 12]
    assert values.dtype == np.float32
    single = np.ones((1, 3), np.float32)
    assert not np.shares_memory(EmbeddingHead('x')({'x': single}).values, single)


@pytest.mark.parametrize('shape', [(2, 3), (3,), (1, 0), (1, 3, 2)])
def test_another_shape_is_refused(shape):
    with pytest.raises(TensorMismatchError):
        EmbeddingHead('x')({'x': np.zeros(shape)})
    with pytest.raises(TensorMismatchError, match="no output 'y', only x"):
        EmbeddingHead('y')({'x': np.zeros(shape)})
