"""Consistency of results between pictures and their mirrored and cropped views."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from trt_ros.results.arrays import Depth, Tensors
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.results.classes import Classification
from trt_ros.results.masks import ClassMask, ClassMasks
from trt_ros.results.poses import Poses
from trt_ros.vision.nms import iou, partners

GRID = 96  # Points per side at which masks and depths are compared.
MIN_VISIBLE = 0.5  # Part of a box that a view has to show.
KEYPOINT_SIGMA = 0.1  # Distance of keypoints in sides of their box.


class PictureView(NamedTuple):
    """
    A part of a picture, maybe mirrored; coordinates are relative to the picture, 0 to 1.

    >>> PictureView(0.0, 0.0, 1.0, 1.0, is_mirrored=True).points(np.array([[0.25, 0.5]]))
    array([[0.75, 0.5 ]])
    """

    left: float
    top: float
    right: float
    bottom: float
    is_mirrored: bool = False

    def pixels(self, pixels: np.ndarray) -> np.ndarray:
        """Cut the view out of a picture."""
        height, width = pixels.shape[:2]
        rows = slice(round(self.top * height), max(round(self.bottom * height), 1))
        columns = slice(round(self.left * width), max(round(self.right * width), 1))
        cut = pixels[rows, columns]
        return np.ascontiguousarray(cut[:, ::-1] if self.is_mirrored else cut)

    def points(self, xy: np.ndarray) -> np.ndarray:
        """Convert (..., 2) points of the picture to points of the view."""
        origin = np.array((self.left, self.top))
        found = (xy - origin) / (np.array((self.right, self.bottom)) - origin)
        return np.stack([1 - found[..., 0], found[..., 1]], -1) if self.is_mirrored else found

    def boxes(self, xyxy: np.ndarray) -> np.ndarray:
        """Convert (N, 4) boxes of the picture to boxes of the view, not clipped to it."""
        corners = self.points(xyxy.reshape(-1, 2, 2))
        return np.hstack([corners.min(axis=1), corners.max(axis=1)])

    def grid(self) -> np.ndarray:
        """Return points of the picture that the view shows, (GRID, GRID, 2), row by row of it."""
        along = (np.arange(GRID) + 0.5) / GRID
        x, y = np.meshgrid(along[::-1] if self.is_mirrored else along, along)
        x = self.left + x * (self.right - self.left)
        return np.stack([x, self.top + y * (self.bottom - self.top)], -1)


WHOLE = PictureView(0.0, 0.0, 1.0, 1.0)
#: The crop has another aspect ratio than the picture, which a wrong `resize` shows.
VIEWS = (WHOLE._replace(is_mirrored=True), PictureView(0.09, 0.13, 0.93, 0.83))


class Seen(NamedTuple):
    """
    A result and the size of its picture.

    :param min_score: minimum score of objects that have to be in another result, too; weaker ones
        may.
    """

    result: Result
    wh: tuple[int, int]
    min_score: float = 0.0


class Support(NamedTuple):
    """
    Agreement of a second result with a first one.

    :param confirmed: of objects, sum of the scores in both; else 0 to 1, or the bits per pixel.
    :param contradicted: sum of the scores of objects in only one of both, halved; else 0.
    """

    confirmed: float
    contradicted: float = 0.0

    @property
    def net(self) -> float:
        """Confirmed part less the contradicted one."""
        return self.confirmed - self.contradicted


def support(first: Seen, second: Seen, view: PictureView) -> Support:
    """Compare a result with that of a view of its picture; raises TypeError without comparison."""
    return _support(first.result, second.result, first, second, view)


def chance(first: Seen, others: Sequence[Seen]) -> float:
    """
    Return how much other pictures seem to confirm a result.

    It is subtracted from what views of its picture confirm: a result that is equal for all
    pictures is worth nothing.
    """
    found = [support(first, other, WHOLE).confirmed for other in others]
    return float(np.mean(found)) if found else 0.0


@singledispatch
def condensed(result: Result) -> Result:
    """Return a result with as many pixels as comparisons need."""
    return result


@condensed.register
def _(result: ClassMask) -> ClassMask:
    confidence = result.confidence
    return ClassMask(_thinned(result.labels), None if confidence is None else _thinned(confidence))


@condensed.register
def _(result: Depth) -> Depth:
    return Depth(_thinned(result.values))


def _thinned(image: np.ndarray) -> np.ndarray:
    """Return every n-th pixel of an image, at least twice the points of the grid."""
    step = max(min(image.shape) // (2 * GRID), 1)
    return image[::step, ::step].copy()


@singledispatch
def confidences(result: Result) -> np.ndarray:
    """Return the scores of a result, 0 to 1, one per object or class; () where it has none."""
    return np.zeros(0)


@confidences.register
def _(result: Objects) -> np.ndarray:
    return result.scores


@confidences.register
def _(result: Classification) -> np.ndarray:
    return np.array([result.scores.max(initial=0.0)])


@confidences.register
def _(result: ClassMask) -> np.ndarray:
    return (
        np.zeros(0) if result.confidence is None else result.confidence.mean(keepdims=True) / 255
    )


@singledispatch
def _support(result: Result, other: Any, first: Seen, second: Seen, view: PictureView) -> Support:
    raise TypeError(f'results of {type(result).__name__} have no comparison')


@_support.register
def _(result: Objects, other: Any, first: Seen, second: Seen, view: PictureView) -> Support:
    whole = view.boxes(result.xyxy / np.array(first.wh * 2))
    mine, theirs = np.clip(whole, 0, 1), other.xyxy / np.array(second.wh * 2)
    is_sure = _areas(mine) >= MIN_VISIBLE * np.maximum(_areas(whole), 1e-9)
    is_sure &= result.scores >= first.min_score
    alike = iou(mine[:, None], theirs) * (result.labels[:, None] == other.labels)
    if isinstance(result, Poses):
        alike *= _keypoint_similarity(result, first, other, second, view)
    columns = partners(alike)
    is_found = columns >= 0
    rows = np.flatnonzero(is_found & is_sure)
    scores = np.minimum(result.scores[rows], other.scores[columns[rows]])
    confirmed = (alike[rows, columns[rows]] * scores).sum()
    alone = np.delete(other.scores, columns[is_found])
    contradicted = (
        result.scores[~is_found & is_sure].sum() + alone[alone >= second.min_score].sum()
    )
    return Support(float(confirmed), float(contradicted) / 2)


def _areas(xyxy: np.ndarray) -> np.ndarray:
    return np.asarray((xyxy[:, 2:] - xyxy[:, :2]).clip(0).prod(axis=1))


def _keypoint_similarity(
    mine: Poses, first: Seen, theirs: Any, second: Seen, view: PictureView
) -> np.ndarray:
    """Return the closeness of each keypoint to the nearest of any name, (N, M), 0 to 1."""
    points = view.points(mine.keypoints[..., :2] / np.array(first.wh))
    others = theirs.keypoints[..., :2] / np.array(second.wh)
    found = np.zeros((len(mine), len(theirs)))
    for row, (own, box) in enumerate(zip(points, view.boxes(mine.xyxy / np.array(first.wh * 2)))):
        side = np.maximum(box[2:] - box[:2], 1e-6)
        apart = ((own[None, :, None] - others[:, None]) / side) ** 2
        nearest = apart.sum(-1).min(axis=-1, initial=np.inf)
        found[row] = np.exp(-nearest / (2 * KEYPOINT_SIGMA**2)).mean(axis=1)
    return found


@_support.register
def _(result: ClassMask, other: Any, first: Seen, second: Seen, view: PictureView) -> Support:
    mine, theirs = _sampled(result.labels, view), _sampled(other.labels, WHOLE)
    sure = 1.0
    if result.confidence is not None and other.confidence is not None:
        sure = float(
            np.mean(_sampled(result.confidence, view) / 255.0 * _sampled(other.confidence, WHOLE))
            / 255.0
        )
    return Support(_mutual_information(mine, theirs) * sure)


@_support.register
def _(result: ClassMasks, other: Any, first: Seen, second: Seen, view: PictureView) -> Support:
    each = [_support(result[name], other[name], first, second, view) for name in result]
    return Support(float(np.mean([found.confirmed for found in each])))


@_support.register
def _(result: Depth, other: Any, first: Seen, second: Seen, view: PictureView) -> Support:
    return Support(_correlation(_sampled(result.values, view), _sampled(other.values, WHOLE)))


@_support.register
def _(result: Classification, other: Any, first: Seen, second: Seen, view: PictureView) -> Support:
    sizes = float(np.linalg.norm(result.scores) * np.linalg.norm(other.scores))
    # Not the product alone, which saturated scores would win.
    return Support(float(result.scores @ other.scores) / sizes if sizes else 0.0)


@_support.register
def _(result: Tensors, other: Any, first: Seen, second: Seen, view: PictureView) -> Support:
    return Support(float(np.mean([_correlation(result[name], other[name]) for name in result])))


def _sampled(image: np.ndarray, view: PictureView) -> np.ndarray:
    height, width = image.shape
    x, y = np.moveaxis((view.grid() * (width, height)).astype(int).reshape(-1, 2), 1, 0)
    return np.asarray(image[y.clip(0, height - 1), x.clip(0, width - 1)])


def _correlation(mine: np.ndarray, theirs: np.ndarray) -> float:
    a, b = (each.astype(np.float64).ravel() for each in (mine, theirs))
    a, b = a - a.mean(), b - b.mean()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return max(float(a @ b) / size, 0.0) if np.isfinite(size) and size > 0 else 0.0


def _mutual_information(mine: np.ndarray, theirs: np.ndarray) -> float:
    """Return the mutual information of two label maps, in bits per point."""
    labels, indices = np.unique(np.concatenate([mine, theirs]), return_inverse=True)
    a, b = np.split(indices, 2)
    joint = np.bincount(a * len(labels) + b, minlength=len(labels) ** 2) / len(a)
    joint = joint.reshape(len(labels), -1)
    alone = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    some = joint > 0
    return float((joint[some] * np.log2(joint[some] / alone[some])).sum())
