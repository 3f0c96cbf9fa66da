"""NanoDet-Plus, NanoDet and PicoDet: distances to the sides as distributions over bins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    Family,
    Head,
    NetworkDescription,
    cells_of_stride,
    image_output,
    is_scores,
)
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.scores import nonzero, passing
from trt_ros.vision.thresholds import Thresholds

STRIDES = (8, 16, 32)
STRIDES_WITH_64 = (8, 16, 32, 64)
#: Bins per side of the released models: all but some of NanoDet have 8 (`reg_max` 7 or 10).
BIN_COUNTS = (8, 11)
COCO_CLASSES = 80


@dataclass(frozen=True)
class DistributionHead(Head[Detections]):
    """
    A decoder of C class scores, 0 to 1, and of 4 distributions over B bins, per cell.

    The distances from a point of the cell to the left, top, right and bottom side of the box are
    the mean bins of the softmax of their B logits, in strides. Each score that passes is a
    candidate; boxes are limited to the input before NMS. Source: the generalized focal loss (Li et
    al., arXiv:2006.04388), as decoded by `NanoDetPlusHead` and `GFLHead` of NanoDet and `PicoHead`
    of PaddleDetection.

    :param names: one output (1, cells of all strides, C + 4 B); or the scores (1, cells, C) of
        each stride, then the distributions (1, cells, 4 B) of each stride.
    :param bin_count: B.
    :param offset: place of the point in the cell, in strides: 0 is its upper-left corner.
    """

    names: tuple[str, ...]
    class_count: int | None
    bin_count: int
    strides: tuple[int, ...]
    offset: float

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            found = [
                self._candidates(scores, sides, stride, letterbox.input_hw, thresholds.score)
                for stride, scores, sides in self._levels(outputs, letterbox.input_hw)
            ]
            boxes, scores, labels = (np.concatenate(parts) for parts in zip(*found))
            return to_detections(
                np.clip(boxes, 0, np.array(letterbox.input_hw[::-1] * 2, np.float32)),
                scores,
                labels,
                letterbox,
                thresholds,
            )

    def _levels(
        self, outputs: Mapping[str, np.ndarray], input_hw: tuple[int, int]
    ) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """
        Return stride, scores (N, C) and distributions (N, 4 B) of each grid.

        :raises TensorMismatchError: when an output is missing or of another shape.
        """
        values = [image_output(outputs, name) for name in self.names]
        counts = [len(cells_of_stride(input_hw, stride)) for stride in self.strides]
        sides = 4 * self.bin_count
        if len(values) == 1:
            values = np.split(values[0], np.cumsum(counts)[:-1])
            values = [each[:, :-sides] for each in values] + [each[:, -sides:] for each in values]
        classes = self.class_count or values[0].shape[1]
        expected = [(count, classes) for count in counts] + [(count, sides) for count in counts]
        if not classes or [each.shape for each in values] != expected:
            raise _mismatch(', '.join(str(np.shape(outputs[name])) for name in self.names))
        return list(zip(self.strides, values, values[len(counts) :]))

    def _candidates(
        self,
        scores: np.ndarray,
        sides: np.ndarray,
        stride: int,
        input_hw: tuple[int, int],
        score_threshold: float,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (N, 4) corners in input pixels, (N,) scores and (N,) labels."""
        scores = np.ascontiguousarray(as_float32(scores))
        rows, labels = nonzero(passing(scores, score_threshold))
        logits = as_float32(sides[rows]).reshape(-1, 4, self.bin_count)
        powers = np.exp(logits - logits.max(axis=2, keepdims=True))
        bins = np.arange(self.bin_count, dtype=np.float32)
        distances = powers @ bins / powers.sum(axis=2) * np.float32(stride)
        points = (cells_of_stride(input_hw, stride)[rows] + np.float32(self.offset)) * stride
        points = points.astype(np.float32)
        corners = np.hstack([points - distances[:, :2], points + distances[:, 2:]])
        return corners, scores[rows, labels], labels


@dataclass(frozen=True)
class DistributionOutputs:
    """
    The outputs of such a network.

    :param specs: in the order of `DistributionHead.names`.
    """

    specs: tuple[TensorSpec, ...]
    class_count: int | None
    bin_count: int

    def __str__(self) -> str:
        return ', '.join(map(str, self.specs))

    def head(self, strides: tuple[int, ...], offset: float) -> DistributionHead:
        """Return the decoder of the outputs."""
        names = tuple(spec.name for spec in self.specs)
        return DistributionHead(names, self.class_count, self.bin_count, strides, offset)


def find_concatenated(
    network: NetworkDescription, strides: tuple[int, ...]
) -> DistributionOutputs | None:
    """Find one output (1, cells, C + 4 B); None: this is not the only output."""
    if len(network.outputs) != 1 or not is_scores(network.only_output):
        return None
    _, rows, channels = network.only_output.shape
    count = sum(len(cells_of_stride(network.input_hw, stride)) for stride in strides)
    bins = _bin_count(channels, network.class_count)
    if 'task' in network.metadata or rows not in (-1, count) or not bins:
        return None
    classes = channels - 4 * bins if channels > 0 else None
    return DistributionOutputs(network.outputs, classes, bins)


def find_separate(
    network: NetworkDescription, strides: tuple[int, ...]
) -> DistributionOutputs | None:
    """Find scores (1, cells, C) and distributions (1, cells, 4 B) of each stride."""
    specs = network.outputs
    if len(specs) != 2 * len(strides) or not all(map(is_scores, specs)):
        return None
    counts = [len(cells_of_stride(network.input_hw, stride)) for stride in strides]
    groups = [[spec for spec in specs if spec.shape[2] == size] for size in _channels(specs)]
    if len(groups) == 1:  # As many classes as values of a distribution: in this order.
        groups = [list(specs[: len(strides)]), list(specs[len(strides) :])]
    for group in groups:
        group.sort(key=lambda spec: -spec.shape[1])  # The finest grid first; dynamic: unchanged.
        if len(group) != len(strides) or any(
            spec.shape[1] not in (-1, count) for spec, count in zip(group, counts)
        ):
            return None
    for scores, sides in (groups, groups[::-1]):
        classes, (bins, rest) = scores[0].shape[2], divmod(sides[0].shape[2], 4)
        if bins > 1 and not rest and network.class_count in (None, 0, classes):
            return DistributionOutputs((*scores, *sides), classes, bins)
    return None


def _channels(specs: tuple[TensorSpec, ...]) -> list[int]:
    """Return the lengths of the last axis: that of the scores first, if they are in order."""
    return list(dict.fromkeys(spec.shape[2] for spec in specs))


def _bin_count(channels: int, class_count: int | None) -> int:
    """
    Return the number of bins per side of (1, cells, channels); 0: the channels do not fit.

    Without named classes it is that of a released model.
    """
    if class_count and channels > 0:
        bins, rest = divmod(channels - class_count, 4)
        return bins if bins > 1 and not rest else 0
    for bins in BIN_COUNTS:
        if channels == COCO_CLASSES + 4 * bins:
            return bins
    return BIN_COUNTS[0] if channels < 0 or channels > 4 * BIN_COUNTS[0] else 0


def _open_plus(network: NetworkDescription) -> DistributionHead:
    found = find_concatenated(network, STRIDES_WITH_64)
    return _required(found, network).head(STRIDES_WITH_64, 0.0)


def open_of_cell_centers(
    network: NetworkDescription, *, strides: tuple[int, ...]
) -> DistributionHead:
    """Open the head of a network whose distances are from the center of the cell."""
    found = find_separate(network, strides) or find_concatenated(network, strides)
    return _required(found, network).head(strides, 0.5)


def _required(
    found: DistributionOutputs | None, network: NetworkDescription
) -> DistributionOutputs:
    if found is None:
        raise _mismatch(str(network))
    return found


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        'Not a network of distances as distributions: expected (1, cells, classes + 4 * bins), or '
        '(1, cells, classes) and (1, cells, 4 * bins) of each stride: 8, 16, 32 and 64 for '
        f'nanodet_plus and picodet, 8, 16 and 32 for nanodet; got {seen}.',
        remedy='Set `labels` to the names of the classes, which decide the number of bins, or '
        'choose another decoder.',
    )


_NANODET_PREPROCESS: Mapping[str, object] = {
    'channel_order': 'bgr',
    'scale': 1.0,
    'mean': (103.53, 116.28, 123.675),
    'std': (57.375, 57.12, 58.395),
}
_TOGETHER = BoxLayout(
    (Out('B N V', 'scores:C box:4*D'),),
    Rows((STRIDES_WITH_64,), covers=True),
    Coding('sides', clips=True),
    select='each',
    assume={'D': BIN_COUNTS},
)
_APART = replace(
    _TOGETHER,
    outputs=(
        Out('B N V', 'scores:C', per_level=True),
        Out('B N V', 'box:4*D', per_level=True),
    ),
)
#: Distances are from the centers of the cells.
CENTERED, CENTERED_APART = (
    replace(layout, coding=replace(layout.coding, place=0.5)) for layout in (_TOGETHER, _APART)
)
#: Source: `keep_ratio` and `normalize` in the configurations of NanoDet.
NANODET_PLUS = Family(
    'nanodet_plus',
    'detect',
    {**_NANODET_PREPROCESS, 'resize': 'stretch'},
    _open_plus,
    layouts=(_TOGETHER,),
    exporter='none',
    output_names=('output',),
)
NANODET = Family(
    'nanodet',
    'detect',
    {**_NANODET_PREPROCESS, 'resize': 'letterbox', 'pad_value': 0},
    partial(open_of_cell_centers, strides=STRIDES),
    layouts=tuple(
        replace(layout, rows=Rows((STRIDES,), covers=True))
        for layout in (CENTERED_APART, CENTERED)
    ),
    exporter='none',
    output_names=('output',),
)
