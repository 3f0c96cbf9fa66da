"""Average precision of detections."""

from collections.abc import Iterable

import numpy as np

from trt_ros.results.boxes import Detections
from trt_ros.vision.nms import iou, partners


def matches(found: Detections, xyxy: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return which detections, best first, are true positives, (N,) bool; boxes match once."""
    likeness = iou(found.xyxy[:, None], xyxy) * (found.labels[:, None] == labels)
    return partners(likeness) >= 0


def average_precision(scores: np.ndarray, is_true_positive: np.ndarray, truth_count: int) -> float:
    """
    Compute the area under the precision-recall curve of one class.

    All-point interpolation: the precision at a recall is the highest at that recall or beyond
    (Everingham et al., PASCAL VOC development kit 2010, section 3.4.1).

    :param scores: (N,) over all pictures.
    :param is_true_positive: (N,) bool.
    :param truth_count: number of true boxes.
    :returns: 0 to 1; NaN without true boxes.
    """
    if truth_count == 0:
        return float('nan')
    hits = np.cumsum(is_true_positive[np.argsort(-scores, kind='stable')])
    precision = hits / np.arange(1, len(hits) + 1)
    best_beyond = np.maximum.accumulate(precision[::-1])[::-1]
    recall_gained = np.diff(hits, prepend=0) / truth_count
    return float((best_beyond * recall_gained).sum())


def average_precisions(
    pictures: Iterable[tuple[Detections, np.ndarray, np.ndarray]], *, class_count: int
) -> np.ndarray:
    """Compute the average precision per class at an IoU of 0.5; NaN without true boxes."""
    labels, scores, hits = [np.zeros(0, int)], [np.zeros(0)], [np.zeros(0, bool)]
    truth_counts = np.zeros(class_count, int)
    for found, true_xyxy, true_labels in pictures:
        labels.append(found.labels)
        scores.append(found.scores)
        hits.append(matches(found, true_xyxy, true_labels))
        truth_counts += np.bincount(true_labels, minlength=class_count)
    label, score, hit = np.concatenate(labels), np.concatenate(scores), np.concatenate(hits)
    counts = enumerate(truth_counts.tolist())
    each = [average_precision(score[label == i], hit[label == i], count) for i, count in counts]
    return np.array(each)
