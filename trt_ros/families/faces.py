"""SCRFD, YuNet and RetinaFace: faces with five landmarks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    Family,
    Head,
    NetworkDescription,
    cells_of_stride,
    image_output,
    is_float,
)
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.results.poses import Poses
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes
from trt_ros.vision.scores import check_range, passing
from trt_ros.vision.thresholds import Thresholds

STRIDES = (8, 16, 32)
LANDMARKS = 5
#: Sides in pixels of the two square priors per cell of RetinaFace, by stride.
RETINAFACE_PRIORS = ((16, 32), (64, 128), (256, 512))


@dataclass(frozen=True)
class FaceHead(Head[Poses]):
    """
    A decoder of faces: boxes of one class with landmarks, whose visibility is 1.

    :param outputs: names, in the order that the decoder documents.
    :param batched: the outputs have a batch axis.
    :cvar landmarks: number of landmarks per face.
    """

    outputs: tuple[str, ...]
    batched: bool = True
    landmarks: ClassVar[int] = LANDMARKS

    @property
    def class_count(self) -> int:
        """Number of classes: faces only."""
        return 1

    @property
    def keypoint_count(self) -> int:
        """Number of landmarks per face."""
        return self.landmarks

    @property
    def takes_batches(self) -> bool:
        """Whether each output has an axis for the images of a batch."""
        return self.batched

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Poses:
        """
        Decode the outputs into faces with landmarks; see `Head`.

        :raises TensorMismatchError: when an output is missing or of another shape.
        """
        values = [
            image_output(outputs, name, batched=self.batched).astype(np.float32)
            for name in self.outputs
        ]
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            boxes, points, scores = self._faces(values, letterbox.input_hw, thresholds.score)
            best, found = choose_boxes(
                boxes,
                scores,
                np.zeros(len(scores), np.int32),
                letterbox,
                thresholds,
            )
        keypoints = np.ones((len(best), self.landmarks, 3), np.float32)
        xy = points[best].reshape(-1, self.landmarks, 2)
        keypoints[..., :2] = letterbox.points_to_image(xy)
        keypoints[~np.isfinite(keypoints).all(axis=-1)] = 0  # Not visible.
        return Poses(found, keypoints)

    @abstractmethod
    def _faces(
        self, values: list[np.ndarray], input_hw: tuple[int, int], score_threshold: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (N, 4) corners, (N, 2 L) landmarks, both in input pixels, and (N,) scores."""


@dataclass(frozen=True)
class ScrfdHead(FaceHead):
    """
    A decoder of scores (N, 1), boxes (N, 4) and landmarks (N, 10), each at three strides.

    There are two anchors per cell, both at its upper-left corner. Boxes are the distances to the
    left, top, right and bottom, landmarks the offsets, in strides. Source: SCRFD of insightface
    (Guo et al., arXiv:2105.04714).
    """

    def _faces(
        self, values: list[np.ndarray], input_hw: tuple[int, int], score_threshold: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = []
        for level, stride in enumerate(STRIDES):
            scores, boxes, points = values[level::3]
            cells = np.repeat(cells_of_stride(input_hw, stride), 2, axis=0)
            _require_rows((scores, boxes, points), (1, 4, 2 * LANDMARKS), len(cells))
            keep = np.flatnonzero(passing(scores[:, 0], score_threshold))
            anchors = cells[keep] * np.float32(stride)
            sides = boxes[keep] * stride
            corners = np.hstack([anchors - sides[:, :2], anchors + sides[:, 2:]])
            landmarks = np.tile(anchors, LANDMARKS) + points[keep] * stride
            found.append((corners, landmarks, scores[keep, 0]))
        corners, landmarks, kept = (np.concatenate(parts) for parts in zip(*found))
        return corners, landmarks, kept


@dataclass(frozen=True)
class YunetHead(FaceHead):
    """
    A decoder of class scores (N, 1), objectness (N, 1), boxes (N, 4) and landmarks (N, 10).

    Each comes at three strides, one anchor per cell, in the upper-left corner of the cell: boxes
    are the offset of the center and the logarithm of the size, landmarks offsets, in strides. The
    score is the square root of class score times objectness. Source: YuNet as decoded by OpenCV's
    FaceDetectorYN.
    """

    def _faces(
        self, values: list[np.ndarray], input_hw: tuple[int, int], score_threshold: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = []
        for level, stride in enumerate(STRIDES):
            classes, objectness, boxes, points = values[level::3]
            cells = cells_of_stride(input_hw, stride)
            _require_rows(
                (classes, objectness, boxes, points), (1, 1, 4, 2 * LANDMARKS), len(cells)
            )
            both = check_range(classes) * check_range(objectness)
            scores = np.sqrt(both[:, 0])
            keep = np.flatnonzero(passing(scores, score_threshold))
            anchors = cells[keep].astype(np.float32)
            center = (anchors + boxes[keep, :2]) * stride
            half = np.exp(boxes[keep, 2:]) * stride / 2
            landmarks = (np.tile(anchors, LANDMARKS) + points[keep]) * stride
            found.append((np.hstack([center - half, center + half]), landmarks, scores[keep]))
        corners, landmarks, kept = (np.concatenate(parts) for parts in zip(*found))
        return corners, landmarks, kept


@dataclass(frozen=True)
class RetinafaceHead(FaceHead):
    """
    A decoder of boxes (N, 4), scores (N, 2) of background and face, and landmarks (N, 10).

    They are relative to two square priors per cell, at its center: centers and landmarks by 0.1 of
    the prior's side, sizes by the exponential of 0.2 of the value. Source: Pytorch_Retinaface
    (Deng et al., arXiv:1905.00641), whose variances are 0.1 and 0.2.
    """

    def _faces(
        self, values: list[np.ndarray], input_hw: tuple[int, int], score_threshold: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        boxes, scores, points = values
        priors = []
        for stride, sides in zip(STRIDES, RETINAFACE_PRIORS):
            centers = np.repeat((cells_of_stride(input_hw, stride) + 0.5) * stride, 2, axis=0)
            side = np.tile(np.array(sides), len(centers) // 2)
            priors.append(np.hstack([centers, side[:, None]]))
        prior = np.concatenate(priors).astype(np.float32)
        _require_rows(values, (4, 2, 2 * LANDMARKS), len(prior))
        keep = np.flatnonzero(passing(scores, score_threshold)[:, 1])
        prior = prior[keep]
        step = 0.1 * prior[:, 2:]
        center = prior[:, :2] + boxes[keep, :2] * step
        half = prior[:, 2:] * np.exp(0.2 * boxes[keep, 2:]) / 2
        landmarks = np.tile(prior[:, :2], LANDMARKS) + points[keep] * step
        return np.hstack([center - half, center + half]), landmarks, scores[keep, 1]


def _require_rows(values: Sequence[np.ndarray], sizes: tuple[int, ...], count: int) -> None:
    shapes = [array.shape for array in values]
    if shapes != [(count, size) for size in sizes]:
        raise _mismatch(', '.join(map(str, shapes)))


def _levels(
    network: NetworkDescription, names: tuple[str, ...], sizes: tuple[int, ...], per_cell: int
) -> tuple[str, ...] | None:
    """
    Find outputs of each kind at each stride.

    :param names: beginnings of the names per kind, '' for any.
    :param sizes: length of the last axis per kind.
    """
    counts = [per_cell * len(cells_of_stride(network.input_hw, stride)) for stride in STRIDES]
    found = []
    for name, size in zip(names, sizes):
        specs = [
            spec
            for spec in network.outputs
            if spec.name.startswith(name) and spec.shape[-1] == size and is_float(spec)
        ]
        specs.sort(key=lambda spec: -spec.shape[-2])  # The finest grid first; dynamic: unchanged.
        if len(specs) != len(STRIDES) or any(
            spec.shape[-2] not in (-1, count) for spec, count in zip(specs, counts)
        ):
            return None
        found += [spec.name for spec in specs]
    return tuple(found)


def _axes(network: NetworkDescription, count: int) -> int:
    """Return the number of axes of all outputs, 2 or 3, where there are `count`; 0: otherwise."""
    if len(network.outputs) != count or 'task' in network.metadata:
        return 0
    if network.class_count not in (None, 0, 1):
        return 0
    axes = {len(spec.shape) for spec in network.outputs}
    is_single = all(spec.shape[0] in (1, -1) for spec in network.outputs if len(spec.shape) > 2)
    return 2 if axes == {2} else 3 if axes == {3} and is_single else 0


def find_scrfd(network: NetworkDescription) -> ScrfdHead | None:
    """Find scores, boxes and landmarks at three strides; None: these are not the outputs."""
    axes = _axes(network, 9)
    names = _levels(network, ('', '', ''), (1, 4, 2 * LANDMARKS), 2) if axes else None
    return ScrfdHead(names, axes == 3) if names else None


def find_yunet(network: NetworkDescription) -> YunetHead | None:
    """Find the outputs by their names and shapes; None: these are not the outputs."""
    names = (
        _levels(network, ('cls', 'obj', 'bbox', 'kps'), (1, 1, 4, 2 * LANDMARKS), 1)
        if _axes(network, 12) == 3
        else None
    )
    return YunetHead(names) if names else None


def find_retinaface(network: NetworkDescription) -> RetinafaceHead | None:
    """Find boxes, scores and landmarks of all priors; None: these are not the outputs."""
    if _axes(network, 3) != 3:
        return None
    count = 2 * sum(len(cells_of_stride(network.input_hw, stride)) for stride in STRIDES)
    by_size: dict[int, TensorSpec] = {spec.shape[2]: spec for spec in network.outputs}
    if by_size.keys() != {4, 2, 2 * LANDMARKS} or not all(
        spec.shape[1] in (-1, count) and is_float(spec) for spec in by_size.values()
    ):
        return None
    return RetinafaceHead(tuple(by_size[size].name for size in (4, 2, 2 * LANDMARKS)))


def _open_scrfd(network: NetworkDescription) -> FaceHead:
    return _required(find_scrfd(network), network)


def _open_yunet(network: NetworkDescription) -> FaceHead:
    return _required(find_yunet(network), network)


def _open_retinaface(network: NetworkDescription) -> FaceHead:
    return _required(find_retinaface(network), network)


def _required(head: FaceHead | None, network: NetworkDescription) -> FaceHead:
    if head is None:
        raise _mismatch(str(network))
    return head


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        'Not a network of faces with landmarks: expected scores, boxes and five landmarks at '
        f'strides 8, 16 and 32, got {seen}.',
        remedy='Export the network with landmarks for a fixed input size, or choose another '
        'decoder.',
    )


_FACE_PREPROCESS: Mapping[str, object] = {'resize': 'letterbox_topleft', 'pad_value': 0}


def _layout(
    per_cell: int,
    coding: Coding,
    *roles: tuple[str, str],
    batch: str = 'B ',
    **fields: Any,
) -> BoxLayout:
    """Return the layout of one output per stride for each role and name."""
    sizes = {'box': 4, 'extras': 2 * LANDMARKS}
    outs = tuple(
        Out(f'{batch}N V', f'{role}:{sizes.get(role, 1)}', (name,) if name else (), per_level=True)
        for role, name in roles
    )
    rows = Rows((STRIDES,), (per_cell,), covers=True)
    return BoxLayout(outs, rows, coding, extras='keypoints', **fields)


SCRFD = Family(
    'scrfd',
    'pose',
    {
        **_FACE_PREPROCESS,
        'channel_order': 'rgb',
        'scale': 1.0,
        'mean': (127.5,) * 3,
        'std': (128.0,) * 3,
    },
    _open_scrfd,
    layouts=tuple(
        _layout(
            2,
            Coding('sides', has_points=True),
            ('scores', ''),
            ('box', ''),
            ('extras', ''),
            batch=batch,
        )
        for batch in ('B ', '')
    ),
    exporter='none',
)
YUNET = Family(
    'yunet',
    'pose',
    {**_FACE_PREPROCESS, 'channel_order': 'bgr', 'scale': 1.0},
    _open_yunet,
    layouts=(
        _layout(
            1,
            Coding('offsets', has_points=True),
            ('scores', 'cls.*'),
            ('objectness', 'obj.*'),
            ('box', 'bbox.*'),
            ('extras', 'kps.*'),
            has_root=True,
        ),
    ),
    exporter='none',
)
RETINAFACE = Family(
    'retinaface',
    'pose',
    {
        **_FACE_PREPROCESS,
        'channel_order': 'bgr',
        'scale': 1.0,
        'mean': (104.0, 117.0, 123.0),
        'std': (1.0,) * 3,
    },
    _open_retinaface,
    layouts=(
        BoxLayout(
            (
                Out('B N V', 'box:4'),
                Out('B N V', 'background:1 scores:1'),
                Out('B N V', f'extras:{2 * LANDMARKS}'),
            ),
            Rows(
                (STRIDES,),
                (2,),
                covers=True,
                priors=tuple(tuple((side, side) for side in sides) for sides in RETINAFACE_PRIORS),
            ),
            Coding('offsets', place=0.5, unit='prior', gain=0.1, size_gain=0.2, has_points=True),
            extras='keypoints',
        ),
    ),
    exporter='none',
)
