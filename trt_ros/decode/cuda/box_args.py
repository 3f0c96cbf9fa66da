"""Values and structs of the arguments of the box kernels, see boxes.cu."""

from __future__ import annotations

from collections.abc import Sequence
import ctypes
from ctypes import c_float, c_int, c_void_p
from dataclasses import dataclass
import itertools
from typing import Any

from trt_ros.decode.cuda.decoder import Address, OutputSlice
from trt_ros.families.layout import Coding, Grid

MAX_LEVELS, MAX_PRIORS = 4, 6  # boxes.cu: struct Head, struct Level

# In the order of the enums of boxes.cu.
FORMS = {'corners': 0, 'centers': 1, 'rotated': 2, 'offsets': 3, 'sides': 4}
UNITS = {'stride': 0, 'prior': 1, 'pixel': 2}
SIZES = {'exp': 0, 'linear': 1, 'squared': 2}
ACTIVATIONS = {'none': 0, 'sigmoid': 1, 'softmax': 2, 'maybe_sigmoid': 3}
INTEGERS = {'int32': 1, 'int64': 2}
SCORES = 3
ANGLE, KEYPOINTS_2, KEYPOINTS_3, COEFFICIENTS = 1, 2, 3, 4


def _fields(kind: type[ctypes._SimpleCData], names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class LevelArgs(ctypes.Structure):
    """Outputs and grid of one stride; boxes.cu: struct Level."""

    _fields_ = [
        *_fields(c_void_p, 'boxes sizes scores objectness extras'),
        *_fields(c_int, 'first across cells per_cell'),
        ('strides', c_float * 2),
        ('priors', c_float * 2 * MAX_PRIORS),
    ]


class HeadArgs(ctypes.Structure):
    """Arguments of the box kernels; boxes.cu: struct Head."""

    _fields_ = [
        ('levels', LevelArgs * MAX_LEVELS),
        *_fields(
            c_void_p,
            'labels count request result counters keys top sorted boxes_sorted shapes_sorted kept '
            'instances mask histogram',
        ),
        *_fields(
            c_int,
            'pitch shift capacity places rows classes level_count row_classes box_row box_column '
            'extra_row extra_column score_row score_column objectness_row label_row label_kind '
            'label_offset count_kind extra_count extra_kind form activation background uses_nms',
        ),
        *_fields(c_float, 'box_width box_height'),
        *_fields(
            c_int,
            'bins planes box_plane is_y_first unit size_code has_root has_points is_peak',
        ),
        *_fields(c_float, 'place pixel gain size_gain'),
        ('limits', c_float * 2),
        *_fields(c_float, 'scale_x scale_y scale_area pad_x pad_y'),
        *_fields(c_int, 'has_one_scale image_width image_height'),
    ]


@dataclass(frozen=True)
class Level:
    """
    Outputs of all rows, or of those of one stride; steps are the same in all levels.

    :param boxes: values of the boxes; None: zeros.
    :param sizes: second half of these values, where it is apart.
    :param objectness: factor of the scores of a row.
    :param extras: further values of a row.
    """

    boxes: OutputSlice | None
    scores: OutputSlice
    sizes: OutputSlice | None = None
    objectness: OutputSlice | None = None
    extras: OutputSlice | None = None
    grid: Grid | None = None

    @property
    def slices(self) -> dict[str, OutputSlice]:
        """The outputs by field of `LevelArgs`."""
        names = ('boxes', 'sizes', 'scores', 'objectness', 'extras')
        found = {name: getattr(self, name) for name in names}
        return {name: part for name, part in found.items() if part is not None}


@dataclass(frozen=True)
class AnchorCoding(Coding):
    """
    Coding of boxes relative to the anchors of a grid, in the outputs of a network.

    :param bins: elements per value, which is the mean bin of their softmax; 1: the value itself.
    :param is_planar: each anchor of a cell is a plane of all cells; otherwise they are neighbors.
    :param class_step: elements from the boxes of one class to the next; 0: one for all classes.
    """

    bins: int = 1
    is_planar: bool = False
    class_step: int = 0

    def args(self, classes: int, input_hw: tuple[int, int]) -> dict[str, Any]:
        """Return fields of `HeadArgs`."""
        return {
            'form': FORMS[self.form],
            'bins': self.bins,
            'row_classes': 1 if self.class_step else classes,
            'planes': self.is_planar,
            'box_plane': self.class_step,
            'unit': UNITS[self.unit],
            'size_code': SIZES[self.size],
            'has_points': self.has_points,
            'place': self.place,
            'pixel': self.pixel,
            'gain': self.gain,
            'size_gain': self.size_gain,
            'limits': (c_float * 2)(*(input_hw[::-1] if self.clips else (0, 0))),
        }


def level_args(levels: Sequence[Level], address: Address) -> ctypes.Array[LevelArgs]:
    """Return the structs of some levels."""
    grids = [level.grid or Grid((1, 1), (1, 1)) for level in levels]
    starts = itertools.accumulate((grid.anchors for grid in grids), initial=0)
    found = [
        LevelArgs(
            **{name: part.at(address) for name, part in level.slices.items()},
            first=start,
            across=grid.shape[1],
            cells=grid.cells,
            per_cell=grid.per_cell,
            strides=grid.strides,
            priors=grid.priors,
        )
        for level, grid, start in zip(levels, grids, starts)
    ]
    return (LevelArgs * MAX_LEVELS)(*found)
