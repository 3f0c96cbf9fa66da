"""Waiting for a condition, with a deadline."""

from collections.abc import Callable
import os
import threading
import time
from typing import Any


def _busyness() -> float:
    """Return how many processes share a core, at least 1."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


#: Until a test that hangs fails; longer on a busy machine.
DEADLINE_SECONDS = float(os.environ.get('TRT_ROS_TEST_DEADLINE_SECONDS', 60 * _busyness()))


def wait_until(
    condition: Callable[[], Any], what: str = 'a condition', pause: float = 0.01
) -> Any:
    """Wait until `condition`, called at most every `pause` seconds, is true; return its value."""
    began, busyness = time.monotonic(), _busyness()
    never = threading.Event()
    while not (result := condition()):
        waited = time.monotonic() - began
        if waited >= DEADLINE_SECONDS:
            # Others may have begun meanwhile.
            assert waited < DEADLINE_SECONDS * _busyness() / busyness, f'waited in vain for {what}'
        never.wait(pause)
    return result
