"""NVML tells of the GPU that CUDA calls by this number."""

import pytest

from trt_ros.cuda.monitor import HELD_BACK, MEMORY, TEMPERATURE, UTILISATION, Monitor

pytestmark = pytest.mark.gpu


def test_a_gpu_tells_how_it_fares(gpu):
    diagnostics = Monitor(gpu).diagnostics()
    # Not asked of each: one that is shared out (MIG) has no utilisation of its own.
    assert diagnostics.keys() <= {UTILISATION, TEMPERATURE, HELD_BACK, MEMORY}
    assert 0 < int(diagnostics[TEMPERATURE]) < 120
    assert 0 <= int(diagnostics.get(UTILISATION, 0)) <= 100
    used, total = (int(each) for each in diagnostics[MEMORY].split(' of '))
    assert 0 < used <= total
    assert abs(total - gpu.free_bytes()[1] / 1e6) < 0.1 * total
