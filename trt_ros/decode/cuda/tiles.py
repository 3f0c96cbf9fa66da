"""GPU decoder of the tiles of an image: of each tile, then NMS among all; tiles.cu."""

from collections.abc import Mapping
import ctypes
from ctypes import c_float, c_int, c_void_p
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trt_ros.decode.cuda.boxes import GpuBoxes
from trt_ros.decode.cuda.decoder import (
    Addresses,
    HeadArgs,
    Launch,
    Outputs,
    Reader,
    aligned,
    laid_out,
)
from trt_ros.families.layout import BoxLayout, Coding, Out
from trt_ros.families.places import LevelSlices, Places, Slice
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.regions import MAX_TILES, Tiles


class TilesArgs(ctypes.Structure):
    """Arguments of the kernel of tiles; tiles.cu: struct Tiles."""

    _fields_ = [
        ('head', HeadArgs),
        ('results', c_void_p),
        ('stride', c_int),
        ('capacity', c_int),
        ('points', c_int),
        ('origins', c_float * 2 * MAX_TILES),
    ]


@dataclass(frozen=True)
class GpuTiles:
    """Decoder of the tiles of an image by that of one tile, `strides` bytes apart."""

    tile: GpuBoxes
    tiles: Tiles
    strides: Mapping[str, int]

    @cached_property
    def merge(self) -> GpuBoxes:
        """Decoder that merges: its rows are the boxes of all tiles, float32 in image pixels."""
        tile, coding = self.tile, self.tile.layout.coding
        rows, extras = self.tiles.count * tile.capacity, tile.extra_floats
        # More classes than any network has: labels are part of the keys.
        classes = ((1 << 31) - 1) // rows
        slices = {'box': Slice('boxes', 0, 4, 1, 4), 'scores': Slice('boxes', 0, 4, 1, classes)}
        if extras:
            slices['extras'] = Slice('extras', 0, extras, 1, extras)
        layout = BoxLayout(
            (Out('B N V', 'box:4 extras:3*K'),),
            coding=Coding('rotated' if coding.form == 'rotated' else 'corners'),
            extras=tile.layout.extras,
        )
        return type(tile)(
            replace(tile.head, reading=replace(tile.head.reading, layout=layout)),
            Places((LevelSlices(rows, slices),), {}),
            Outputs({}, {'boxes': 'float32', 'extras': 'float32'}, tile.outputs.input_hw),
        )

    @property
    def is_supported(self) -> bool:
        """Whether the kernels can merge as many boxes of as many classes."""
        return self.merge.is_supported and self.tile.places.classes <= self.merge.places.classes

    @cached_property
    def _scratch(self) -> tuple[dict[str, int], int]:
        rows = self.merge.places.rows
        return laid_out(
            {
                'tile': self.tile.scratch_nbytes,
                'merge': self.merge.scratch_nbytes,
                'boxes': 16 * rows,
                'extras': 4 * rows * self.tile.extra_floats,
                'results': self.tiles.count * aligned(self.tile.boxes_nbytes),
            }
        )

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory: that of both decoders, and the boxes of all tiles."""
        return self._scratch[1]

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result."""
        return self.merge.result_nbytes(image_wh)

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        """Return the kernels to launch for an image by its first tile, see `GpuDecoder`."""
        parts = {name: at.scratch + offset for name, offset in self._scratch[0].items()}
        placement, origins = self.tiles.places(letterbox.image_wh)
        stride, found = aligned(self.tile.boxes_nbytes), list[Launch]()
        for index in range(self.tiles.count):

            def address_of(name: str, index: int = index) -> int:
                return at.output(name) + index * self.strides[name]

            own = Addresses(
                address_of, at.request, parts['tile'], parts['results'] + index * stride
            )
            found += self.tile.launches(placement, own)
        whole = Letterbox((1.0, 1.0), (0.0, 0.0), letterbox.image_wh, letterbox.image_wh[::-1])
        merged = at._replace(output=parts.__getitem__, scratch=parts['merge'])
        _, *merging = self.merge.launches(whole, merged)
        args = TilesArgs(
            HeadArgs.from_buffer_copy(merging[-1].argument),
            parts['results'],
            stride,
            self.tile.capacity,
            self.tile.extra_floats // 3,
        )
        ctypes.memmove(args.origins, origins.astype(np.float32).tobytes(), 8 * len(origins))
        grid = (-(-self.tile.capacity // 256), self.tiles.count, 1)
        return *found, Launch('select_tiles', grid, (256, 1, 1), args), *merging

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads the merged boxes, see `GpuDecoder`."""
        return self.merge.reader(memory, image_wh)
