"""ROS domains that the demos and tests of one machine do not share."""

from collections.abc import Iterator
from contextlib import contextmanager
import fcntl
from pathlib import Path
import random
import tempfile

from trt_ros.errors import TrtRosError


@contextmanager
def reserved_domain() -> Iterator[int]:
    """
    Hold a ROS domain that no other demo or test run on this machine uses at this time.

    :raises TrtRosError: when all are in use.
    """
    for number in random.sample(range(1, 101), 100):
        path = Path(tempfile.gettempdir()) / f'trt_ros_test_domain_{number}.lock'
        try:
            lock = path.open('w')
        except PermissionError:  # Another user's.
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = path.samefile(f'/proc/self/fd/{lock.fileno()}')
            except (BlockingIOError, FileNotFoundError):
                is_held = False
            if not is_held:  # Or its last holder has removed it meanwhile.
                continue
            yield number
            path.unlink(missing_ok=True)
            return
    raise TrtRosError('All ROS domains are in use.', remedy='End other demos and test runs.')
