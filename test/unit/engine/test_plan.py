"""A plan's header, without any library; and what is refused before one is asked."""

import struct

import pytest

from trt_ros.engine.engine import load_engine
from trt_ros.engine.plan import is_plan, parse_plan_header
from trt_ros.errors import BackendError, ModelError


def header(magic=b'vtrt', version=(1, 5, 0, 114), nbytes=64, targets=0b1110):
    """Give 64 bytes as tensorrt_rtx writes them."""
    return struct.pack('<4sI8xQ4B4sQ24x', magic, 0, nbytes, *version, b'vtrt', targets)


def test_reads_version_size_and_each_target_of_headers():
    found = parse_plan_header(header())
    assert (found.library, found.version_text, found.nbytes) == ('tensorrt_rtx', '1.5.0.114', 64)
    assert found.compute_capabilities == ((8, 0), (8, 6), (8, 9))
    found = parse_plan_header(header(b'ftrt', (10, 3, 0, 26)))
    assert (found.library, found.version, found.nbytes) == ('tensorrt', (10, 3, 0, 26), None)
    gpus = ((7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1))
    for bit, gpu in enumerate(gpus):
        assert parse_plan_header(header(targets=1 << bit)).compute_capabilities == (gpu,)
    assert parse_plan_header(header(targets=63)).compute_capabilities == gpus


@pytest.mark.parametrize(
    ('data', 'found'),
    [(b'', False), (b'vt', False), (b'\x08\x08\x12\x04', False), (b'vtrt', True), (b'ftrt', True)],
)
def test_plans_are_recognized_by_magic_bytes(tmp_path, data, found):
    path = tmp_path / 'file'
    path.write_bytes(data)
    assert is_plan(path) is found


def test_missing_file_is_not_a_plan(tmp_path):
    assert not is_plan(tmp_path / 'gone')
    with pytest.raises(ModelError, match='cannot be read'):
        load_engine(tmp_path / 'gone')


@pytest.mark.parametrize(
    ('data', 'problem'),
    [
        (b'\x08\x08' * 40, 'is not a TensorRT engine'),
        (b'', 'only 0 bytes'),
        (header()[:63], 'only 63 bytes'),
        (header(nbytes=1000), 'is 64 bytes; according to its header it is 1000'),
    ],
    ids=['another format', 'empty', 'a part of the header', 'a part of the plan'],
)
def test_bytes_that_are_no_whole_engine_are_refused(data, problem):
    with pytest.raises(ModelError, match=problem):
        load_engine(data)


def test_an_engine_of_another_release_is_refused_before_the_library_sees_it(tmp_path, rtx):
    path = tmp_path / 'old.engine'
    path.write_bytes(header(version=(1, 3, 0, 76)))
    with pytest.raises(ModelError, match=r'It was built by tensorrt_rtx 1\.3\.0\.76') as caught:
        load_engine(path)
    assert 'trt-ros build' in caught.value.remedy


def test_engine_of_missing_library_reports_what_to_install(tmp_path, no_tensorrt):
    path = tmp_path / 'foreign.engine'
    path.write_bytes(header(b'ftrt', (10, 3, 0, 26)))
    with pytest.raises(BackendError, match='pip install tensorrt'):
        load_engine(path)


def test_missing_gpu_is_reported_before_library_hides_it(rtx, no_gpu):
    with pytest.raises(BackendError, match='No usable NVIDIA GPU found'):
        load_engine(header(version=rtx.version))
