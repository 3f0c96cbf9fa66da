"""The kernels compile for every supported GPU, without one."""

from __future__ import annotations

import pytest

from trt_ros.errors import BackendError

pytest.importorskip('cuda.core')
pytest.importorskip('cuda.bindings.nvrtc')

from trt_ros.cuda import kernels

ARCHITECTURES = ('sm_75', 'sm_87', 'sm_89', 'sm_90', 'sm_110', 'sm_120')


@pytest.mark.slow
@pytest.mark.parametrize('arch', ARCHITECTURES)
@pytest.mark.parametrize('name', kernels.SOURCES)
def test_every_kernel_compiles_for(arch, name):
    cubin = kernels.compile_source(kernels.source_of(name), arch)
    assert cubin[:4] == b'\x7fELF'


def test_a_cubin_is_compiled_once_and_then_read_from_the_cache(tmp_path, monkeypatch):
    first = kernels.cubin_of('preprocess', 'sm_90', tmp_path)
    monkeypatch.setattr(kernels, 'compile_source', lambda *_: pytest.fail('compiled again'))
    assert kernels.cubin_of('preprocess', 'sm_90', tmp_path) == first


def test_unwritable_kernel_cache_is_ignored(tmp_path):
    blocked = tmp_path / 'file'
    blocked.write_text('')
    assert kernels.cubin_of('preprocess', 'sm_90', blocked)[:4] == b'\x7fELF'


def test_without_a_cache_kernels_are_compiled(monkeypatch):
    monkeypatch.setattr(kernels, 'compile_source', lambda source, arch: arch.encode())
    assert kernels.cubin_of('preprocess', 'sm_90', None) == b'sm_90'


def test_compile_error_names_architecture_and_symbol():
    with pytest.raises(BackendError, match=r'(?s)sm_90.*undefined_thing'):
        kernels.compile_source('__global__ void f() { undefined_thing(); }', 'sm_90')
