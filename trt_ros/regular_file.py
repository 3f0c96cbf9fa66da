"""Files of hashed content, written atomically, and regular files that may be opened safely."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
import errno
import io
import os
from pathlib import Path
import stat
import threading
from typing import IO

from trt_ros.errors import DISK_FULL, ModelError, ParameterError, TrtRosError

MAX_TEXT_NBYTES = 1 << 20  # Hand-written files: labels, a calibration.
#: Beginnings of the address of a file to download, or of a local one.
FILE_SCHEMES = ('hf://', 'https://', 'http://', 'file://')


def open_regular(path: Path) -> IO[bytes]:
    """
    Open a regular file for reading.

    :raises OSError: when it cannot be opened, or is a folder, a named pipe, a socket or a device;
        opening or reading these may block forever, and some devices act when opened.
    """
    _refuse_special(path, os.stat(path))
    # Non-blocking: it may have been replaced by a named pipe since.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), 'rb')
    try:
        _refuse_special(path, os.fstat(file.fileno()))
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: Path, max_nbytes: int) -> bytes:
    """Read a regular file; raise OSError as `open_regular`, or above `max_nbytes` bytes."""
    with open_regular(path) as file:
        data = file.read(max_nbytes + 1)  # Files in /proc are longer than their reported size.
    if len(data) > max_nbytes:
        raise OSError(errno.EFBIG, f'File has more than {max_nbytes} bytes', str(path))
    return data


def system_text(path: Path) -> str:
    """Return the text of a file of the system without NUL and outer white space, '' without it."""
    try:
        return path.read_text(errors='replace').replace('\0', '').strip()
    except OSError:
        return ''


def sha256_of(file: IO[bytes]) -> str:
    """Return the SHA-256 of a file from its current position to the end."""
    from hashlib import sha256  # Loads OpenSSL, which --help does without.

    digest = sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a regular file."""
    with open_regular(path) as file:
        return sha256_of(file)


def check_output_folder(path: Path) -> None:
    """Raise ParameterError if the folder of a file to write does not exist."""
    if not os.path.isdir(path.parent):  # Path.is_dir raises for some invalid names.
        raise ParameterError(
            f'The file {path} cannot be written.',
            cause=f'The folder {path.parent} does not exist.',
            remedy='Create the folder, or use another one.',
        )


def check_output_file(path: Path) -> None:
    """Raise ParameterError if a file cannot be written, before a long run."""
    check_output_folder(path)
    if os.path.isdir(path):
        raise ParameterError(
            f'{path} cannot be written.',
            cause='It is a folder.',
            remedy='Add the name of the file.',
        )
    is_new = not os.path.exists(path)
    if not is_new and not path.is_file():
        return  # The reader of a pipe would see its end.
    with writing(path, 'Use a writable folder and file.'):
        path.open('ab').close()
        if is_new:
            path.resolve().unlink()  # Not a link to it.


@contextmanager
def reading(
    what: str, remedy: str, kind: type[TrtRosError] = ModelError, *, done: str = 'read'
) -> Iterator[None]:
    """Turn an OSError of reading into an error with its cause and the remedy."""
    try:
        yield
    except OSError as error:
        raise kind(
            f'{what} cannot be {done}.', cause=error.strerror or str(error), remedy=remedy
        ) from error


def writing(
    path: Path | str, remedy: str = 'Choose another folder with --output.'
) -> AbstractContextManager[None]:
    """Turn an OSError of writing into a ParameterError with the path and the remedy."""
    return reading(str(path), remedy, ParameterError, done='written')


@contextmanager
def writing_whole(path: Path, remedy: str) -> Iterator[None]:
    """Write a file anew as `writing`; what a full disk leaves of it is deleted."""
    with writing(path, remedy):
        try:
            yield
        except OSError as error:
            if error.errno in DISK_FULL and path.is_file():
                path.unlink()
            raise


def write_text(
    path: Path, text: str, remedy: str = 'Choose another folder with --output.'
) -> None:
    """Write a text file anew, or raise ParameterError; see `writing_whole`."""
    with writing_whole(path, remedy):
        path.write_text(text, encoding='utf-8')


@contextmanager
def parsing(problem: str, remedy: str, *more: type[Exception]) -> Iterator[None]:
    """Turn errors of a file and of its content, and `more` of a parser, into a ParameterError."""
    expected: tuple[type[Exception], ...] = (
        *(OSError, ValueError, TypeError, KeyError, RecursionError),
        *more,
    )
    try:
        yield
    except expected as error:
        raise ParameterError(
            problem, cause=f'{type(error).__name__}: {error}', remedy=remedy
        ) from error


def _refuse_special(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, 'Not a regular file, but a pipe, socket or device', str(path))


PART = '.part'  # Suffix of files being written; the next writer removes leftovers.
_MAX_NBYTES = 1 << 30
_DIGEST_NBYTES = 32


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a file that replaces `path` at the end; an exception deletes it."""
    part = path.with_name(f'.{path.name}.{os.getpid()}.{threading.get_native_id()}{PART}')
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_atomically(
    path: Path, source: IO[bytes], sync: Callable[[int], None] = os.fsync
) -> None:
    """Write the rest of `source` to `path` and to the disk: completely or not at all."""
    from shutil import copyfileobj

    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    with replacing(path) as part, os.fdopen(os.open(part, flags, 0o600), 'wb') as file:
        copyfileobj(source, file, 1 << 20)
        file.flush()
        sync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        sync(folder)
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
        import logging  # As slow to import as all of this module.

        if not data or self.load() == data:
            return False
        try:
            write_atomically(self.path, io.BytesIO(_digest(data) + data))
        except OSError as error:
            log = logging.getLogger('trt_ros.engine')
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
        if _digest(data) != digest:
            return 'its SHA-256 differs from the one it begins with'
        return data


def _digest(data: bytes) -> bytes:
    return bytes.fromhex(sha256_of(io.BytesIO(data)))
