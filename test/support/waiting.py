"""Waiting for a condition, with a deadline."""

from __future__ import annotations

from collections.abc import Callable
import os
import threading
import time
from typing import Any

#: TRT_ROS_TEST_DEADLINE_SECONDS raises it on a busy machine.
DEADLINE_SECONDS = float(os.environ.get('TRT_ROS_TEST_DEADLINE_SECONDS', '60'))


def wait_until(condition: Callable[[], Any], what: str = 'a condition') -> Any:
    """Wait until `condition` returns a true value, and return it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    never = threading.Event()
    while not (result := condition()):
        assert time.monotonic() < deadline, f'waited in vain for {what}'
        never.wait(0.01)
    return result
