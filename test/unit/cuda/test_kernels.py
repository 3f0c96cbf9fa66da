"""The kernels compile for every supported GPU, without one."""

import itertools
import os
import re
import sys
from types import SimpleNamespace

import pytest

from trt_ros.errors import BackendError

pytest.importorskip('cuda.core')
pytest.importorskip('cuda.bindings.nvrtc')

from trt_ros.cuda import calls, kernels

NIGHTLY = pytest.mark.nightly
ARCHITECTURES = ('sm_75', 'sm_87', 'sm_89', 'sm_90', 'sm_110', 'sm_120', 'sm_121')
LISTED = re.findall(r'^KERNEL\((\w+),', kernels.source_of('decode'), re.M)
YOLOV8 = frozenset({'select_columns_float32', 'rank_float32', 'mask_upright', 'reduce_float32'})


@pytest.mark.slow
@pytest.mark.parametrize(
    'arch', [ARCHITECTURES[0], *(pytest.param(arch, marks=NIGHTLY) for arch in ARCHITECTURES[1:])]
)
def test_preprocessing_compiles_for(arch):
    assert kernels.cubin_of('preprocess', arch)[:4] == b'\x7fELF'


@NIGHTLY
@pytest.mark.parametrize(
    ('arch', 'dtype'), [*zip(ARCHITECTURES, itertools.cycle(['float16', 'bfloat16', 'float32']))]
)
def test_decoding_compiles_for(arch, dtype):
    others = {'float32', 'float16', 'bfloat16'} - {dtype}
    functions = frozenset(name for name in LISTED if name.split('_')[-1] not in others)
    assert len(functions) == 37
    cubin = kernels.cubin_of('decode', arch, None, functions)
    assert all(f'.text.{name}\0'.encode() in cubin for name in functions)


def test_unknown_architectures_and_symbols_are_named():
    # Jetson Thor is sm_101 in CUDA 12.9, and sm_110 since CUDA 13.
    with pytest.raises(BackendError, match='sm_101'):
        kernels.cubin_of('preprocess', 'sm_101')
    with pytest.raises(BackendError, match=r'(?s)sm_90.*undefined_thing'):
        kernels.compile_source('__global__ void f() { undefined_thing(); }', 'sm_90')


@pytest.mark.slow
def test_only_the_kernels_that_are_launched_are_compiled():
    cubin = kernels.cubin_of('decode', 'sm_90', None, YOLOV8)
    there = {name for name in LISTED if f'.text.{name}\0'.encode() in cubin}
    assert there == YOLOV8


@pytest.fixture
def compiled(monkeypatch):
    """Record what is compiled; a cubin is the number of its compilation."""
    seen = []

    class Program:
        def __init__(self, source, language, options):
            seen.append(source)

        def compile(self, kind):
            return SimpleNamespace(code=bytes(range(256)) * 20 + str(len(seen)).encode())

    core = SimpleNamespace(Device=None, Program=Program, ProgramOptions=lambda **_: None)
    monkeypatch.setitem(sys.modules, 'cuda.core', core)
    calls.core.cache_clear()
    yield seen
    calls.core.cache_clear()


def test_a_cubin_is_compiled_once_and_then_read_from_the_cache(compiled, tmp_path):
    first = kernels.cubin_of('decode', 'sm_90', tmp_path)
    assert kernels.cubin_of('decode', 'sm_90', tmp_path) == first
    assert len(compiled) == 1
    assert kernels.cubin_of('decode', 'sm_90', None) != first  # Without a cache.


@pytest.mark.parametrize('damage', ['empty', 'short', 'half', 'last byte', 'zeros', 'bit', 'raw'])
def test_damaged_cubin_is_compiled_again_and_replaced(damage, compiled, tmp_path):
    """The driver crashes or hangs on some of them, in every process that starts."""
    cubin = kernels.cubin_of('preprocess', 'sm_90', tmp_path)
    (path,) = tmp_path.iterdir()
    raw = path.read_bytes()
    damaged = {
        'empty': b'',
        'short': raw[:100],
        'half': raw[: len(raw) // 2],
        'last byte': raw[:-1],
        'zeros': bytes(len(raw)),
        'bit': raw[:-1] + bytes([raw[-1] ^ 1]),
        'raw': cubin,  # Without a hash.
    }
    path.write_bytes(damaged[damage])
    for _ in range(2):
        assert kernels.cubin_of('preprocess', 'sm_90', tmp_path)[-1:] == b'2'
    assert len(compiled) == 2


def test_named_pipe_in_place_of_a_cubin_is_replaced(compiled, tmp_path):
    kernels.cubin_of('preprocess', 'sm_90', tmp_path)
    (path,) = tmp_path.iterdir()
    path.unlink()
    os.mkfifo(path)
    assert kernels.cubin_of('preprocess', 'sm_90', tmp_path)[-1:] == b'2'
    assert path.is_file()


def test_other_kernels_of_a_file_have_cubins_of_their_own(compiled, tmp_path):
    for functions in (frozenset({'finish'}), frozenset({'cut'}), None):
        kernels.cubin_of('decode', 'sm_90', tmp_path, functions)
    assert len(set(compiled)) == len(list(tmp_path.iterdir())) == 3


def test_unwritable_kernel_cache_is_ignored(tmp_path):
    blocked = tmp_path / 'file'
    blocked.write_text('')
    assert kernels.cubin_of('decode', 'sm_90', blocked, frozenset({'finish'}))[:4] == b'\x7fELF'
