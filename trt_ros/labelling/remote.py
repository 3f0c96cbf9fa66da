"""Recordings and outputs by URL, as local copies while they are labeled."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trt_ros.errors import ParameterError, TrtRosError, requires
from trt_ros.labelling.task import LabelTask


def path_of(text: str) -> Path:
    """Return a path, or for a URL an object of universal_pathlib, or raise ParameterError."""
    if '://' not in text:
        return Path(text)
    remedy = 'pip install universal_pathlib, and s3fs for s3:// or gcsfs for gs://.'
    with requires('the Python package universal_pathlib', text, remedy):
        from upath import UPath
    try:
        found: Any = UPath(text)
    except ValueError as error:
        raise ParameterError(
            f'{text}: {error}.', remedy='Correct the scheme of the URL.'
        ) from error
    with requires('a package for its kind', text, remedy):
        found.fs  # noqa: B018  # Imports it.
    return found  # type: ignore[no-any-return]


@contextmanager
def local_copy(task: LabelTask) -> Iterator[LabelTask]:
    """Yield a task of local files: a copy of the recording, and outputs to upload at the end."""
    source: Any = task.path
    output: Any = task.output
    if isinstance(source, Path) and isinstance(output, Path):
        yield task
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        with _copying(task):
            if not isinstance(source, Path):
                source.fs.get(source.path, str(folder / source.name), recursive=True)
                source = folder / source.name
            if not isinstance(output, Path):
                (folder / 'outputs').mkdir()
                output = folder / 'outputs' / output.name
                if task.output.exists():
                    output.write_bytes(task.output.read_bytes())
        yield replace(task, path=source, output=output)
        if output is not task.output:
            with _copying(task):
                target: Any = task.output.parent
                target.fs.put(f'{output.parent}/', f'{target.path}/', recursive=True)


@contextmanager
def _copying(task: LabelTask) -> Iterator[None]:
    try:
        yield
    except TrtRosError:
        raise
    except Exception as error:  # Each storage raises its own.
        raise ParameterError(
            f'Files of {task.path} or {task.output} cannot be copied.',
            cause=str(error),
            remedy='Correct the addresses, or the access to their storage.',
        ) from error
