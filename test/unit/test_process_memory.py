"""Pages of the memory of a process."""

import ctypes
import errno
import mmap
from pathlib import Path
import re

import numpy as np
import pytest

from trt_ros.process_memory import use_huge_pages

HUGE_NBYTES = 2 << 20


@pytest.fixture
def block():
    """Two times 2 MiB of fresh memory, in a mapping that the kernel merges with no other."""
    pages = mmap.mmap(-1, 3 * HUGE_NBYTES, mmap.MAP_PRIVATE)
    pages.madvise(mmap.MADV_DONTDUMP)
    memory = np.frombuffer(pages, np.uint8)
    first = -memory.ctypes.data % HUGE_NBYTES
    return memory[first : first + 2 * HUGE_NBYTES]


def huge_nbytes(address: int) -> int:
    """Return the bytes in huge pages of the mapping of an address."""
    for part in re.split(r'\n(?=[0-9a-f]+-[0-9a-f]+ )', Path('/proc/self/smaps').read_text()):
        first, end = (int(each, 16) for each in part.split()[0].split('-'))
        if first <= address < end:
            return 1024 * int(re.search(r'AnonHugePages: +(\d+) kB', part)[1])
    raise AssertionError('not mapped')


def test_memory_in_use_gets_huge_pages_and_other_memory_no_pages(block):
    libc = ctypes.CDLL(None, use_errno=True)
    probe = np.ones(4 * HUGE_NBYTES, np.uint8)
    inside = probe.ctypes.data - probe.ctypes.data % -HUGE_NBYTES
    if libc.madvise(ctypes.c_void_p(inside), ctypes.c_size_t(HUGE_NBYTES), 25):
        pytest.skip(f'needs Linux 6.1 with huge pages: {errno.errorcode[ctypes.get_errno()]}')
    block[:HUGE_NBYTES:4096] = 7
    for start in range(HUGE_NBYTES, 2 * HUGE_NBYTES, 1 << 16):
        block[start : start + 50_000 : 4096] = 7  # Four fifths.
    assert huge_nbytes(block.ctypes.data) == 0
    use_huge_pages.__wrapped__()
    assert huge_nbytes(block.ctypes.data) == HUGE_NBYTES
    assert block[::65536].tolist() == [7] * 64
