"""Arrays in memory of which the address is known."""

import ctypes
from typing import Any

import numpy as np

from trt_ros.cuda.copies import Blocks


def array_at(address: int, shape: tuple[int, ...], dtype: Any = 'float32') -> np.ndarray:
    """Return a view of host memory."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = (ctypes.c_uint8 * count).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)


#: Place of the image, place of its copy, and what is read.
FETCHES = {
    'whole': (52, 0, Blocks(0, 7001, 7001, 1)),
    'rows': (52, 256, Blocks(5760, 17280, 5760, 11)),
    'odd rows': (52, 0, Blocks(9, 27, 9, 5)),
    'odd place': (57, 0, Blocks(0, 5000, 5000, 1)),
    'odd target': (52, 1, Blocks(4, 12, 8, 100)),
}


def fetched(image: np.ndarray, blocks: Blocks) -> np.ndarray:
    """Return the bytes of an image that are read."""
    starts = blocks.first + blocks.period * np.arange(blocks.count)
    return image[starts[:, None] + np.arange(blocks.nbytes)].reshape(-1)


def copies_of_all_sizes(largest: int) -> tuple[list[tuple[int, int, int]], int]:
    """Return 40 copies of (target, source, bytes) at offsets in memory of so many bytes."""
    rng = np.random.default_rng(0)
    copies, end = [], 0
    for number in range(40):
        nbytes = int(rng.choice([0, 1, 4, 17, 28, 192, 1000, 4096, largest, largest + 5]))
        # Every third one is aligned on both sides, as tensors are.
        gaps = (0, 0) if number % 3 == 0 else rng.integers(1, 16, 2)
        start = -(-end // 256) * 256
        copies.append((start + int(gaps[0]), start + int(gaps[1]), nbytes))
        end = start + nbytes + 16
    return copies, end + 256


def copied(copies: list[tuple[int, int, int]], source: np.ndarray) -> np.ndarray:
    """Return memory of zeros after copies of bytes from `source`."""
    target = np.zeros_like(source)
    for to, start, nbytes in copies:
        target[to : to + nbytes] = source[start : start + nbytes]
    return target
