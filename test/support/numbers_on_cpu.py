"""Kernels of preprocess.cu and generate.cu compiled by g++ and run on the CPU."""

from collections.abc import Callable
import ctypes
import re

from support.kernels_on_cpu import LAUNCHERS, compiled
from trt_ros.cuda.kernels import source_of
from trt_ros.runtime.gpu.input_kinds import NumberedArgs
from trt_ros.runtime.gpu.preprocess import CropArgs, PreprocessArgs, RectifiedArgs, RegionArgs

#: Structs of the arguments in C++ and here, by kernel.
KERNELS: dict[str, tuple[str, type[ctypes.Structure]]] = {
    'preprocess': ('Preprocess', PreprocessArgs),
    'rectify': ('Rectified', RectifiedArgs),
    'crop': ('Crop', CropArgs),
    'place_regions': ('Regions', RegionArgs),
    **dict.fromkeys(('count_runs', 'draw_noise', 'next_run'), ('Numbered', NumberedArgs)),
}


class NumbersOnCpu:
    """The kernels."""

    def __init__(self) -> None:
        source = re.sub(
            r'asm\("cvt.rn.f16.f32.*',
            '_Float16 rounded = (_Float16)value; memcpy(&bits, &rounded, 2);',
            source_of('preprocess'),
        )
        launchers = '\n'.join(f'LAUNCHER({name}, {kind})' for name, (kind, _) in KERNELS.items())
        self._library = compiled('numbers', f'{source}\n{LAUNCHERS}{launchers}')

    def launch(self, function: str, grid: tuple, block: tuple, argument: int) -> None:
        """Run all blocks of a launch; `argument` is the address of its struct."""
        sizes = ((ctypes.c_uint * 3)(*size) for size in (grid, block))
        getattr(self._library, f'on_cpu_{function}')(ctypes.c_void_p(argument), *sizes)

    def prepare(
        self, function: str, grid: tuple, block: tuple, parameters: int
    ) -> Callable[[], None]:
        """Return a function that runs a launch of cuLaunchKernel."""
        (address,) = (ctypes.c_void_p * 1).from_address(parameters)
        _, kind = KERNELS[function]
        argument = kind.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(kind)))
        return lambda: self.launch(function, grid, block, ctypes.addressof(argument))
