"""Kernels of preprocess.cu and generate.cu compiled by g++ and run on the CPU."""

import ctypes
from pathlib import Path
import re
import subprocess

from support.kernels_on_cpu import HEADER, LAUNCHERS
from trt_ros.cuda.kernels import source_of

#: Struct of the argument by name.
KERNELS = {
    'preprocess': 'Preprocess',
    'rectify': 'Rectified',
    'crop': 'Crop',
    'place_regions': 'Regions',
    **dict.fromkeys(('count_runs', 'draw_noise', 'next_run'), 'Numbered'),
}


class NumbersOnCpu:
    """
    The kernels, compiled into a folder.

    :raises subprocess.CalledProcessError: when g++ rejects the source.
    """

    def __init__(self, folder: Path) -> None:
        source = re.sub(
            r'asm\("cvt.rn.f16.f32.*',
            '_Float16 rounded = (_Float16)value; memcpy(&bits, &rounded, 2);',
            source_of('preprocess'),
        )
        launchers = '\n'.join(f'LAUNCHER({name}, {kind})' for name, kind in KERNELS.items())
        path, library = folder / 'numbers.cpp', folder / 'numbers.so'
        path.write_text(f'#include "{HEADER}"\n{source}\n{LAUNCHERS}{launchers}')
        options = ['-std=c++17', '-O1', '-w', '-fPIC', '-shared', '-ffp-contract=off']
        subprocess.run(['g++', *options, str(path), '-o', str(library)], check=True)
        self._library = ctypes.CDLL(str(library))

    def launch(self, function: str, grid: tuple, block: tuple, argument: int) -> None:
        """Run all blocks of a launch; `argument` is the address of its struct."""
        sizes = ((ctypes.c_uint * 3)(*size) for size in (grid, block))
        getattr(self._library, f'on_cpu_{function}')(ctypes.c_void_p(argument), *sizes)
