"""Settings of a process for large arrays that come and go, and for several threads."""

from collections.abc import Mapping
from contextlib import suppress
import ctypes
from functools import cache
import gc
import mmap
from pathlib import Path
import sys
from typing import Any

_PROFILES = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
_TRANSPORTS = 'FASTDDS_BUILTIN_TRANSPORTS'
_HUGE_NBYTES = 2 << 20
_MADV_COLLAPSE = 25
FAST_DDS_VARIABLES = (*_PROFILES, _TRANSPORTS)


def fast_dds_variables(environment: Mapping[str, str], profile: str) -> dict[str, str]:
    """
    Return the variables that enlarge the shared memory of Fast DDS for images; {} if they are set.

    Its default of 512 KiB loses almost every image. Only the setting of the sender counts, so a
    camera driver needs it, too.
    """
    is_local = (
        environment.get('ROS_AUTOMATIC_DISCOVERY_RANGE') == 'LOCALHOST'
        or environment.get('ROS_LOCALHOST_ONLY') == '1'
    )
    # rmw_fastrtps replaces the built-in transports then, but keeps those of a profile.
    if {*_PROFILES, *([] if is_local else [_TRANSPORTS])} & environment.keys():
        return {}
    if is_local:
        return dict.fromkeys(_PROFILES, profile)
    return {_TRANSPORTS: 'DEFAULT?sockets_size=32MB'}


def tune_process() -> None:
    """
    Keep freed memory in the process, and do what tune_embedded_python() does.

    glibc maps and unmaps every large block, so that each image causes new page faults: 14.7 ms for
    1920×1080 from rclpy to rclpy, 3.4 ms when the memory is kept.
    """
    tune_embedded_python()
    m_trim_threshold, m_mmap_threshold = -1, -3
    _call('mallopt', m_mmap_threshold, 1 << 30)
    _call('mallopt', m_trim_threshold, 2**31 - 1)


def tune_embedded_python() -> None:
    """
    Shorten the GIL switch interval, and let all threads share two arenas of memory.

    A thread that waits for the GIL waits for a whole switch interval, 5 ms by default. glibc gives
    new threads arenas of their own, which keep freed memory: three nodes that were configured
    fifty times held 370 MB, and 200 MB with shared arenas.
    """
    sys.setswitchinterval(5e-4)
    m_arena_max = -8
    _call('mallopt', m_arena_max, 2)


def release_freed_memory() -> None:
    """
    Return freed memory of all arenas to the system, in about 3 ms.

    In a C++ container, threads have arenas before tune_embedded_python() can limit their number.
    """
    _call('malloc_trim', 0)


def freeze_garbage_collector() -> None:
    """
    Collect garbage, and exclude all present objects from future collections.

    A full collection then takes almost no time, instead of 3 ms for a bare node and 60 ms with
    torch imported.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@cache
def use_huge_pages() -> None:
    """
    Keep the present memory of the process in pages of 2 MiB, with Linux 6.1 or newer.

    That of which nine tenths are in use, unless the system never does so. After a pause, the
    tables of 4 KiB pages are no longer in the caches of the CPU. The first call counts: it stops
    other threads for up to 0.1 s.
    """
    pages_of_huge = _HUGE_NBYTES // mmap.PAGESIZE
    with suppress(OSError), open('/proc/self/pagemap', 'rb', buffering=0) as pagemap:
        if '[never]' in Path('/sys/kernel/mm/transparent_hugepage/enabled').read_text():
            return
        for line in Path('/proc/self/maps').read_text().splitlines():
            bounds, access, _, _, inode, *name = line.split()
            if access != 'rw-p' or inode != '0' or name not in ([], ['[heap]']):
                continue
            first, end = (int(each, 16) for each in bounds.split('-'))
            first += -first % _HUGE_NBYTES
            for start in range(first, end - _HUGE_NBYTES + 1, _HUGE_NBYTES):
                pagemap.seek(start // mmap.PAGESIZE * 8)
                flags = pagemap.read(pages_of_huge * 8)[7::8]  # The highest bit: it is present.
                if flags.count(0) < pages_of_huge / 10:
                    address, nbytes = ctypes.c_void_p(start), ctypes.c_size_t(_HUGE_NBYTES)
                    _call('madvise', address, nbytes, _MADV_COLLAPSE)


def _call(function: str, *arguments: Any) -> None:
    glibc = ctypes.CDLL(None)
    if hasattr(glibc, function):  # Not in musl.
        getattr(glibc, function)(*arguments)
