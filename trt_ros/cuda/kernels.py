"""
CUDA C++ kernels of the .cu files in this folder, compiled once per GPU architecture.

The cubins have a cache of our own: cuda.core's program cache (1.2.2) loads NVRTC also on a hit,
which takes 25 ms and 70 MB of host memory per process, and older versions of cuda.core lack it.
"""

import ctypes
from functools import cache
import hashlib
from pathlib import Path
import re
from typing import Any

from trt_ros.cuda.calls import check, core, current_context, driver, owned
from trt_ros.errors import BackendError, ClosedError
from trt_ros.regular_file import Blob

Size = tuple[int, int, int]
Functions = frozenset[str] | None
DTYPES = ('float32', 'float16', 'bfloat16')  # Of outputs; common.cu has a type for each.


def compile_source(source: str, arch: str) -> bytes:
    """
    Compile CUDA C++ to a cubin with NVRTC, without a GPU; or raise BackendError.

    Contraction to fused multiply-adds is off, so that results equal NumPy's bit for bit where
    the formula is the same.
    """
    options = core().ProgramOptions(arch=arch, std='c++17', fma=False, lineinfo=True)
    try:
        return bytes(core().Program(source, 'c++', options).compile('cubin').code)
    except Exception as error:  # cuda.core has one exception type per cause.
        raise BackendError(
            f'Could not compile a kernel for {arch}.',
            cause=str(error),
            remedy='Install nvidia-cuda-nvrtc for the CUDA version of cuda-bindings.',
        ) from error


@cache
def source_of(name: str, functions: Functions = None) -> str:
    """Return the source of `name`.cu, includes in place, with the kernels `functions`, or all."""
    text = (Path(__file__).parent / f'{name}.cu').read_text(encoding='utf-8')
    text = re.sub(r'^#include "(\w+)\.cu"$', lambda found: source_of(found[1]), text, flags=re.M)
    text = re.sub(r'^KERNELS\((\w+)(,.*\n)', _of_each_type, text, flags=re.M)
    if functions is None:
        return text
    return re.sub(
        r'^KERNEL\((\w+),.*\n',
        lambda found: found[0] if found[1] in functions else '',
        text,
        flags=re.M,
    )


def _of_each_type(found: re.Match[str]) -> str:
    """Return a line `KERNEL(...)` per type of outputs."""
    return ''.join(
        f'KERNEL({found[1]}_{dtype}' + re.sub(r'\bT\b', dtype.capitalize(), found[2])
        for dtype in DTYPES
    )


def cubin_of(
    name: str, arch: str, cache_dir: Path | None = None, functions: Functions = None
) -> bytes:
    """Return compiled kernels of `name`.cu, all or `functions`, from the cache if possible."""
    source = source_of(name, functions)
    if cache_dir is None:
        return compile_source(source, arch)
    from cuda.bindings import __version__ as bindings_version

    key = hashlib.sha256(f'{bindings_version}\n{source}'.encode()).hexdigest()[:16]
    blob = Blob(cache_dir / f'{name}-{arch}-{key}.blob')
    cubin = blob.load()  # The driver crashes or hangs on a damaged one.
    if cubin is None:
        cubin = compile_source(source, arch)
        blob.save(cubin)  # Without a writable cache the next start compiles again.
    return cubin


class Kernels:
    """
    Kernels of one .cu file, loaded on the current GPU; owned by its creator.

    Close every captured graph that contains one of the kernels first.

    :param functions: names of the kernels; None for all, whose compilation takes long.
    """

    def __init__(
        self, name: str, arch: str, cache_dir: Path | None = None, functions: Functions = None
    ) -> None:
        self.name = name
        context = current_context()
        cubin = cubin_of(name, arch, cache_dir, functions)
        self.nbytes = len(cubin)
        self._module: Any = check(driver().cuModuleLoadData(cubin), f'load the {name} kernels')
        unload = driver().cuModuleUnload
        self._free = owned(self, 'kernel module', context, unload, self._module)
        self._functions: dict[str, Any] = {}

    def launch(
        self, function: str, grid: Size, block: Size, argument: ctypes.Structure, stream: int
    ) -> None:
        """Launch one kernel, whose only parameter is a struct, which is copied."""
        if self._module is None:
            raise ClosedError(f'Kernel module {self.name}')
        if function not in self._functions:
            self._functions[function] = check(
                driver().cuModuleGetFunction(self._module, function.encode()),
                f'find kernel {function}',
            )
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        check(
            driver().cuLaunchKernel(
                self._functions[function], *grid, *block, 0, stream, ctypes.addressof(pointers), 0
            ),
            f'launch {function}',
        )

    def close(self) -> None:
        """Unload the kernels; may be called twice."""
        self._module = None
        self._functions.clear()
        self._free()
