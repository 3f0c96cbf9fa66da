"""The account of GPU memory, read and changed by several threads."""

import sys
import threading

import pytest

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
