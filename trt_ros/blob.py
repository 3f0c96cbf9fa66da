"""Files written as a whole or not at all, and data of libraries kept for the next process."""

import hashlib
import io
import logging
import os
from pathlib import Path
import shutil
import threading
from typing import IO

from trt_ros.regular_file import read_regular

PART = '.part'  # Suffix of files being written; the next writer removes leftovers.
_MAX_NBYTES = 1 << 30
_DIGEST_NBYTES = 32
log = logging.getLogger('trt_ros.engine')


def write_atomically(path: Path, source: IO[bytes]) -> None:
    """Write the rest of `source` to `path` and to the disk: completely or not at all."""
    part = path.with_name(f'.{path.name}.{os.getpid()}.{threading.get_native_id()}{PART}')
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), 'wb') as file:
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Blob:
    """A file of library data for the next process, such as kernels; begins with its SHA-256."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> bytes | None:
        """Return the data; None if the file is missing or damaged."""
        data = self._read()
        return data if isinstance(data, bytes) else None

    def problem(self) -> str:
        """Return why the file is ignored, '' if it is used."""
        data = self._read()
        return data if isinstance(data, str) else ''

    def save(self, data: bytes) -> bool:
        """Write the data unless it is empty or unchanged; return whether the file was written."""
        if not data or self.load() == data:
            return False
        try:
            write_atomically(self.path, io.BytesIO(hashlib.sha256(data).digest() + data))
        except OSError as error:
            log.warning('Cannot write %s: %s', self.path, error.strerror)
            return False
        return True

    def _read(self) -> bytes | str:
        """Return the data, or why they cannot be used."""
        try:
            raw = read_regular(self.path, _MAX_NBYTES)
        except OSError as error:
            return error.strerror or str(error)
        digest, data = raw[:_DIGEST_NBYTES], raw[_DIGEST_NBYTES:]
        if hashlib.sha256(data).digest() != digest:
            return 'its SHA-256 differs from the one it begins with'
        return data
