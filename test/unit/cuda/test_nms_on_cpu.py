"""The algorithm of the NMS kernels, compiled for the CPU, equals the NumPy reference."""

from functools import partial

import pytest

from support.nms_cases import SMALL, check

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    'name', [*SMALL, pytest.param('11000 in bands', marks=pytest.mark.nightly)]
)
def test_the_boxes_that_are_left_are_those_of_numpy(name, kernels):
    check(partial(kernels.decode, runs=1), name)
