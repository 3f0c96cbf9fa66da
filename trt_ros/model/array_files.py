"""Arrays of files: .npy and .npz of NumPy, .safetensors."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
import math
from pathlib import Path
import re
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap, read_array

from trt_ros.errors import BadFrameError, ParameterError, TrtRosError, meant, requires
from trt_ros.regular_file import open_regular
from trt_ros.tensors import MAX_ELEMENTS, TensorSpec

_NPY_HEADER_NBYTES = 1 << 14  # At most: NumPy reads no longer ones.
#: Returns the array of a name.
Reader = Callable[[str], np.ndarray]


def parse_path(text: str) -> tuple[Path, str] | None:
    """
    Return the path of a file with arrays, and the name behind '#'; None for other text.

    >>> parse_path('run#2/start.npz#h0')
    (PosixPath('run#2/start.npz'), 'h0')
    """
    found = _PATH.fullmatch(text)
    return found and (Path(found[1]), found[2] or '')


def read_file(path: Path, name: str, spec: TensorSpec) -> np.ndarray:
    """Return an array of a file for an input, without reading more; '' takes the input's name."""
    limit = MAX_ELEMENTS if spec.is_dynamic else math.prod(spec.shape)
    with _opened(path, limit) as (names, read):
        wanted = name or (names[0] if len(names) == 1 else spec.name)
        if wanted in names:
            found: np.ndarray = read(wanted)
            return found
    raise ParameterError(
        f'The file {path} has no array {wanted!r}.',
        cause=f'It has {", ".join(names) or "none"}.',
        remedy=f'{meant(wanted, names)}Name one of them: {path.name}#NAME.',
    )


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of a file by name, or raise BadFrameError."""
    with _opened(path, MAX_ELEMENTS, partial(BadFrameError, 'unreadable file')) as (names, read):
        return {name: read(name) for name in names}


@contextmanager
def _opened(
    path: Path, limit: int, kind: Callable[..., TrtRosError] = ParameterError
) -> Iterator[tuple[list[str], Reader]]:
    try:
        open_regular(path).close()
        with FILES[path.suffix](path, limit) as found:
            yield found
    except ParameterError:
        raise
    except Exception as error:  # The readers raise errors of many kinds on damaged files.
        raise kind(
            f'The file {path} cannot be read.',
            cause=str(error) or type(error).__name__,
            remedy='Write it with numpy.save(), numpy.savez() or safetensors.numpy.save_file().',
        ) from error


@contextmanager
def _npy(path: Path, limit: int) -> Iterator[tuple[list[str], Reader]]:
    # A header may claim any size.
    found: np.ndarray = open_memmap(path, mode='r')  # type: ignore[no-untyped-call]
    _refuse_large(found.size, 'elements', MAX_ELEMENTS)
    yield [path.stem], lambda _: found


@contextmanager
def _npz(path: Path, limit: int) -> Iterator[tuple[list[str], Reader]]:
    from zipfile import ZipFile  # Imported here: most networks need no such file.

    with ZipFile(path) as archive:

        def read(name: str) -> np.ndarray:
            entry = archive.getinfo(f'{name}.npy')
            _refuse_large(entry.file_size, 'bytes', 8 * limit + _NPY_HEADER_NBYTES)
            with archive.open(entry) as file:  # It may unpack to more than it says.
                found: np.ndarray = read_array(  # type: ignore[no-untyped-call]
                    file, allow_pickle=False
                )
            return found

        yield [each.removesuffix('.npy') for each in archive.namelist()], read


@contextmanager
def _safetensors(path: Path, limit: int) -> Iterator[tuple[list[str], Reader]]:
    remedy = 'pip install safetensors, or write the arrays with numpy.savez().'
    with requires('safetensors', str(path), remedy):
        from safetensors import safe_open
    with safe_open(path, 'numpy') as file:

        def read(name: str) -> np.ndarray:
            part = file.get_slice(name)
            _refuse_large(math.prod(part.get_shape()), 'elements', MAX_ELEMENTS)
            kind = part.get_dtype()
            if kind == 'BF16':
                import_module('ml_dtypes')  # Defines bfloat16 for NumPy.
            try:
                found: np.ndarray = file.get_tensor(name)
            except (AttributeError, TypeError) as error:
                raise ValueError(f'{name} is of the type {kind}, which NumPy lacks.') from error
            return found.astype(np.float32) if kind == 'BF16' else found

        yield list(file.keys()), read


def _refuse_large(count: int, unit: str, limit: int) -> None:
    if count > limit:
        raise ValueError(f'The array has {count} {unit}; the limit is {limit}.')


#: Readers by the end of the path, for arrays up to a number of elements; each yields the names of
#: the arrays, and reads one.
FILES: Mapping[str, Any] = {'.npy': _npy, '.npz': _npz, '.safetensors': _safetensors}
_PATH = re.compile(rf'(.+?(?:{"|".join(map(re.escape, FILES))}))\s*(?:#\s*(.*))?')
