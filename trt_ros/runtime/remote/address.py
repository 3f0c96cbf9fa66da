"""Addresses of models of inference servers: grpc://HOST:PORT/NAME/VERSION."""

from dataclasses import dataclass
from ipaddress import ip_address
import socket
from urllib.parse import unquote, urlsplit

from trt_ros.errors import ParameterError

DEFAULT_PORT = 8001
_FORM = 'Write grpc://HOST[:PORT]/NAME[/VERSION], or grpcs:// for TLS.'


@dataclass(frozen=True)
class ModelAddress:
    """
    A model of an inference server.

    :param target: 'HOST:PORT'; an IPv6 address is in brackets.
    :param is_secure: whether to use TLS.
    :param version: '' lets the server choose.
    """

    host: str
    port: int
    name: str
    version: str = ''
    is_secure: bool = False

    @property
    def target(self) -> str:
        """Host and port, as gRPC takes them."""
        host = f'[{self.host}]' if ':' in self.host else self.host
        return f'{host}:{self.port}'

    @property
    def is_this_host(self) -> bool:
        """Whether the server runs on this host, by its address."""
        if self.host in ('localhost', socket.gethostname()):
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        scheme = 'grpcs' if self.is_secure else 'grpc'
        return '/'.join(filter(None, [f'{scheme}://{self.target}', self.name, self.version]))


def parse_address(text: str) -> ModelAddress:
    """
    Parse the address of a model.

    >>> str(parse_address('grpc://gpu-server/yolov8s'))
    'grpc://gpu-server:8001/yolov8s'

    :raises ParameterError: when it is malformed. A password in it is not repeated.
    """
    try:
        url = urlsplit(text)
        port = url.port or DEFAULT_PORT
    except ValueError as error:
        raise ParameterError(
            f'The address {_without_user(text)} is malformed.', cause=str(error), remedy=_FORM
        ) from error
    if url.username or url.password:
        raise ParameterError(
            f'The address {_without_user(text)} contains a user or password.',
            cause='Log and diagnostics show the address.',
            remedy='Write a token to a file, and set remote_token_path.',
        )
    name, *version = [unquote(part) for part in url.path.removeprefix('/').split('/')]
    if not url.hostname or not name or len(version) > 1 or url.query or url.fragment:
        raise ParameterError(f'The address {text} does not name a model.', remedy=_FORM)
    return ModelAddress(url.hostname, port, name, ''.join(version), url.scheme == 'grpcs')


def _without_user(text: str) -> str:
    scheme, _, rest = text.partition('://')
    return f'{scheme}://{rest.rpartition("@")[2]}'
