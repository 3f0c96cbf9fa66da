"""Memory that an inference server on the same host reads in place."""

from collections.abc import Mapping
import mmap
import os
from pathlib import Path
from uuid import uuid4

import numpy as np

ALIGNMENT = 64
_FOLDER = Path('/dev/shm')


class SharedInputs:
    """
    A region of POSIX shared memory with the inputs of one request. Owns it until close().

    :ivar name: name of the region.
    """

    def __init__(self, nbytes: int) -> None:
        self.name, self.nbytes = f'trt_ros_{uuid4().hex}', nbytes
        self._path = _FOLDER / self.name
        descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            # Allocated now: a full /dev/shm would otherwise be a SIGBUS at the first write.
            os.posix_fallocate(descriptor, 0, nbytes)
            self._memory = mmap.mmap(descriptor, nbytes)
        except BaseException:
            self._path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    @property
    def key(self) -> str:
        """Key of the region for shm_open."""
        return f'/{self.name}'

    def write(self, tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[int, int]]:
        """Copy tensors, which fit; return offset and size by name."""
        placed, offset = {}, 0
        for name, tensor in tensors.items():
            np.frombuffer(self._memory, tensor.dtype, tensor.size, offset)[:] = tensor.reshape(-1)
            placed[name] = (offset, tensor.nbytes)
            offset += _aligned(tensor.nbytes)
        return placed

    def unlink(self) -> None:
        """Remove the name, once the server has mapped the memory: a killed process leaves none."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove name and memory; may be called twice."""
        self.unlink()
        self._memory.close()


def _aligned(nbytes: int) -> int:
    """Return a size rounded up, so that the next tensor is aligned."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def region_nbytes(tensors: Mapping[str, np.ndarray]) -> int:
    """Return the size of a region for these tensors."""
    return sum(_aligned(tensor.nbytes) for tensor in tensors.values())
