"""Kernels of boxes and masks, compiled for the CPU."""

import pytest

from support.kernels_on_cpu import KernelsOnCpu


@pytest.fixture(scope='module')
def kernels() -> KernelsOnCpu:
    return KernelsOnCpu()
