"""GPU decoders of boxes: arguments for the kernels of boxes.cu and nms.cu, and their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from trt_ros.decode.cuda import box_args as codes
from trt_ros.decode.cuda.box_args import AnchorCoding, HeadArgs, Level, level_args
from trt_ros.decode.cuda.decoder import (
    COUNTERS_NBYTES,
    FLOATS,
    HEADER_NBYTES,
    Address,
    Launch,
    OutputSlice,
    Reader,
)
from trt_ros.results.boxes import Detections, OrientedBoxes
from trt_ros.results.poses import Poses
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range

TOP = 10240  # top.cu: TOP
MAX_DETECTIONS = TOP
GROUP, COLUMNS = 512, 256  # nms.cu: GROUP, COLUMNS
MAX_CANDIDATES = 1 << 24  # 128 MiB of keys.
ONE_BLOCK = 1 << 17  # Candidates among which one block of threads finds the best TOP fast enough.
SHIFTS = (55, 44, 33, 22, 11, 0)  # top.cu: narrow


class BoxViews(NamedTuple):
    """
    Views of a result of boxes in host memory, of which each frame fills the first entries.

    :param header: (4,) int32, see common.cu: struct Result.
    :param xyxy: (capacity, 4) float32; `scores`: (capacity,) float32; `labels`: (capacity,) int32.
    :param extras: (capacity, extra_floats) float32.
    """

    header: np.ndarray
    xyxy: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    extras: np.ndarray

    def has_nonfinite(self) -> bool:
        """Return whether any output value was NaN or infinite."""
        return bool(self.header.item(2))

    def boxes(self) -> Detections:
        """Return copies of the boxes."""
        # Few and plain steps: the result waits for them.
        count = self.header.item(0)
        scores = self.scores[:count].copy()
        if count and not (scores.item(0) <= 1 and scores.item(-1) >= 0):  # Best first.
            scores = check_range(scores)
        return Detections(self.xyxy[:count].copy(), scores, self.labels[:count].copy())

    def read(self) -> tuple[Detections, bool]:
        """Return the boxes and whether outputs had non-finite values."""
        return self.boxes(), self.has_nonfinite()


@dataclass(frozen=True)
class GpuBoxes:
    """
    Decoder of boxes and scores; fields as in boxes.cu's `Head`.

    :param select: 'columns' and 'rows' find the best class of each of `rows` boxes, whose scores
        are contiguous per class or per box; with 'each', every score is a candidate.
    :param form: 'corners', 'centers' or 'rotated'; or a `AnchorCoding`.
    :param uses_nms: whether boxes of one class suppress each other.
    :param normalized: whether boxes are 0 to 1 of the input instead of pixels.
    :param limit: maximum number of boxes, whatever the request asks for.
    :param extra_count: number of further values of each box.
    :param label_offset: the class of the result is `labels` minus this.
    :param has_root: the score is the root of its product with the objectness.
    :param is_peak: a score passes only if none of the 3 x 3 cells around it is higher.
    :param finish: completes a result; of poses only.
    """

    select: str
    rows: int
    classes: int
    levels: tuple[Level, ...]
    form: str | AnchorCoding = 'centers'
    labels: OutputSlice | None = None
    count: OutputSlice | None = None
    label_offset: int = 0
    activation: str = 'none'
    background: int = 0
    uses_nms: bool = True
    normalized: bool = False
    is_y_first: bool = False
    has_root: bool = False
    is_peak: bool = False
    limit: int = MAX_DETECTIONS
    extra_count: int = 0
    finish: Callable[[Any], Any] | None = None

    @property
    def dtype(self) -> str:
        """Dtype of the outputs."""
        return self.levels[0].scores.dtype

    @property
    def coding(self) -> AnchorCoding | None:
        """AnchorCoding of boxes that are relative to anchors."""
        return self.form if isinstance(self.form, AnchorCoding) else None

    @property
    def extra_kind(self) -> int:
        """Meaning of the extras in boxes.cu."""
        return 0

    @property
    def extra_floats(self) -> int:
        """Further values of each box in the result."""
        return 0

    @property
    def places(self) -> int:
        """Maximum number of candidates."""
        return self.rows * (self.classes if self.select == 'each' else 1)

    @property
    def capacity(self) -> int:
        """Maximum number of boxes in the result."""
        return min(self.limit, self.places, MAX_DETECTIONS)

    @property
    def is_supported(self) -> bool:
        """Whether the kernels can read these dtypes and sizes."""
        labels, count, dtype = self.labels, self.count, self.dtype
        parts = [part for level in self.levels for part in level.slices.values()]
        return (
            dtype in FLOATS
            and all(part.dtype == dtype for part in parts)
            and 0 < self.places <= MAX_CANDIDATES
            and 0 < self.rows * self.classes < 1 << 31
            and self._fits_grids
            and (
                labels is None
                or (
                    not self.uses_nms and (labels.dtype in codes.INTEGERS or labels.dtype == dtype)
                )
            )
            and (count is None or count.dtype in codes.INTEGERS or count.dtype == dtype)
        )

    @property
    def _fits_grids(self) -> bool:
        """Whether there is a row per anchor of the grids."""
        if self.coding is None:
            return len(self.levels) == 1
        grids = [level.grid for level in self.levels if level.grid is not None]
        return (
            len(grids) == len(self.levels) <= codes.MAX_LEVELS
            and all(len(grid.priors) <= codes.MAX_PRIORS for grid in grids)
            and sum(grid.anchors for grid in grids) == self.rows
        )

    @property
    def _compared_groups(self) -> int:
        """Groups of candidates that are compared at once; without NMS, if asked to."""
        return -(-(min(self.places, TOP) if self.uses_nms else self.capacity) // GROUP)

    @cached_property
    def _scratch(self) -> tuple[dict[str, int], int]:
        """Offsets of the parts of the scratch memory by field of `HeadArgs`, and its size."""
        is_more = self.places > TOP
        groups, compared = -(-min(self.places, TOP) // GROUP), self._compared_groups
        behind = self.capacity if is_more and self.uses_nms else 0
        ranked = groups * GROUP + behind
        sizes = {
            'counters': COUNTERS_NBYTES,
            'histogram': 4 * 2048 if self.places > ONE_BLOCK else 0,
            'keys': 8 * self.places,
            'top': 8 * TOP if is_more else 0,
            'sorted': 8 * ranked,
            'boxes_sorted': 16 * ranked,
            'shapes_sorted': 16 * ranked if self.form == 'rotated' else 0,
            'kept': 4 * self.capacity,
            'instances': 24 * self.capacity if self.extra_kind == codes.COEFFICIENTS else 0,
            'mask': 8 * compared * GROUP * compared * (GROUP // 64),
        }
        offsets, end = {}, 0
        for name, nbytes in sizes.items():
            offsets[name] = end
            end += -(-nbytes // 256) * 256
        return offsets, end

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
        return HEADER_NBYTES + (24 + 4 * self.extra_floats) * self.capacity

    def _args(
        self, letterbox: Letterbox, address: Address, request: int, scratch: int, result: int
    ) -> HeadArgs:
        height, width = letterbox.input_hw
        size = (width, height) if self.normalized else (1, 1)
        labels, count, first = self.labels, self.count, self.levels[0]
        parts = {name: scratch + offset for name, offset in self._scratch[0].items()}
        (scale_x, scale_y), (pad_x, pad_y) = letterbox.scale_xy, letterbox.pad_xy
        image_width, image_height = letterbox.image_wh
        boxes, extras, objectness = first.boxes or first.sizes, first.extras, first.objectness
        assert boxes is not None
        return HeadArgs(
            level_args(self.levels, address),
            **parts,
            **(
                self.form.args(self.classes, letterbox.input_hw)
                if isinstance(self.form, AnchorCoding)
                else {'form': codes.FORMS[self.form], 'bins': 1, 'row_classes': self.classes}
            ),
            labels=labels and labels.at(address),
            count=count and count.at(address),
            request=request,
            result=result,
            pitch=self._compared_groups * (GROUP // 64),
            capacity=self.capacity,
            places=self.places,
            rows=self.rows,
            classes=self.classes,
            level_count=len(self.levels),
            box_row=boxes.row,
            box_column=boxes.column,
            extra_row=extras.row if extras else 0,
            extra_column=extras.column if extras else 0,
            score_row=first.scores.row,
            score_column=first.scores.column,
            objectness_row=objectness.row if objectness else 0,
            label_row=labels.row if labels else 0,
            label_kind=codes.INTEGERS.get(labels.dtype, codes.SCORES) if labels else 0,
            label_offset=self.label_offset,
            count_kind=codes.INTEGERS.get(count.dtype, codes.SCORES) if count else 0,
            extra_count=self.extra_count,
            extra_kind=self.extra_kind,
            activation=codes.ACTIVATIONS[self.activation],
            background=self.background,
            uses_nms=self.uses_nms,
            box_width=size[0],
            box_height=size[1],
            is_y_first=self.is_y_first,
            has_root=self.has_root,
            is_peak=self.is_peak,
            scale_x=scale_x,
            scale_y=scale_y,
            scale_area=scale_x * scale_y,
            pad_x=pad_x,
            pad_y=pad_y,
            has_one_scale=scale_x == scale_y,
            image_width=image_width,
            image_height=image_height,
        )

    def launches(
        self, letterbox: Letterbox, address: Address, *, request: int, scratch: int, result: int
    ) -> tuple[Launch, ...]:
        """Return the kernels to launch for an image, see `GpuDecoder`."""
        args = self._args(letterbox, address, request, scratch, result)
        dtype, anchors = self.dtype, '_anchors' if self.coding else ''
        shape = '_rotated' if self.form == 'rotated' else ''
        wide, one = (512, 1, 1), (1, 1, 1)
        per_block = {'columns': 32, 'rows': 8, 'each': 1024}[self.select]
        blocks = (-(-self.places // per_block), 1, 1)
        found = [Launch(f'select_{self.select}{anchors}_{dtype}', blocks, (32, 8, 1), args)]
        if self.activation == 'maybe_sigmoid':
            found.insert(0, Launch(f'find_logits_{dtype}', wide, (256, 1, 1), args))
        if self.places > ONE_BLOCK:
            for shift in SHIFTS:
                digit = HeadArgs.from_buffer_copy(args)
                digit.shift = shift
                found.append(Launch('narrow', wide, (256, 1, 1), digit))
            found.append(Launch('gather', wide, (256, 1, 1), args))
        elif self.places > TOP:
            found.append(Launch('cut', one, (1024, 1, 1), args))
        ranked = -(-min(self.places, TOP) // 64)
        found.append(Launch(f'rank{shape or anchors}_{dtype}', (ranked, 1, 1), (1024, 1, 1), args))
        groups = self._compared_groups
        tiles = (groups + 1) // 2 * (groups + 1) * (GROUP // 64) * (GROUP // COLUMNS)
        found.append(
            Launch(f'mask{shape or "_upright"}', (min(tiles, 1024), 1, 1), (256, 1, 1), args)
        )
        found.append(Launch(f'reduce{anchors}_{dtype}', one, (GROUP, 1, 1), args))
        if self.uses_nms and self.places > TOP:
            found.append(Launch(f'filter{shape or anchors}_{dtype}', wide, (256, 1, 1), args))
            found.append(Launch(f'rest{shape or anchors}_{dtype}', one, (1024, 1, 1), args))
        return tuple(found)

    def views(self, memory: np.ndarray) -> BoxViews:
        """Return views of the boxes and of their extra values in the memory of a result."""
        floats = memory[: self.boxes_nbytes].view(np.float32)
        header, xyxy, scores, labels, extras = np.split(
            floats, HEADER_NBYTES // 4 + self.capacity * np.array([0, 4, 5, 6])
        )
        return BoxViews(
            header.view(np.int32),
            xyxy.reshape(self.capacity, 4),
            scores,
            labels.view(np.int32),
            extras.reshape(self.capacity, self.extra_floats),
        )

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads boxes, see `GpuDecoder`."""
        return self.views(memory).read


@dataclass(frozen=True)
class GpuPoses(GpuBoxes):
    """
    Decoder of boxes with keypoints, which are the extras of each box.

    :param values: values per keypoint: 3, or 2 without visibility.
    """

    values: int = 3

    @property
    def extra_kind(self) -> int:
        """Meaning of the extras in boxes.cu."""
        return codes.KEYPOINTS_3 if self.values == 3 else codes.KEYPOINTS_2

    @property
    def extra_floats(self) -> int:
        """Further values of each box in the result: x, y and visibility of its keypoints."""
        return self.extra_count // self.values * 3

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads poses, see `GpuDecoder`."""
        views = self.views(memory)
        all_keypoints = views.extras.reshape(self.capacity, self.extra_floats // 3, 3)

        def read() -> tuple[Poses, bool]:
            boxes = views.boxes()
            keypoints = all_keypoints[: len(boxes)].copy()
            keypoints[..., 2] = check_range(keypoints[..., 2], is_padded=not self.uses_nms)
            poses = Poses(boxes, keypoints)
            return (self.finish(poses) if self.finish else poses), views.has_nonfinite()

        return read


@dataclass(frozen=True)
class GpuOrientedBoxes(GpuBoxes):
    """Decoder of rotated boxes, of which the only extra value is the angle."""

    @property
    def extra_kind(self) -> int:
        """Meaning of the extras in boxes.cu."""
        return codes.ANGLE

    @property
    def extra_floats(self) -> int:
        """Further values of each box in the result: the angle."""
        return 1

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads rotated boxes, see `GpuDecoder`."""
        views = self.views(memory)

        def read() -> tuple[OrientedBoxes, bool]:
            boxes = views.boxes()
            theta = views.extras[: len(boxes), 0].copy()
            found = OrientedBoxes(boxes.xyxy, theta, boxes.scores, boxes.labels)
            return found, views.has_nonfinite()

        return read
