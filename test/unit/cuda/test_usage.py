"""GPU memory of libraries: what belongs to this process, and what is counted elsewhere."""

from itertools import repeat
import os
import sys
import threading
from types import SimpleNamespace

import pytest

from support.waiting import DEADLINE_SECONDS
from trt_ros.cuda import calls, memory
from trt_ros.cuda.memory import Account


class Gpu:
    """A GPU's memory, as CUDA and NVML report it; `refused`: whether it lists processes."""

    def __init__(self) -> None:
        self.mine, self.others, self.listed, self.refused = 1000, 5000, True, iter(())
        self.total = 20_000

    def cudaMemGetInfo(self):
        return 0, self.total - self.mine - self.others, self.total

    def cudaGetLastError(self):
        return 0

    @property
    def compute_running_processes(self):
        if next(self.refused, False):
            raise RuntimeError('Insufficient Size')
        own = [SimpleNamespace(pid=os.getpid(), used_gpu_memory=self.mine)] if self.listed else []
        return [SimpleNamespace(pid=0, used_gpu_memory=self.others), *own]


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    device = SimpleNamespace(pci_bus_id='0000:01:00.0')
    for name, module in {
        'cuda.core': SimpleNamespace(Device=lambda: device),
        'cuda.core.system': SimpleNamespace(Device=lambda pci_bus_id: gpu),
        'cuda.bindings.runtime': gpu,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    for cached in (calls.core, calls.runtime):
        cached.cache_clear()
    yield gpu
    for cached in (calls.core, calls.runtime):
        cached.cache_clear()


def test_only_the_memory_of_this_process_is_counted(gpu):
    account = Account()
    with memory.measured(account, 'engine'):
        gpu.mine += 300
        gpu.others += 2000
    assert account.report()['device'] == {'engine': 300}


def test_free_memory_is_measured_where_nvml_does_not_list_the_process(gpu):
    gpu.listed = False
    account = Account()
    with memory.measured(account, 'engine'):
        gpu.mine += 300
    assert account.report()['device'] == {'engine': 300}


def test_a_process_that_starts_while_nvml_lists_them_does_not_matter(gpu):
    """NVML then refuses the list, and the memory of the whole GPU would be counted."""
    gpu.refused = iter([True, False, True, True, False])
    account = Account()
    with memory.measured(account, 'engine'):
        gpu.mine += 300
        gpu.others += 2000
    assert account.report()['device'] == {'engine': 300}


def test_unknown_memory_of_nvml_is_no_memory(gpu):
    gpu.mine = (1 << 64) - 1
    assert memory.process_nbytes(gpu) == 0


def test_what_has_an_owner_is_not_counted_again(gpu):
    account = Account()
    with memory.measured(account, 'contexts'):
        account.add('tensors', 100)
        with memory.measured(account, 'contexts'):
            gpu.mine += 50
        gpu.mine += 100 + 7
    assert account.report()['device'] == {'tensors': 100, 'contexts': 57}


def test_memory_freed_meanwhile_takes_nothing_from_the_owner(gpu):
    account = Account()
    account.add('engine', 10)
    with memory.measured(account, 'engine'):
        gpu.mine -= 300
    assert account.report()['device'] == {'engine': 10}


@pytest.mark.parametrize('owner', ['engine', 'contexts'])
def test_a_failure_is_not_measured(gpu, owner):
    account = Account()
    with pytest.raises(ValueError), memory.measured(account, owner):
        gpu.mine += 300
        raise ValueError
    assert account.report()['device'] == {}


@pytest.mark.parametrize('wait_seconds', [0.0, 0.01])
def test_others_do_not_wait_for_a_measurement_that_never_ends(gpu, wait_seconds):
    account = Account()

    def run():
        with memory.measured(account, 'contexts', wait_seconds=wait_seconds):
            gpu.mine += 50

    with memory.measured(Account(), 'engine'):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
    assert account.report()['device'] == {}
    run()
    assert account.report()['device'] == {'contexts': 50}


def test_largest_processes_on_the_gpu_are_named(gpu):
    gpu.total, gpu.mine, gpu.others = 10**9, 5_000_000, 900_000_000
    assert memory.describe_gpu_memory() == (
        'free 95.0 MB of 1000.0 MB; used by process 0 900.0 MB, '
        f'this process ({os.getpid()}) 5.0 MB'
    )
    gpu.refused = repeat(True)
    assert memory.describe_gpu_memory().endswith('processes that NVML does not list here')
