"""The door to TensorRT: found, of one version, with one quiet logger."""

from importlib.machinery import ModuleSpec
import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest

from trt_ros import trt as backend
from trt_ros.driver import nvidia_driver
from trt_ros.errors import BackendError
from trt_ros.trt import Library, installed, library_version, load_trt, numbers


def test_a_library_that_is_not_installed_says_how_to_get_it(monkeypatch):
    for name in ('tensorrt', 'tensorrt_rtx'):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, f'{name}_bindings', None)
    with pytest.raises(BackendError, match=r'looked for tensorrt, tensorrt_rtx(?s:.*)pip install'):
        load_trt()
    with pytest.raises(BackendError, match=r'looked for tensorrt\)'):
        load_trt('tensorrt')


def test_folder_named_tensorrt_is_not_imported(monkeypatch, tmp_path):
    if installed('tensorrt'):
        pytest.skip('tensorrt is installed')
    (tmp_path / 'tensorrt').mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not installed('tensorrt')
    with pytest.raises(BackendError, match='TensorRT is not installed'):
        load_trt('tensorrt')


@pytest.mark.parametrize(
    ('text', 'found'),
    [
        ('', ()),
        ('10.13.3.9.post1', (10, 13, 3, 9)),
        ('11.0.0.114', (11, 0, 0, 114)),
        ('10.3.0', (10, 3, 0)),
    ],
)
def test_versions_are_read(text, found):
    assert numbers(text) == found


def test_the_real_library_is_found_once_and_builds_without_a_gpu(rtx):
    assert rtx is load_trt('tensorrt_rtx')
    assert str(rtx) == f'tensorrt_rtx {rtx.version_text}'
    assert rtx.version == numbers(rtx.bindings_version) == library_version('tensorrt_rtx', 1)
    assert rtx.new_builder() is not None
    if not nvidia_driver().gpus:
        with pytest.raises(BackendError, match='No usable NVIDIA GPU') as caught:
            rtx.new_runtime()
        assert caught.value.cause == nvidia_driver().problem


def test_bindings_over_another_library_are_refused_before_they_crash(rtx, monkeypatch):
    backend._load.cache_clear()
    module = ModuleType('tensorrt_rtx')
    module.__spec__ = ModuleSpec('tensorrt_rtx', None, origin='other')
    module.__version__ = '1.3.0.76'
    monkeypatch.setitem(sys.modules, 'tensorrt_rtx', module)
    try:
        with pytest.raises(BackendError, match=r'bindings 1\.3\.0\.76 do not match library 1\.'):
            load_trt('tensorrt_rtx')
    finally:
        backend._load.cache_clear()


def test_a_missing_library_and_a_missing_gpu_are_named(monkeypatch):
    with pytest.raises(BackendError, match=r'library libnvinfer\.so\.99'):
        library_version('tensorrt', 99)
    with pytest.raises(BackendError, match=r'No usable NVIDIA GPU|GPU 99 does not exist'):
        nvidia_driver().gpu(99)


def test_enums_that_a_version_lacks_are_none():
    library = Library('tensorrt', SimpleNamespace(Flag=SimpleNamespace(A=3)), (10, 3), '', None)
    assert library.member('Flag', 'A') == 3
    assert library.member('Flag', 'B') is None
    assert library.member('NoSuchEnum', 'A') is None


def test_tensorrt_messages_go_to_python_logging_without_noise(rtx, caplog):
    severity = rtx.trt.ILogger.Severity
    with caplog.at_level(logging.DEBUG, 'trt_ros.tensorrt_rtx'):
        rtx.log.log(severity.WARNING, 'worth reading')
        rtx.log.log(severity.INFO, 'a detail')
        rtx.log.log(severity.VERBOSE, 'nobody reads this')
        rtx.log.log(severity.WARNING, 'Make sure input x has Int64 binding.')
        if not nvidia_driver().gpus:
            rtx.log.log(severity.ERROR, '[checkMacros.cpp::catchCudaError] 35')
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ('WARNING', 'worth reading'),
        ('DEBUG', 'a detail'),
    ]


def test_listener_receives_errors_instead_of_log(rtx, caplog):
    severity = rtx.trt.ILogger.Severity
    with rtx.log.collect() as captured:
        rtx.log.log(severity.ERROR, 'it failed')
        rtx.log.log(severity.WARNING, 'it may fail')
    rtx.log.log(severity.ERROR, 'later')
    assert (captured.errors, captured.warnings) == (['it failed'], ['it may fail'])
    assert caplog.messages == ['it may fail', 'later']
