"""GPU decoders of boxes: arguments for the kernels of boxes.cu and nms.cu, and their results."""

import ctypes
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trt_ros.decode.boxes import BoxHead
from trt_ros.decode.cuda import decoder as codes
from trt_ros.decode.cuda.decoder import (
    COUNTERS_NBYTES,
    FLOATS,
    Addresses,
    BoxViews,
    Launch,
    Outputs,
    Reader,
    box_views,
    boxes_nbytes,
    laid_out,
    poses_reader,
)
from trt_ros.families.layout import BoxLayout, Grid
from trt_ros.families.places import Places, Slice
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.results.poses import Poses
from trt_ros.vision.letterbox import Letterbox

# Values of a row by role, and their fields in boxes.cu's struct Level.
VALUES = {'box': 'boxes', **{each: each for each in ('sizes', 'scores', 'objectness', 'extras')}}
# Fields of boxes.cu's struct Head that are those of the layout, and of its coding.
OF_LAYOUT = ('label_offset', 'uses_nms', 'limits_objectness', 'is_peak', 'power', 'class_power')
OF_CODING = ('is_y_first', 'place', 'pixel', 'gain', 'size_gain')
TOP = 10240  # top.cu: TOP
MAX_DETECTIONS = TOP
GROUP, COLUMNS = 512, 256  # nms.cu: GROUP, COLUMNS
MAX_CANDIDATES = 1 << 24  # 128 MiB of keys.
ONE_BLOCK = 1 << 17  # Candidates among which one block of threads finds the best TOP fast enough.
SHIFTS = (55, 44, 33, 22, 11, 0)  # top.cu: narrow


@dataclass(frozen=True)
class GpuBoxes:
    """Decoder of boxes and scores, which executes the layout of a head."""

    head: BoxHead
    places: Places
    outputs: Outputs

    @property
    def layout(self) -> BoxLayout:
        """Layout of the outputs."""
        return self.head.layout

    @cached_property
    def _slices(self) -> list[dict[str, Slice]]:
        found = [dict(level.slices) for level in self.places.levels]
        if self.layout.objectness_only and self.places.classes == 1:
            for slices in found:
                slices['scores'] = slices.pop('objectness', slices['scores'])
        return found

    @property
    def select(self) -> str:
        """
        Kernel that selects rows and classes.

        'columns' and 'rows' find the best class of each row, whose scores are contiguous per
        class, or per row or relative to anchors; with 'each', every score is a candidate.
        """
        if self.layout.select == 'each' or 'label' in self._slices[0]:
            return 'each'
        is_plain = not self.layout.is_anchored and 'objectness' not in self._slices[0]
        return 'columns' if self._slices[0]['scores'].column > 1 and is_plain else 'rows'

    @property
    def dtype(self) -> str:
        """Dtype of the outputs."""
        return self.outputs.dtypes[self._slices[0]['scores'].output]

    @property
    def extra_count(self) -> int:
        """Number of further values of each row."""
        return self._slices[0]['extras'].values if 'extras' in self._slices[0] else 0

    @property
    def extra_kind(self) -> int:
        """Meaning of the extras in boxes.cu."""
        return 0

    @property
    def extra_floats(self) -> int:
        """Further values of each box in the result."""
        return 0

    @property
    def candidates(self) -> int:
        """Maximum number of candidates."""
        return self.places.rows * (self.places.classes if self.select == 'each' else 1)

    @property
    def capacity(self) -> int:
        """Maximum number of boxes in the result."""
        limit = self.places.rows if self.layout.is_limited else MAX_DETECTIONS
        return min(limit, self.candidates, MAX_DETECTIONS)

    @property
    def is_supported(self) -> bool:
        """Whether the kernels can read these dtypes and sizes."""
        dtypes, counted = self.outputs.dtypes, self.places.tensors.get('count')
        values = {
            dtypes[place.output]
            for slices in self._slices
            for role, place in slices.items()
            if role in VALUES
        }
        labels = {dtypes[slices['label'].output] for slices in self._slices if 'label' in slices}
        whole = {self.dtype, *codes.INTEGERS}
        grids = [level.grid for level in self.places.levels if level.grid is not None]
        return (
            self.dtype in FLOATS
            and values == {self.dtype}
            and 0 < self.candidates <= MAX_CANDIDATES
            and 0 < self.places.rows * self.places.classes < 1 << 31
            and len(self._slices) <= codes.MAX_LEVELS
            and all(len(grid.priors) <= codes.MAX_PRIORS for grid in grids)
            and labels <= whole
            and not (labels and self.layout.uses_nms)
            and (counted is None or dtypes[counted.output] in whole)
        )

    @property
    def _compared_groups(self) -> int:
        """Groups of candidates that are compared at once; without NMS, if asked to."""
        return -(-(min(self.candidates, TOP) if self.layout.uses_nms else self.capacity) // GROUP)

    @cached_property
    def _scratch(self) -> tuple[dict[str, int], int]:
        is_more = self.candidates > TOP
        groups, compared = -(-min(self.candidates, TOP) // GROUP), self._compared_groups
        behind = self.capacity if is_more and self.layout.uses_nms else 0
        ranked = groups * GROUP + behind
        return laid_out(
            {
                'counters': COUNTERS_NBYTES,
                'histogram': 4 * 2048 if self.candidates > ONE_BLOCK else 0,
                'keys': 8 * self.candidates,
                'top': 8 * TOP if is_more else 0,
                'sorted': 8 * ranked,
                'boxes_sorted': 16 * ranked,
                'shapes_sorted': 16 * ranked if self.layout.coding.form == 'rotated' else 0,
                'kept': 4 * self.capacity,
                'instances': 24 * self.capacity if self.extra_kind == codes.COEFFICIENTS else 0,
                'mask': 8 * compared * GROUP * compared * (GROUP // 64),
            }
        )

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory: counters, candidates and which of them overlap."""
        return self._scratch[1]

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result: header, boxes, scores and labels."""
        return self.boxes_nbytes

    @property
    def boxes_nbytes(self) -> int:
        """Bytes of the header and of the arrays of boxes in the result."""
        return boxes_nbytes(self.capacity, self.extra_floats)

    def _levels(self, at: Addresses) -> ctypes.Array[codes.LevelArgs]:
        found, first = [], 0
        for level, slices in zip(self.places.levels, self._slices):
            grid = level.grid or Grid((1, 1), (1, 1))
            found.append(
                codes.LevelArgs(
                    **{
                        field: self._at(slices[role], at)
                        for role, field in VALUES.items()
                        if role in slices
                    },
                    first=first,
                    across=grid.shape[1],
                    cells=grid.cells,
                    per_cell=grid.per_cell,
                    strides=grid.strides,
                    priors=grid.priors,
                )
            )
            first += level.rows
        return (codes.LevelArgs * codes.MAX_LEVELS)(*found)

    def _at(self, place: Slice | None, at: Addresses) -> int | None:
        return None if place is None else self.outputs[place.output].at(at, place.start)

    def _args(self, letterbox: Letterbox, at: Addresses) -> codes.HeadArgs:
        layout, coding, places = self.layout, self.layout.coding, self.places
        first, count = self._slices[0], places.tensors.get('count')
        height, width = letterbox.input_hw
        (scale_x, scale_y), (pad_x, pad_y) = letterbox.scale_xy, letterbox.pad_xy
        image_width, image_height = letterbox.image_wh
        absent = Slice('', 0, 0, 0, 0)
        boxes = first.get('box') or first['sizes']
        extras, label = first.get('extras', absent), first.get('label')
        return codes.HeadArgs(
            self._levels(at),
            **{name: at.scratch + offset for name, offset in self._scratch[0].items()},
            **{name: getattr(layout, name) for name in OF_LAYOUT},
            **{name: getattr(coding, name) for name in OF_CODING},
            labels=self._at(label, at),
            count=self._at(count, at),
            request=at.request,
            result=at.result,
            pitch=self._compared_groups * (GROUP // 64),
            capacity=self.capacity,
            places=self.candidates,
            rows=places.rows,
            classes=places.classes,
            level_count=len(places.levels),
            row_classes=1 if places.class_step else places.classes,
            box_row=boxes.row,
            box_column=boxes.column,
            extra_row=extras.row,
            extra_column=extras.column,
            score_row=first['scores'].row,
            score_column=first['scores'].column,
            objectness_row=first.get('objectness', absent).row,
            label_row=label.row if label else 0,
            label_kind=self._kind(label),
            count_kind=self._kind(count),
            extra_count=self.extra_count,
            extra_kind=self.extra_kind,
            form=codes.FORMS[coding.form],
            activation=codes.ACTIVATIONS[layout.activation],
            box_width=width if coding.is_normalized else 1,
            box_height=height if coding.is_normalized else 1,
            bins=places.bins,
            planes=places.is_planar,
            box_plane=places.class_step,
            unit=codes.UNITS[coding.unit],
            size_code=codes.SIZES[coding.size],
            has_points=coding.has_points + coding.are_points_in_box,
            limits=(width, height) if coding.clips else (0, 0),
            scale_x=scale_x,
            scale_y=scale_y,
            scale_area=scale_x * scale_y,
            pad_x=pad_x,
            pad_y=pad_y,
            has_one_scale=scale_x == scale_y,
            image_width=image_width,
            image_height=image_height,
        )

    def _kind(self, place: Slice | None) -> int:
        if place is None:
            return 0
        return codes.INTEGERS.get(self.outputs.dtypes[place.output], codes.SCORES)

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        """Return the kernels to launch for an image, see `GpuDecoder`."""
        args = self._args(letterbox, at)
        dtype, anchors = self.dtype, '_anchors' if self.layout.is_anchored else ''
        shape = '_rotated' if self.layout.coding.form == 'rotated' else ''
        wide, one = (512, 1, 1), (1, 1, 1)
        per_block = {'columns': 32, 'rows': 8, 'each': 1024}[self.select]
        blocks = (-(-self.candidates // per_block), 1, 1)
        found = [Launch(f'select_{self.select}{anchors}_{dtype}', blocks, (32, 8, 1), args)]
        if self.layout.activation == 'maybe_sigmoid':
            found.insert(0, Launch(f'find_logits_{dtype}', wide, (256, 1, 1), args))
        if self.candidates > ONE_BLOCK:
            for shift in SHIFTS:
                digit = codes.HeadArgs.from_buffer_copy(args)
                digit.shift = shift
                found.append(Launch('narrow', wide, (256, 1, 1), digit))
            found.append(Launch('gather', wide, (256, 1, 1), args))
        elif self.candidates > TOP:
            found.append(Launch('cut', one, (1024, 1, 1), args))
        ranked = -(-min(self.candidates, TOP) // 64)
        found.append(Launch(f'rank{shape or anchors}_{dtype}', (ranked, 1, 1), (1024, 1, 1), args))
        groups = self._compared_groups
        tiles = (groups + 1) // 2 * (groups + 1) * (GROUP // 64) * (GROUP // COLUMNS)
        found.append(
            Launch(f'mask{shape or "_upright"}', (min(tiles, 1024), 1, 1), (256, 1, 1), args)
        )
        found.append(Launch(f'reduce{anchors}_{dtype}', one, (GROUP, 1, 1), args))
        if self.layout.uses_nms and self.candidates > TOP:
            found.append(Launch(f'filter{shape or anchors}_{dtype}', wide, (256, 1, 1), args))
            found.append(Launch(f'rest{shape or anchors}_{dtype}', one, (1024, 1, 1), args))
        return tuple(found)

    def views(self, memory: np.ndarray) -> BoxViews:
        """Return views of the boxes and of their extra values in the memory of a result."""
        return box_views(memory, self.capacity, self.extra_floats)

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads boxes, see `GpuDecoder`."""
        return self.views(memory).read


class GpuPoses(GpuBoxes):
    """Decoder of boxes with keypoints, which are the extras of each box."""

    @property
    def extra_kind(self) -> int:
        has_visibility = self.head.reading.values_per_keypoint == 3
        return codes.KEYPOINTS_3 if has_visibility else codes.KEYPOINTS_2

    @property
    def extra_floats(self) -> int:
        return self.extra_count // self.head.reading.values_per_keypoint * 3

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        read = poses_reader(self.views(memory), is_padded=not self.layout.uses_nms)

        def read_with_regions() -> tuple[Poses, bool]:
            poses, has_nonfinite = read()
            return self.head.with_regions(poses), has_nonfinite

        return read_with_regions


class GpuOrientedBoxes(GpuBoxes):
    """Decoder of rotated boxes, of which the only extra value is the angle."""

    extra_kind = codes.ANGLE
    extra_floats = 1  # The angle.

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        views = self.views(memory)

        def read() -> tuple[OrientedBoxes, bool]:
            boxes = views.boxes()
            theta = views.extras[: len(boxes), 0].copy()
            found = OrientedBoxes(boxes.xyxy, theta, boxes.scores, boxes.labels)
            return found, views.has_nonfinite()

        return read
