"""Arrays of files: .npy and .npz of NumPy, .safetensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.lib.format import open_memmap, read_array

from trt_ros.errors import ParameterError, meant
from trt_ros.regular_file import open_regular
from trt_ros.tensors import MAX_ELEMENTS

MAX_NBYTES = 8 * MAX_ELEMENTS
#: Returns the array of a name.
Reader = Callable[[str], np.ndarray]


def is_array_file(path: str) -> bool:
    """Return whether a path ends like that of a file with arrays."""
    return Path(path).suffix in FILES


def read_file(path: Path, name: str, likely: str) -> np.ndarray:
    """
    Return an array of a file, without reading more than it has.

    :param name: of the array; '' for the only one, or that named `likely`.
    :raises ParameterError: when the file cannot be read, or has no such array.
    """
    try:
        open_regular(path).close()
        with FILES[path.suffix](path) as (names, read):
            wanted = name or (names[0] if len(names) == 1 else likely)
            if wanted in names:
                found: np.ndarray = read(wanted)
                return found
    except ParameterError:
        raise
    except Exception as error:  # The readers raise errors of many kinds on damaged files.
        raise ParameterError(
            f'The file {path} cannot be read.',
            cause=str(error) or type(error).__name__,
            remedy='Write it with numpy.save(), numpy.savez() or safetensors.numpy.save_file().',
        ) from error
    raise ParameterError(
        f'The file {path} has no array {wanted!r}.',
        cause=f'It has {", ".join(names) or "none"}.',
        remedy=f'{meant(wanted, names)}Name one of them: {path.name}#NAME.',
    )


@contextmanager
def _npy(path: Path) -> Iterator[tuple[list[str], Reader]]:
    # A header may claim any size.
    found: np.ndarray = open_memmap(path, mode='r')  # type: ignore[no-untyped-call]
    yield [path.stem], lambda _: found


@contextmanager
def _npz(path: Path) -> Iterator[tuple[list[str], Reader]]:
    with ZipFile(path) as archive:

        def read(name: str) -> np.ndarray:
            entry = archive.getinfo(f'{name}.npy')
            if entry.file_size > MAX_NBYTES:
                raise ValueError(f'{name} has {entry.file_size} bytes; the limit is {MAX_NBYTES}.')
            found: np.ndarray = read_array(  # type: ignore[no-untyped-call]
                BytesIO(archive.read(entry)), allow_pickle=False
            )
            return found

        yield [each.removesuffix('.npy') for each in archive.namelist()], read


@contextmanager
def _safetensors(path: Path) -> Iterator[tuple[list[str], Reader]]:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise ParameterError(
            f'{path} needs safetensors, which is not installed.',
            cause=str(error),
            remedy='pip install safetensors, or write the arrays with numpy.savez().',
        ) from error
    with safe_open(path, 'numpy') as file:
        yield list(file.keys()), file.get_tensor


#: Readers by the end of the path; each yields the names of the arrays, and reads one.
FILES: Mapping[str, Any] = {'.npy': _npy, '.npz': _npz, '.safetensors': _safetensors}
