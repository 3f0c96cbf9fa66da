"""Addresses of models of inference servers."""

import pytest

from trt_ros.errors import ParameterError
from trt_ros.runtime.remote.address import parse_address


@pytest.mark.parametrize(
    'text, target, name, version, is_secure',
    [
        ('grpc://gpu:9000/net', 'gpu:9000', 'net', '', False),
        ('grpc://gpu/net/3', 'gpu:8001', 'net', '3', False),
        ('grpcs://10.0.0.2/a%20b', '10.0.0.2:8001', 'a b', '', True),
        ('grpc://[::1]:8001/net', '[::1]:8001', 'net', '', False),
    ],
)
def test_address_has_host_model_and_version(text, target, name, version, is_secure):
    address = parse_address(text)
    assert (address.target, address.name) == (target, name)
    assert (address.version, address.is_secure) == (version, is_secure)


NAMES_NONE = r'does not name a model\.\nRemedy: Write grpc://HOST'
MALFORMED = r'is malformed\.\nCause: '


@pytest.mark.parametrize(
    ('text', 'problem'),
    [
        ('grpc://', NAMES_NONE),
        ('grpc://gpu', NAMES_NONE),
        ('grpc://gpu/', NAMES_NONE),
        ('grpc:///net', NAMES_NONE),
        ('grpc://gpu/net/1/2', NAMES_NONE),
        ('grpc://g/n?x=1', NAMES_NONE),
        ('grpc://gpu:port/net', MALFORMED),
        ('grpc://gpu:70000/net', MALFORMED),
        ('grpc://[gpu/net', MALFORMED),
    ],
)
def test_address_of_no_model_is_refused(text, problem):
    with pytest.raises(ParameterError, match=problem):
        parse_address(text)


@pytest.mark.parametrize('text', ['grpc://me:secret@gpu/net', 'grpc://secret@gpu:x/net'])
def test_error_does_not_repeat_a_password_of_the_address(text):
    with pytest.raises(ParameterError, match='gpu') as raised:
        parse_address(text)
    assert 'secret' not in str(raised.value)


@pytest.mark.parametrize(
    'host, is_this',
    [('localhost', True), ('127.0.0.1', True), ('[::1]', True), ('10.0.0.2', False)],
)
def test_loopback_addresses_are_this_host(host, is_this):
    assert parse_address(f'grpc://{host}/net').is_this_host == is_this
