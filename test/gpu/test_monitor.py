"""NVML describes the GPU that CUDA has under this index."""

import pytest

from trt_ros.cuda.memory import gpu_memory
from trt_ros.cuda.monitor import (
    CLOCK,
    MEMORY,
    TEMPERATURE,
    THROTTLE_REASONS,
    UTILISATION,
    Monitor,
    read_load,
)

pytestmark = pytest.mark.gpu


def test_nvml_values_are_plausible(gpu):
    diagnostics = Monitor(gpu).diagnostics()
    # A MIG instance has no utilization of its own.
    assert diagnostics.keys() <= {UTILISATION, TEMPERATURE, CLOCK, THROTTLE_REASONS, MEMORY}
    assert 0 < int(diagnostics[TEMPERATURE]) < 120
    assert 0 <= int(diagnostics.get(UTILISATION, 0)) <= 100
    now, highest = (int(each) for each in diagnostics[CLOCK].split(' of '))
    assert 0 < now <= highest
    with gpu.context:
        cuda_free, cuda_total = gpu_memory()
    utilization, free = read_load(gpu.pci_bus_id)
    assert 0 <= utilization <= 100
    assert abs(free - cuda_free) < 0.1 * cuda_total
    used, total = (int(each) for each in diagnostics[MEMORY].split(' of '))
    assert 0 < used <= total
    assert abs(total - cuda_total / 1e6) < 0.1 * total
