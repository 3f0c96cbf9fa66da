"""The account of GPU memory, read and changed by several threads."""

import sys
import threading

import pytest

from trt_ros.cuda.memory import Account


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
