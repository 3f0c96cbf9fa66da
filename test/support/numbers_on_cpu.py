"""Kernels of preprocess.cu, generate.cu and copy.cu compiled by g++ and run on the CPU."""

import re

from support.kernels_on_cpu import LAUNCHERS, HostKernels, compiled
from trt_ros.cuda.kernels import source_of

#: Structs of the arguments, by kernel.
KERNELS = {
    'preprocess': 'Preprocess',
    'rectify': 'Rectified',
    'crop': 'Crop',
    'place_regions': 'Regions',
    'copy_small': 'Copies',
    'fetch': 'Fetch',
    **dict.fromkeys(('count_runs', 'draw_noise', 'next_run'), 'Numbered'),
}


class NumbersOnCpu(HostKernels):
    """The kernels."""

    def __init__(self) -> None:
        source = re.sub(
            r'asm\("cvt.rn.f16.f32.*',
            '_Float16 rounded = (_Float16)value; memcpy(&bits, &rounded, 2);',
            source_of('preprocess'),
        )
        launchers = '\n'.join(f'LAUNCHER({name}, {kind})' for name, kind in KERNELS.items())
        self._library = compiled('numbers', f'{source}\n{LAUNCHERS}{launchers}')
