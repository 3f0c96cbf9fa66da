"""What changes the key of an engine, and what does not."""

import dataclasses
import os
from types import SimpleNamespace

import pytest

from trt_ros.driver import GpuInfo
from trt_ros.engine import key as keys
from trt_ros.engine.key import OnnxFile, cache_key, external_names
from trt_ros.engine.options import BuildOptions, ShapeRange
from trt_ros.errors import ModelError
from trt_ros.trt import Library

H200 = GpuInfo(0, 'NVIDIA H200', (9, 0), 132, 150 << 30, False, 'GPU-1', '0000:01:00.0')
RTX = Library('tensorrt_rtx', SimpleNamespace(), (1, 5, 0, 114), '1.5.0.114', None)
TRT = Library('tensorrt', SimpleNamespace(), (10, 13, 3, 9), '10.13.3.9', None)
MODEL = OnnxFile(None, 'aa', 10, ())


def rtx_key(model=MODEL, library=RTX, **options):
    return cache_key(model, BuildOptions(**options), library, 0)


def test_a_model_without_data_files_names_none(models, tmp_path):
    assert external_names(models.conv()) == []
    (tmp_path / 'empty').touch()
    assert external_names(tmp_path / 'empty') == []


def test_data_files_are_found_without_parsing(models):
    path = models.conv()
    name = 'weights_' + 'x' * 150 + '.data'  # Its length takes two bytes.
    weights = models.split(path, name)
    assert external_names(path) == [name]
    before = OnnxFile.read(path)
    data = bytearray(weights.read_bytes())
    data[7] ^= 1
    weights.write_bytes(data)
    after = OnnxFile.read(path)
    assert before.sha256 == after.sha256 and before.external != after.external
    assert rtx_key(before) != rtx_key(after)


def test_data_file_that_others_planted_beside_the_model_is_refused(models):
    path = models.conv()
    models.split(path).chmod(0o666)
    with pytest.raises(ModelError, match='not secure') as caught:
        OnnxFile.read(path)
    assert 'Other users can write to it' in caught.value.cause
    path.chmod(0o666)  # Who may write the model may write its weights.
    assert external_names(path) == ['w']


@pytest.mark.skipif(os.geteuid() != 0, reason='only root gives files away')
def test_data_file_of_another_user_than_the_model_is_refused(models):
    path = models.conv()
    os.chown(models.split(path), 12345, -1)
    with pytest.raises(ModelError, match='not secure') as caught:
        OnnxFile.read(path)
    assert 'belongs to another user' in caught.value.cause
    os.chown(path, 12345, -1)  # A folder of models that belongs to another user.
    assert external_names(path) == ['w']


def test_data_file_outside_the_folder_is_not_read_through_a_link(models, tmp_path):
    path, outside = models.conv(), tmp_path / 'outside' / 'w'
    outside.parent.mkdir()
    weights = models.split(path)
    weights.rename(outside)
    weights.symlink_to(outside)
    with pytest.raises(ModelError, match='outside the folder of the model') as caught:
        OnnxFile.read(path)
    assert str(outside) in caught.value.cause
    # In a download cache the model is a link, too, to the same folder.
    moved = path.rename(outside.parent / 'net.onnx')
    path.symlink_to(moved)
    assert external_names(path) == ['w']


def test_every_option_but_the_timing_cache_changes_the_key():
    shape = ShapeRange('x', (1,), (1,), (2,))
    others = {
        'precision': 'fp16',
        'io_dtypes': 'lower',
        'profiles': ((shape,),),
        'input_size': (4, 4),
        'workspace_mib': 1,
        'optimization_level': 1,
        'aux_streams': 1,
        'avg_timing_iterations': 4,
        'sparse': True,
        'timing_cache': False,
        'dla_core': 0,
        'plugins': (__file__,),
        'version_compatible': True,
        'hardware_compatible': 'ampere_plus',
        'compute_capabilities': ('8.6',),
        'strip_weights': True,
        'refit': True,
        'editable_timing_cache': True,
        'weight_streaming_budget_mib': 16,
        'cut_nms': True,
        'batch': 2,
    }
    names = {field.name for field in dataclasses.fields(BuildOptions)}
    assert set(others) == names - {'fp32', 'tactics'}  # Refused alone.
    low = {rtx_key(precision='fp16', fp32=fp32) for fp32 in ((), ('Conv',), ('Conv', 'Relu'))}
    assert len(low) == 3
    plain = rtx_key()
    same = [name for name, value in others.items() if rtx_key(**{name: value}) == plain]
    assert same == ['timing_cache', 'cut_nms']  # With tensorrt_rtx, that is never a choice.
    assert rtx_key(OnnxFile(None, 'bb', 10, ())) != plain


def test_rtx_engines_depend_on_the_exact_release_and_compatible_ones_on_the_major_one(set_driver):
    set_driver(H200)
    plain = rtx_key()
    current = rtx_key(compute_capabilities=('current',))
    set_driver(dataclasses.replace(H200, name='other', compute_capability=(8, 9)))
    assert rtx_key() == plain
    assert rtx_key(compute_capabilities=('current',)) != current
    assert rtx_key(library=dataclasses.replace(RTX, version=(1, 5, 0, 115))) != plain
    set_driver(H200)
    newer = dataclasses.replace(TRT, version=(10, 16, 1, 11))
    options = BuildOptions(version_compatible=True)
    assert cache_key(MODEL, options, TRT, 0) == cache_key(MODEL, options, newer, 0)
    assert cache_key(MODEL, BuildOptions(), TRT, 0) != cache_key(MODEL, BuildOptions(), newer, 0)


def test_tensorrt_engines_depend_on_the_gpu_unless_hardware_compatible(set_driver):
    def found(**options):
        return cache_key(MODEL, BuildOptions(**options), TRT, 0)

    set_driver(H200)
    assert found(cut_nms=True) != found()
    plain, ampere, same = (
        found(),
        found(hardware_compatible='ampere_plus'),
        found(hardware_compatible='same_compute_capability'),
    )
    set_driver(dataclasses.replace(H200, name='NVIDIA H100'))
    assert found() != plain
    assert found(hardware_compatible='ampere_plus') == ampere
    assert found(hardware_compatible='same_compute_capability') == same
    set_driver(dataclasses.replace(H200, compute_capability=(10, 0)))
    assert found(hardware_compatible='same_compute_capability') != same


@pytest.fixture
def without_packages(no_tensorrt, monkeypatch, tmp_path):
    """Hide the package of Debian that TensorRT may have come by."""
    monkeypatch.setenv('PATH', str(tmp_path))
    keys._debian_version.cache_clear()
    yield
    keys._debian_version.cache_clear()


@pytest.fixture
def debian(without_packages, tmp_path):
    """Answer as dpkg-query does where TensorRT came by apt."""

    def say(version):
        keys._debian_version.cache_clear()
        script = tmp_path / 'dpkg-query'
        script.write_text(f'#!/bin/sh\n[ "$4" = libnvinfer10 ] && printf %s "{version}"\n')
        script.chmod(0o755)

    return say


def test_key_of_apt_tensorrt_contains_cuda_of_package_and_driver(set_driver, debian):
    def found():
        return cache_key(MODEL, BuildOptions(), TRT, 0)

    set_driver(H200)
    debian('10.3.0.30-1+cuda12.5')
    old = found()
    assert keys.cuda_version(TRT) == '10.3.0.30-1+cuda12.5 driver 13.0'
    debian('10.3.0.30-1+cuda12.8')
    newer = found()
    set_driver(H200, cuda=(12, 8))
    assert len({old, newer, found()}) == 3


def test_without_any_package_the_driver_decides(set_driver, without_packages):
    set_driver(H200)
    assert keys.cuda_version(TRT) == 'driver 13.0'
