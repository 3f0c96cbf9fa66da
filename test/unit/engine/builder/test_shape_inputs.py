"""Inputs whose values are shapes, in real builds with tensorrt_rtx."""

import pytest

from support.builds import build_here
from trt_ros.errors import ModelError

pytestmark = pytest.mark.slow


def test_an_input_that_is_a_shape_is_refused_by_name(models, rtx):
    path = models.save('(float[1,3,4,4] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }')
    with pytest.raises(
        ModelError, match=r'The input s \(2\) int64 of .* is a shape tensor(.|\n)*onnxruntime'
    ):
        build_here(path, rtx)


def test_integers_that_are_not_a_shape_are_built(models, rtx):
    path = models.save(
        """(float[1,3,4,4] x, int64[2] s) => (float[1,2,4,4] y)
        { y = Gather <axis = 1> (x, s) }"""
    )
    build_here(path, rtx)
