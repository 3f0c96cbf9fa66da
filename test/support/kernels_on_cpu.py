"""Decoding kernels compiled by g++ and run on the CPU, to test their algorithms without a GPU."""

from collections.abc import Callable, Mapping
import ctypes
import os
from pathlib import Path
import re
import shutil
import subprocess
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trt_ros.cuda.kernels import source_of
from trt_ros.decode.cuda.choice import gpu_decoder
from trt_ros.decode.cuda.decoder import Addresses, GpuDecoder, Launch
from trt_ros.engine.files import locked
from trt_ros.progress import Reporter
from trt_ros.runtime.gpu.staging import header_nbytes, write_request
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.regions import Tiles
from trt_ros.vision.thresholds import Thresholds

HEADER = Path(__file__).with_name('cuda_on_cpu.hpp')
_FILES = (
    *('common', 'boxes', 'select', 'overlap', 'tiles', 'top', 'emit', 'rank', 'nms', 'dense'),
    *('masks', 'points', 'queries', 'classes'),
)
# C++ beside what the headers define: the body of each kernel reads its argument from a global.
LAUNCHERS = """
static const void* launched;
#define LAUNCHER(NAME, ARGUMENT) \\
  extern "C" const unsigned nbytes_of_##NAME = sizeof(ARGUMENT); \\
  extern "C" void on_cpu_##NAME(const void* argument, const unsigned* g, const unsigned* b) { \\
    launched = argument; \\
    cpu::run([] { NAME(*(const ARGUMENT*)launched); }, {g[0], g[1], g[2]}, {b[0], b[1], b[2]}); \\
  }
"""


def compiled(name: str, source: str) -> ctypes.CDLL:
    """
    Return a library of kernels, compiled once per run of the tests; skip the test without g++.

    :raises subprocess.CalledProcessError: when g++ rejects the source.
    """
    if shutil.which('g++') is None:
        pytest.skip('needs g++')
    folder = Path(os.environ['XDG_CACHE_HOME'], 'kernels_on_cpu')  # See conftest.own_cache.
    folder.mkdir(parents=True, exist_ok=True)
    path, library = folder / f'{name}.cpp', folder / f'{name}.so'
    options = '-std=c++17 -O1 -w -fPIC -shared -U_FORTIFY_SOURCE -ffp-contract=off'
    with locked(folder, Reporter()):
        if not library.exists():
            path.write_text(f'#include "{HEADER}"\n{source}')
            command = ['g++', *options.split(), str(path), '-o', str(library)]
            subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


class HostKernels:
    """Kernels in a library of `compiled`."""

    _library: ctypes.CDLL

    def launch(self, function: str, grid: tuple, block: tuple, argument: int) -> None:
        """Run all blocks of a launch; `argument` is the address of its struct."""
        sizes = ((ctypes.c_uint * 3)(*size) for size in (grid, block))
        getattr(self._library, f'on_cpu_{function}')(ctypes.c_void_p(argument), *sizes)

    def prepare(
        self, function: str, grid: tuple, block: tuple, parameters: int
    ) -> Callable[[], None]:
        """Return a function that runs a launch of cuLaunchKernel."""
        (address,) = (ctypes.c_void_p * 1).from_address(parameters)
        nbytes = ctypes.c_uint.in_dll(self._library, f'nbytes_of_{function}').value
        argument = ctypes.create_string_buffer(ctypes.string_at(address, nbytes), nbytes)
        return lambda: self.launch(function, grid, block, ctypes.addressof(argument))


class KernelsOnCpu(HostKernels):
    """The kernels of decode.cu for float32."""

    def __init__(self) -> None:
        parts = [source_of(name) for name in _FILES]
        macro, *kernels = re.findall(
            r'^#define KERNEL(?:.*\\\n)*.*\n'
            r'|^KERNEL\((?!\w+float16)\w+, \d+, '
            r'(?:Head|Dense|Tiles|Masks|Points|Queries|Classes),.*\n',
            source_of('decode'),
            re.M,
        )
        source = ''.join([*parts, macro, *kernels])
        source = re.sub(
            r'asm\("cvt.f32.f16.*"h"\((.*)\)\);', r'value = float16_value(\1);', source
        )
        launchers = ''.join(
            re.sub(r'KERNEL\((\w+), \d+, (\w+),.*', r'LAUNCHER(\1, \2)', line) for line in kernels
        )
        self._library = compiled('decode', f'{source}\n{LAUNCHERS}{launchers}')

    def run(self, launch: Launch) -> None:
        """Run all blocks of a launch of a decoder."""
        argument = ctypes.addressof(launch.argument)
        self.launch(launch.function, launch.grid, launch.block, argument)

    def decode(
        self,
        head: Any,
        outputs: Mapping[str, np.ndarray],
        letterbox: Letterbox,
        thresholds: Thresholds,
        tiles: Tiles | None = None,
        runs: int = 2,
    ) -> tuple[Any, np.ndarray]:
        """
        Return what the GPU would find, and the four ints of the result's header.

        :param runs: the second shows that the first left the counters at zero.
        """
        outputs = {name: np.ascontiguousarray(value) for name, value in outputs.items()}
        decoder = decoder_of(head, outputs, letterbox, tiles)
        scratch = _aligned(decoder.scratch_nbytes)
        result = _aligned(decoder.result_nbytes(letterbox.image_wh))
        request = _aligned(header_nbytes(thresholds))
        write_request(request, thresholds)
        own = (memory.ctypes.data for memory in (request, scratch, result))
        at = Addresses(lambda name: outputs[name].ctypes.data, *own)
        launches = decoder.launches(letterbox, at)
        stale = getattr(launches[0].argument, 'keys', None) or scratch.ctypes.data + scratch.size
        headers = set()
        for _ in range(runs):
            result[:] = 0xFF
            if tiles is None:
                scratch[stale - scratch.ctypes.data :] = 0xFF
            for launch in launches:
                self.run(launch)
            headers.add(result[:16].tobytes())
        assert len(headers) == 1
        found, _ = decoder.reader(result, letterbox.image_wh)()
        return found, result[:16].view(np.int32).copy()


def decoder_of(
    head: Any, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, tiles: Tiles | None = None
) -> GpuDecoder:
    """Return the decoder with kernels for a head; uint16 outputs are the bits of bfloat16."""
    shapes = {name: value.shape for name, value in outputs.items()}
    dtypes = {name: value.dtype.name for name, value in outputs.items()}
    specs = [
        TensorSpec(name, shape, 'bfloat16' if dtypes[name] == 'uint16' else dtypes[name], 'output')
        for name, shape in shapes.items()
    ]
    decoder = gpu_decoder(SimpleNamespace(head=head), specs, shapes, letterbox.input_hw, tiles)
    assert decoder is not None
    return decoder


def _aligned(nbytes: int) -> np.ndarray:
    """Return zeros at an address that is a multiple of 256."""
    memory = np.zeros(nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    return memory[start : start + nbytes]
