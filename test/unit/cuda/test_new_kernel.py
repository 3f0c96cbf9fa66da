"""The kernel of docs/adding_a_kernel.md."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from support.kernels_on_cpu import HEADER
from support.recipes import code_of, names_of
from trt_ros.cuda.kernels import compile_source

SOURCE = code_of('adding_a_kernel', 'cuda')
LAUNCH = """
static const void* launched;
extern "C" void on_cpu(const void* argument, const unsigned* g, const unsigned* b) {
  launched = argument;
  cpu::run([] { limit(*(const Limit*)launched); }, {g[0], g[1], g[2]}, {b[0], b[1], b[2]});
}
"""
VALUES = np.random.default_rng(0).normal(0, 2, 1000).astype(np.float32)
VALUES[[3, 5, 7]] = np.nan, np.inf, -np.inf


@pytest.mark.parametrize('arch', ['sm_75', 'sm_90', 'sm_120'])
def test_it_compiles_for(arch):
    assert compile_source(SOURCE, arch)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which('g++') is None, reason='needs g++')
def test_it_equals_numpy_on_the_cpu(tmp_path):
    (tmp_path / 'limit.cpp').write_text(f'#include "{HEADER}"\n{SOURCE}\n{LAUNCH}')
    options = ['-std=c++17', '-O1', '-w', '-fPIC', '-shared']
    subprocess.run(['g++', *options, 'limit.cpp', '-o', 'limit.so'], check=True, cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / 'limit.so'))

    class OnCpu:
        def launch(self, function, grid, block, argument, stream):
            sizes = ((ctypes.c_uint * 3)(*size) for size in (grid, block))
            library.on_cpu(ctypes.byref(argument), *sizes)

    limited = np.zeros_like(VALUES)
    launch = names_of('adding_a_kernel')['limit']
    launch(OnCpu(), VALUES.ctypes.data, limited.ctypes.data, VALUES.size, -1.0, 1.5, 0)
    np.testing.assert_array_equal(limited, np.clip(VALUES, -1.0, 1.5))


@pytest.mark.gpu
def test_it_equals_numpy_on_a_gpu():
    from trt_ros.cuda.calls import check, driver
    from trt_ros.cuda.device import Stream, open_gpu
    from trt_ros.cuda.memory import Account, PinnedBuffer
    from trt_ros.driver import nvidia_driver

    if nvidia_driver().problem:
        pytest.skip('no NVIDIA GPU')

    class OnGpu:
        def launch(self, function, grid, block, argument, stream):
            kernel = check(driver().cuModuleGetFunction(module, function.encode()), 'find')
            sizes, arguments = (*grid, *block), (ctypes.c_void_p * 1)(ctypes.addressof(argument))
            pointer = ctypes.addressof(arguments)
            check(driver().cuLaunchKernel(kernel, *sizes, 0, stream, pointer, 0), 'launch')

    gpu = open_gpu(0)
    with gpu.context:
        stream, memory = Stream(), PinnedBuffer(2 * VALUES.nbytes, 'test', Account())
        module = check(driver().cuModuleLoadData(compile_source(SOURCE, gpu.arch)), 'load')
        values, limited = memory.view.view(np.float32).reshape(2, -1)
        values[:] = VALUES
        launch = names_of('adding_a_kernel')['limit']
        start = memory.device_ptr
        launch(OnGpu(), start, start + VALUES.nbytes, VALUES.size, -1.0, 1.5, stream.handle)
        stream.synchronize()
        np.testing.assert_array_equal(limited, np.clip(VALUES, -1.0, 1.5))
        check(driver().cuModuleUnload(module), 'unload')
        memory.close()
        stream.close()
