"""MaskFormer, Mask2Former, OneFormer and EoMT: one class and one mask per query."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trt_ros.families.family import IMAGENET_PREPROCESS, Family, NetworkDescription
from trt_ros.families.head import Head, ResultT_co
from trt_ros.families.layout import Layout, Out
from trt_ros.results.boxes import Detections
from trt_ros.results.masks import ClassMask, Instances, mask_dtype
from trt_ros.tensors import Arrays
from trt_ros.vision.class_masks import best_class, mask_confidence
from trt_ros.vision.grid import Taps, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.masks import Box, bounds, cells_of, threshold_masks, windows_of
from trt_ros.vision.scores import as_float32, check_range, passing, sigmoid, softmax
from trt_ros.vision.thresholds import Thresholds

MIN_WON_SHARE = 0.8  # Pixels that a query wins, of those of its mask; as published.
BLOCK_CELLS = 1024  # Of all queries; a block stays in the cache.
LIKELY_SUM = (
    0.1  # Of the probabilities of a class over the queries; fewer classes are rarely best.
)
MAX_LEFT_OUT = 1 / 255  # Of a score: one step of the confidence.


class QueryHead(Head[ResultT_co]):
    """A decoder of Q queries: (1, Q, C + 1) logits, and (1, Q, h, w) masks, the last output."""

    counts_background = True

    def queries(self, outputs: Arrays, input_hw: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return probabilities (Q, C), 0 without softmax, and mask logits (Q, h, w); or raise."""
        logits, *_, masks = self.arrays(outputs, input_hw)
        return np.nan_to_num(softmax(as_float32(logits))[:, :-1], nan=0.0), masks


@dataclass(frozen=True)
class MaskFormerHead(QueryHead[ClassMask]):
    """
    A decoder of the queries into the class of each pixel.

    The score of a class at a cell is the sum over the queries of the probability of the class
    times the sigmoid of the mask. Scores are resized to the image (bilinear), and the best class
    of a pixel is taken. Queries that together add at most 1/255 to each score are left out.
    Source: Cheng et al., MaskFormer, arXiv:2107.06278, semantic inference. Mask2Former and EoMT
    resize the masks before the sum, which moves some edges by a pixel.

    :param confidence: whether to compute the confidence of each pixel: the score, at most 1.
    """

    confidence: bool = False

    def with_confidence(self) -> MaskFormerHead:
        return replace(self, confidence=True)

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> ClassMask:
        probabilities, masks = self.queries(outputs, letterbox.input_hw)
        rows, cols = taps(letterbox, (masks.shape[1], masks.shape[2]))
        with np.errstate(invalid='ignore', over='ignore'):
            scores, classes = _class_scores(probabilities, masks, rows, cols)
            best = best_class(scores, rows, cols)
        labels = _named(best, classes, probabilities.shape[1])
        if not self.confidence:
            return ClassMask(labels)
        # Above 1, where several queries are sure of one class.
        sure = mask_confidence(scores, best, rows, cols, are_probabilities=True)
        return ClassMask(labels, sure)


def _class_scores(
    probabilities: np.ndarray, masks: np.ndarray, rows: Taps, cols: Taps
) -> tuple[np.ndarray, np.ndarray]:
    """
    Sum probability times sigmoid(mask) over the queries, for the classes that can be best.

    The score of a class is at most the sum of its probabilities. Between four cells, one class has
    at least a quarter of the lowest best score of the four. So a class whose sum is below a
    quarter of the lowest best score of all cells in the image is best nowhere.

    :returns: (K, h, w) float32, and (K,) the classes, ascending.
    """
    queries = _significant(probabilities)
    weights = np.ascontiguousarray(probabilities[queries].T)
    sums = weights.sum(axis=1)
    likely = sums >= LIKELY_SUM
    if not likely.all() and likely.any():
        scores = _sums(weights[likely], masks, queries)
        seen = scores[:, rows.first[0] : rows.second[-1] + 1, cols.first[0] : cols.second[-1] + 1]
        if seen.max(axis=0).min() >= 4 * sums[~likely].max():
            return scores, np.flatnonzero(likely)
    return _sums(weights, masks, queries), np.arange(len(weights))


def _named(best: np.ndarray, classes: np.ndarray, class_count: int) -> np.ndarray:
    """Return the classes of a mask of indices into some of them."""
    if len(classes) == class_count:
        return best
    names: np.ndarray = np.zeros(max(256, len(classes)), mask_dtype(class_count))
    names[: len(classes)] = classes
    if best.itemsize > 1:
        return names.take(best)
    import cv2  # Imported here: networks are opened without it.

    return np.asarray(cv2.LUT(best, names))


def _significant(probabilities: np.ndarray) -> np.ndarray:
    """Return the queries but those that together add at most MAX_LEFT_OUT to each class."""
    order = np.argsort(probabilities.max(axis=1), kind='stable')
    added = np.cumsum(probabilities[order], axis=0).max(axis=1)
    return np.sort(order[np.searchsorted(added, MAX_LEFT_OUT, side='right') :])


def _sums(weights: np.ndarray, masks: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Sum weights (K, Q) times sigmoid(mask), (1 + tanh(x / 2)) / 2, over some queries."""
    cells = masks.reshape(len(masks), -1)
    half_weights = weights * np.float32(0.5)
    constant = half_weights.sum(axis=1, keepdims=True)
    scores = np.empty((len(weights), cells.shape[1]), np.float32)
    for start in range(0, cells.shape[1], BLOCK_CELLS):
        block = slice(start, start + BLOCK_CELLS)
        part = as_float32(cells[queries, block])
        part *= np.float32(0.5)
        np.tanh(part, out=part)
        np.add(np.matmul(half_weights, part), constant, out=scores[:, block])
    return scores.reshape(-1, *masks.shape[1:])


@dataclass(frozen=True)
class PanopticHead(QueryHead[Instances]):
    """
    A decoder of the queries into objects and regions that share no pixel.

    A query has its best class, unless that is "no object". A pixel belongs to the query with the
    highest score times sigmoid(mask), if that mask is above 0.5 there; a query that wins fewer
    pixels than 0.8 of its mask is dropped. Source: MaskFormer, arXiv:2107.06278, panoptic
    inference. Regions of one class, such as two pieces of road, stay separate.
    """

    finds_instances = True

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Instances:
        """Decode the queries into segments; those of unwanted classes keep their pixels."""
        probabilities, masks = self.queries(outputs, letterbox.input_hw)
        scores, labels = probabilities.max(axis=1), probabilities.argmax(axis=1)
        is_object = scores >= 1 - probabilities.sum(axis=1)
        found = np.flatnonzero(is_object & passing(scores, thresholds.score))
        best = found[np.argsort(-scores[found], kind='stable')]
        if not thresholds.chooses_classes:
            best = best[: thresholds.max_detections]
        with np.errstate(invalid='ignore', over='ignore'):
            planes = np.nan_to_num(as_float32(masks[best]), nan=-np.inf)
            segments = _segments(planes, scores[best], letterbox)
        kept = best[[index for index, _, _ in segments]] if segments else best[:0]
        boxes = np.array([box for _, box, _ in segments], np.float32).reshape(-1, 4)
        result = Instances(
            Detections(boxes, check_range(scores[kept]), labels[kept].astype(np.int32)),
            tuple(mask for _, _, mask in segments),
            boxes[:, :2].astype(np.int32),
            letterbox.image_wh,
        )
        return result.wanted(thresholds)


def _segments(
    planes: np.ndarray, scores: np.ndarray, letterbox: Letterbox
) -> list[tuple[int, Box, np.ndarray]]:
    """Divide the pixels among queries, (K, h, w), best first: index, whole box and mask."""
    if not len(planes):
        return []
    rows, cols = taps(letterbox, (planes.shape[1], planes.shape[2]))
    owners = best_class(sigmoid(planes) * scores[:, None, None], rows, cols)
    won, high = _counts(owners, len(planes)), planes > 0
    can_win = won > MIN_WON_SHARE * _sure_counts(high, rows, cols)
    winners = np.flatnonzero(can_win).tolist()
    boxes = windows_of(np.array([bounds(high[index]) for index in winners]), rows, cols).tolist()
    windows: dict[int, Box] = {
        index: (x1, y1, x2, y2) for index, (x1, y1, x2, y2) in zip(winners, boxes) if x2
    }
    masks = threshold_masks(
        [planes[index][cells_of(rows, cols, box)] for index, box in windows.items()],
        0.0,
        rows,
        cols,
        list(windows.values()),
        sigmoid,
    )
    found = []
    for (index, (x1, y1, x2, y2)), mask in zip(windows.items(), masks):
        own = owners[y1:y2, x1:x2] == index
        own &= mask
        left, top, right, bottom = bounds(own)
        if left < right and won[index] > MIN_WON_SHARE * np.count_nonzero(mask):
            box = (x1 + left, y1 + top, x1 + right, y1 + bottom)
            found.append((index, box, own[top:bottom, left:right]))
    return found


def _counts(owners: np.ndarray, count: int) -> np.ndarray:
    if owners.itemsize > 1:
        return np.bincount(owners.reshape(-1), minlength=count)[:count]
    import cv2  # Several times as fast as NumPy.

    return cv2.calcHist([owners], [0], None, [256], [0, 256]).reshape(-1)[:count]


def _sure_counts(high: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    """Count, (K,), the pixels between cells (K, h, w) that are all above the threshold."""
    sure = high.copy()
    sure[:, :-1] &= high[:, 1:]
    sure[:, :, :-1] &= sure[:, :, 1:].copy()
    heights, widths = (
        np.bincount(axis.first, minlength=size).astype(np.float32)
        for axis, size in zip((rows, cols), high.shape[1:])
    )
    return np.asarray(sure @ widths @ heights)


def _is_no_feature(network: NetworkDescription) -> bool:
    """Return whether outputs are no features, and no boxes of MMDeploy."""
    names = [spec.name for spec in network.outputs]
    return 'dets' not in names and not any('hidden' in name for name in names)


_LOGITS, _MASKS = Out('B Q V', 'scores:C none:1'), Out('B Q h w', 'masks:1')
_NAMED = Layout(
    (replace(_LOGITS, names=('class_queries.*',)), replace(_MASKS, names=('masks_queries.*',))),
    ignores_names=True,  # The error about the number of names is clearer.
)
_PLAIN = Layout((_LOGITS, _MASKS), evidence=(_is_no_feature,))
_DETR = Layout(
    (
        replace(_LOGITS, names=('logits',)),
        Out('B Q 4', 'box:4', ('pred_boxes',)),
        replace(_MASKS, names=('pred_masks',)),
    )
)
MASKFORMER = Family(
    'maskformer',
    'segment',
    IMAGENET_PREPROCESS,
    layouts=(_NAMED, _PLAIN, replace(_DETR, by_name=True)),
    head=MaskFormerHead,
    networks='MaskFormer, Mask2Former, OneFormer, EoMT: one class per pixel',
)
MASKFORMER_PANOPTIC = Family(
    'maskformer_panoptic',
    'segment',
    IMAGENET_PREPROCESS,
    layouts=(_DETR, replace(_NAMED, by_name=True), replace(_PLAIN, by_name=True)),
    head=PanopticHead,
    networks='MaskFormer and others: objects and regions, one mask each',
)
