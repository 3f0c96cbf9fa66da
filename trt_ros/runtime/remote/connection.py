"""Requests of the KServe V2 protocol to an inference server, and memory shared with it."""

import mmap
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from trt_ros.errors import (
    BackendError,
    ClosedError,
    ParameterError,
    RemoteRefusedError,
    RemoteUnavailableError,
    TrtRosError,
    requires,
)
from trt_ros.progress import Reporter
from trt_ros.regular_file import MAX_TEXT_NBYTES, read_regular, reading
from trt_ros.runtime.remote.address import ModelAddress
from trt_ros.tensors import Arrays

POLL_SECONDS = 0.1  # Maximum delay of a cancellation.
CHANNEL_OPTIONS = (
    ('grpc.max_send_message_length', -1),
    ('grpc.max_receive_message_length', -1),
    # By default, gRPC waits up to 2 minutes before it connects again.
    ('grpc.initial_reconnect_backoff_ms', 100),
    ('grpc.min_reconnect_backoff_ms', 1000),
    ('grpc.max_reconnect_backoff_ms', 1000),
)


class NotOnServerError(RemoteUnavailableError):
    """A model or region of shared memory that the server does not have, as after a restart."""


class Connection:
    """
    A connection to an inference server, which gRPC opens again after it was lost.

    :param ca_path: PEM file of certificates; '' uses those of gRPC.
    :param token_path: file with a bearer token, read for each request; '' sends none.
    :raises BackendError: when tritonclient is not installed.
    :raises ParameterError: when a file cannot be read, or would not be used.
    """

    def __init__(self, address: ModelAddress, ca_path: str = '', token_path: str = '') -> None:
        self.address = address
        grpc, self._messages, services = _load_client()
        self._grpc = grpc
        options = list(CHANNEL_OPTIONS)
        if address.is_this_host:
            options.append(('grpc.enable_http_proxy', 0))
        if address.is_secure:
            self._channel = grpc.secure_channel(
                address.target, _credentials(grpc, ca_path, token_path), options
            )
        elif ca_path or token_path:
            raise ParameterError(
                f'remote_{"token" if token_path else "ca"}_path is set, but the connection to '
                f'{address} has no TLS.',
                cause='A token must not be sent in plain text.' if token_path else '',
                remedy='Use grpcs:// in model_path, or leave it out.',
            )
        else:
            self._channel = grpc.insecure_channel(address.target, options)
        self._stub: Any = services.GRPCInferenceServiceStub(self._channel)
        self._is_closed = False

    def call(
        self, method: str, timeout_seconds: float, report: Reporter | None = None, **fields: Any
    ) -> Any:
        """
        Send a request and wait for the reply; `report` cancels the wait.

        :raises RemoteUnavailableError: when the server does not answer in time; a
            NotOnServerError when it lacks what was requested.
        :raises RemoteRefusedError: when the server refuses or fails the request.
        """
        if self._is_closed:
            raise ClosedError(f'The connection to {self.address}')
        send = getattr(self._stub, method)
        request = getattr(self._messages, f'{method}Request')(**fields)
        try:
            if report is None:
                return send(request, timeout=timeout_seconds)
            future = send.future(request, timeout=timeout_seconds)
            while True:
                try:
                    return future.result(timeout=POLL_SECONDS)
                except self._grpc.FutureTimeoutError:
                    try:
                        report(f'waiting for {self.address.target}')
                    except BaseException:
                        future.cancel()
                        raise
        except self._grpc.RpcError as error:
            raise self._explain(error, timeout_seconds) from error

    def _explain(self, error: Any, timeout_seconds: float) -> TrtRosError:
        if self._is_closed:
            return ClosedError(f'The connection to {self.address}')
        code, details = error.code(), error.details() or ''
        status = self._grpc.StatusCode
        cause = f'{details} ({code.name})'
        if code is status.DEADLINE_EXCEEDED:
            return RemoteUnavailableError(
                f'{self.address} did not answer within {timeout_seconds:g} s.',
                cause=cause,
                remedy='Check the load of the server, or raise remote_timeout.',
            )
        if code is status.NOT_FOUND:
            return NotOnServerError(
                f'The server does not have {self.address}.',
                cause=cause,
                remedy='Load the model on the server, or correct model_path.',
            )
        if code in (status.UNAVAILABLE, status.CANCELLED):
            return RemoteUnavailableError(
                f'{self.address} is not available.',
                cause=cause,
                remedy='Start the server, or check address, port and TLS of model_path. Requests '
                'continue when it is back.',
            )
        return RemoteRefusedError(
            f'{self.address} refused a request.',
            cause=cause,
            remedy='Set remote_token_path to a file with a valid token.'
            if code in (status.UNAUTHENTICATED, status.PERMISSION_DENIED)
            else 'Check the log of the server, and that it has the expected version of the model.',
        )

    def close(self) -> None:
        """Close the connection and end its requests; may be called twice."""
        self._is_closed = True
        self._channel.close()


def _load_client() -> tuple[Any, Any, Any]:
    """Import gRPC and the protocol: grpc, messages, services."""
    # Its log lines would go to the log of the node, one per attempt to connect.
    os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
    package, remedy = 'the Python package tritonclient', "pip install 'tritonclient[grpc]'"
    with requires(package, 'The backend triton', remedy, BackendError):
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc
    return grpc, service_pb2, service_pb2_grpc


def _credentials(grpc: Any, ca_path: str, token_path: str) -> Any:
    roots = _read(ca_path, 'remote_ca_path') if ca_path else None
    secure = grpc.ssl_channel_credentials(root_certificates=roots)
    if not token_path:
        return secure
    _token(token_path)

    class Token(grpc.AuthMetadataPlugin):  # type: ignore[misc]
        def __call__(self, context: Any, callback: Any) -> None:
            try:
                callback((('authorization', f'Bearer {_token(token_path)}'),), None)
            except TrtRosError as error:
                callback((), error)

    return grpc.composite_channel_credentials(secure, grpc.metadata_call_credentials(Token()))


def _token(path: str) -> str:
    """Return the token of a file; errors do not repeat it."""
    token = _read(path, 'remote_token_path').strip()
    if not token or not all(0x20 < byte < 0x7F for byte in token):
        raise ParameterError(
            f'The file {path} of remote_token_path does not hold a token.',
            cause='It is empty, or has spaces or other bytes that a header cannot have.',
            remedy='Write the token alone to the file.',
        )
    return token.decode()


def _read(path: str, name: str) -> bytes:
    with reading(f'The file {path} of {name}', f'Correct {name}.', ParameterError):
        return read_regular(Path(path).expanduser(), MAX_TEXT_NBYTES)


ALIGNMENT = 64
_FOLDER = Path('/dev/shm')


class SharedInputs:
    """A named region of POSIX shared memory with one request's inputs; owned until close()."""

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

    def write(self, tensors: Arrays) -> dict[str, tuple[int, int]]:
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


def region_nbytes(tensors: Arrays) -> int:
    """Return the size of a region for these tensors."""
    return sum(_aligned(tensor.nbytes) for tensor in tensors.values())
