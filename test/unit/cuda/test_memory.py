"""The account of GPU memory, also that of libraries."""

from itertools import repeat
import os
import sys
import threading
from types import SimpleNamespace

import pytest

from support.waiting import DEADLINE_SECONDS
from trt_ros.cuda import memory
from trt_ros.cuda.memory import Account
from trt_ros.errors import BackendError


@pytest.fixture
def busy_threads():
    """Threads take turns after a few steps."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_an_account_is_read_while_owners_are_added(busy_threads):
    account, count = Account(), 200

    def change() -> None:
        for number in range(count):
            account.add(f'owner {number}', 1)
            account.pin(f'owner {number}', 1)

    threads = [threading.Thread(target=change) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        account.diagnostics()
    assert account.device_nbytes == account.peak()['total'] == 2 * count
    assert account.report()['pinned'] == {f'owner {number}': 2 for number in range(count)}


def test_the_peak_outlives_what_was_freed():
    account = Account()
    for owner, nbytes in (('slots', 6_000_000), ('slots', -2_000_000), ('engine', 1_000_000)):
        account.add(owner, nbytes)
    assert account.peak() == {'slots': 6_000_000, 'engine': 1_000_000, 'total': 6_000_000}
    told = account.diagnostics()
    assert told['GPU memory (MB)'] == 'slots 4.0, engine 1.0, total 5.0'
    assert told['GPU memory peak (MB)'] == 'slots 6.0, engine 1.0, total 6.0'


def test_memory_beyond_a_budget_is_refused_with_its_owners():
    account = Account()
    account.add('slots', 12_000_000)
    account.add('engine', 36_000_000)
    account.check_budget(0.0)
    account.check_budget(48.0)
    with pytest.raises(BackendError, match=r'takes 48\.0 MB .*memory_budget_mb = 47\.') as caught:
        account.check_budget(47.0)
    assert caught.value.cause == 'Memory by owner (MB): engine 36.0, slots 12.0.'


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
def gpu(set_cuda):
    gpu = Gpu()
    set_cuda(gpu)
    return gpu


@pytest.mark.parametrize(
    ('listed', 'refused', 'others'),
    [
        (True, [], 2000),
        (False, [], 0),  # Without a list of processes, all of the memory counts.
        # A process starts while NVML lists them, so that it refuses the list.
        (True, [True, False, True, True, False], 2000),
    ],
)
def test_only_the_memory_of_this_process_is_counted(gpu, listed, refused, others):
    gpu.listed, gpu.refused = listed, iter(refused)
    account = Account()
    with memory.measured(account, 'engine'):
        gpu.mine += 300
        gpu.others += others
    assert account.report()['device'] == {'engine': 300}


def test_largest_processes_on_the_gpu_are_named_and_unknown_memory_is_none(gpu):
    gpu.mine = (1 << 64) - 1
    assert memory.process_nbytes(gpu) == 0
    gpu.total, gpu.mine, gpu.others = 10**9, 5_000_000, 900_000_000
    assert memory.describe_gpu_memory() == (
        'free 95.0 MB of 1000.0 MB; used by process 0 900.0 MB, '
        f'this process ({os.getpid()}) 5.0 MB'
    )
    gpu.refused = repeat(True)
    assert memory.describe_gpu_memory().endswith('processes that NVML does not list here')


def test_what_has_an_owner_is_neither_counted_again_nor_taken_from_it(gpu):
    account = Account()
    with memory.measured(account, 'contexts'):
        account.add('tensors', 100)
        with memory.measured(account, 'contexts'):
            gpu.mine += 50
        gpu.mine += 100 + 7
    assert account.report()['device'] == {'tensors': 100, 'contexts': 57}
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
