"""Servers with the networks of the tests."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
import shutil
import subprocess

import pytest

from trt_ros.cli import main


@pytest.fixture(scope='session')
def exported(tmp_path_factory) -> Callable[[Path], Path]:
    """Return a function that exports a model for a server, once per name and content."""

    @cache
    def export(name: str, content: bytes) -> Path:
        folder = tmp_path_factory.mktemp('exported')
        (folder / name).write_bytes(content)
        assert main(['triton', str(folder / name), '--output', str(folder / 'repository')]) == 0
        return folder / 'repository'

    return lambda path: export(path.name, path.read_bytes())


@pytest.fixture
def serve(tmp_path, exported) -> Callable:
    """Start a server of ONNX files, each by the stem of its name; on request as a process."""
    pytest.importorskip('tritonclient.grpc')
    from support.kserve_server import ServerProcess, ServerThread

    with ExitStack() as stack:

        def start(*models: Path, arguments=(), kind=ServerThread):
            repository = tmp_path / 'repository'
            for path in models:
                shutil.copytree(exported(path), repository, dirs_exist_ok=True)
            return stack.enter_context(kind(repository, *map(str, arguments)))

        start.process = partial(start, kind=ServerProcess)
        yield start


@pytest.fixture(scope='session')
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    """Return the files of a certificate of localhost and of its key."""
    folder = tmp_path_factory.mktemp('tls')
    command = 'openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'
    try:
        subprocess.run(
            [
                *command.split(),
                *('-keyout', folder / 'key.pem', '-out', folder / 'certificate.pem'),
                *('-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'),
            ],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip('openssl is not installed')
    return folder / 'certificate.pem', folder / 'key.pem'
