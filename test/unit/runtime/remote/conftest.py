"""Servers with the networks of the tests."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
import subprocess

import pytest

from trt_ros.cli import main


@pytest.fixture
def serve(tmp_path) -> Callable:
    """Start a server of ONNX files, each by the stem of its name; on request as a process."""
    pytest.importorskip('tritonclient.grpc')
    from support.kserve_server import ServerProcess, ServerThread

    with ExitStack() as stack:

        def start(*models: Path, arguments=(), kind=ServerThread):
            repository = tmp_path / 'repository'
            for path in models:
                assert main(['triton', str(path), '--output', str(repository)]) == 0
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
