"""What differs between processors: pages, layouts, unaligned values and the sign of char."""

import ctypes
import mmap
from pathlib import Path
import re

import numpy as np
import pytest

import trt_ros
from trt_ros.ros.dds import rcl
from trt_ros.ros.dds.memory import Pool, whole_pages


@pytest.mark.parametrize('nbytes', [1, 65536, 65537])
def test_memory_is_whole_pages(nbytes):
    memory = whole_pages(nbytes)
    assert nbytes <= memory.size < nbytes + mmap.PAGESIZE
    assert memory.size % mmap.PAGESIZE == 0
    taken = Pool().take(nbytes)
    assert taken.size == nbytes and taken.flags.writeable


def test_structures_of_rcl_are_laid_out_as_in_c_and_values_need_no_alignment():
    assert [getattr(rcl._Bytes, name).offset for name, _ in rcl._Bytes._fields_] == [0, 8, 16, 24]
    assert ctypes.sizeof(rcl._Allocator) == 40
    info = rcl.MessageInfo()
    np.frombuffer(info, np.uint8)[:256] = range(256)
    reader = object.__new__(rcl.Rcl)
    assert reader.number_in(info) == int.from_bytes(bytes(range(16, 24)), 'little')
    reader._gid_at = 33
    assert reader.gid_in(info) == bytes(range(33, 49))


def test_no_kernel_computes_with_plain_char():
    """Its sign differs: unsigned on Arm."""
    folder = Path(trt_ros.__file__).parent
    for path in [*folder.rglob('*.cu'), *(folder.parent / 'cpp').glob('*.?pp')]:
        plain = r'(?<!unsigned )(?<!signed )\bchar\b(?! *[*)]| k\w+\[)'
        assert not re.findall(plain, path.read_text()), path
