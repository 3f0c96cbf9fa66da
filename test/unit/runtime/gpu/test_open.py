"""`device: auto`: the least busy GPU, and pipelines of one process on different ones."""

from contextlib import ExitStack
import sys
from types import SimpleNamespace

import pytest

from trt_ros.engine.engine import load_once
from trt_ros.errors import ParameterError
from trt_ros.runtime.gpu.open import GpuLoad, least_busy, reserved_device
from trt_ros.runtime.machine_options import LEAST_BUSY

#: Indices at which no other engines of this process are.
FIRST, SECOND = 60, 61


class Opened:
    """An engine."""


@pytest.mark.parametrize(
    ('loads', 'chosen'),
    [
        ([(0, 0, 0)], 0),
        ([(0, 0, 100), (0, 0, 200)], 1),
        ([(0, 0, 200), (0, 0, 200)], 0),
        ([(0, 80, 200), (0, 20, 100)], 1),
        ([(0, 3, 100), (0, 1, 200)], 1),  # Equally busy: the memory counts.
        ([(0, 1, 100), (0, 3, 200)], 1),
        ([(1, 0, 200), (0, 0, 100)], 1),
        ([(1, 0, 200), (0, 90, 100)], 1),
        ([(2, 0, 200), (1, 90, 100), (2, 0, 300)], 1),
    ],
)
def test_pipelines_and_utilization_count_before_free_memory(loads, chosen):
    assert least_busy([GpuLoad(i, *load) for i, load in enumerate(loads)]).device == chosen


@pytest.fixture
def two_gpus(monkeypatch, set_driver):
    """Two idle GPUs; the second has more free memory. The loads may be changed."""
    loads = {'0000:01:00.0': (0, 10 * 10**9), '0000:02:00.0': (0, 12 * 10**9)}
    gpus = [SimpleNamespace(index=i, pci_bus_id=bus) for i, bus in zip((FIRST, SECOND), loads)]
    set_driver(*gpus)

    def device(pci_bus_id):
        utilization, free = loads[pci_bus_id]
        return SimpleNamespace(
            utilization=SimpleNamespace(gpu=utilization),
            memory_info=SimpleNamespace(total=10**11, used=10**11 - free),
        )

    monkeypatch.setitem(sys.modules, 'cuda.core.system', SimpleNamespace(Device=device))
    return loads


def test_pipelines_that_are_opened_at_once_spread(two_gpus):
    with ExitStack() as opening:
        chosen = [opening.enter_context(reserved_device(LEAST_BUSY))[0] for _ in range(4)]
        assert chosen == [SECOND, FIRST, SECOND, FIRST]
        assert opening.enter_context(reserved_device(SECOND)) == (SECOND, ())
        assert opening.enter_context(reserved_device(LEAST_BUSY))[0] == FIRST
    with reserved_device(LEAST_BUSY) as (device, lines):
        assert device == SECOND
    assert lines == (
        'device 60 not chosen: 0 pipelines of this process, utilization 0 %, 10.0 GB free',
        'device 61 chosen: 0 pipelines of this process, utilization 0 %, 12.0 GB free',
    )


def test_a_failed_opening_does_not_count_but_work_of_other_processes_does(two_gpus):
    with pytest.raises(ParameterError), reserved_device(LEAST_BUSY):
        raise ParameterError('The model is missing.')
    with reserved_device(LEAST_BUSY) as (device, _):
        assert device == SECOND
    two_gpus['0000:02:00.0'] = (50, 12 * 10**9)
    with reserved_device(LEAST_BUSY) as (device, _):
        assert device == FIRST


def test_open_engines_count_until_they_are_closed(two_gpus):
    plan, engine = load_once(None, lambda: (None, object(), 0), SECOND), Opened()
    plan.add(engine)
    with reserved_device(LEAST_BUSY) as (device, _):
        assert device == FIRST
    plan.remove(engine)
    with reserved_device(LEAST_BUSY) as (device, _):
        assert device == SECOND


def test_without_a_gpu_device_0_reports_the_reason(set_driver):
    set_driver()
    with reserved_device(LEAST_BUSY) as chosen:
        assert chosen == (0, ())
