"""
Measures the demo's detector on drawn pictures that training never saw.

    python -m trt_ros.demo.evaluate --pictures 500
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from trt_ros.demo.scene import CLASSES, held_out
from trt_ros.runtime.options import LabelledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.detections import Detections
from trt_ros.vision.frame import Frame
from trt_ros.vision.nms import iou
from trt_ros.vision.thresholds import Thresholds

MODEL = Path(__file__).with_name('shapes.onnx')


def matches(
    found: Detections, xyxy: np.ndarray, labels: np.ndarray, *, min_iou: float = 0.5
) -> np.ndarray:
    """
    Tell which detections are right: each true box serves the best-scored one that finds it.

    :param xyxy: (M, 4) float32, the true boxes; `labels`: (M,) int32.
    :returns: (N,) bool, one a detection, in their order.
    """
    right = np.zeros(len(found), bool)
    free = np.ones(len(labels), bool)
    for at, (box, label) in enumerate(zip(found.xyxy, found.labels)):
        overlap = iou(box, xyxy) * (free & (labels == label))
        if overlap.size and overlap.max() >= min_iou:
            right[at] = True
            free[overlap.argmax()] = False
    return right


def average_precision(scores: np.ndarray, right: np.ndarray, truth_count: int) -> float:
    """
    Give the area under the precision-recall curve of one class.

    All-point interpolation: the precision at a recall is the best one at that recall or beyond
    (Everingham et al., PASCAL VOC development kit 2010, section 3.4.1).

    :param scores: (N,) over all pictures; `right`: (N,) bool.
    :param truth_count: how many there were to find.
    :returns: 0 to 1; NaN when there was nothing to find.
    """
    if truth_count == 0:
        return float('nan')
    hits = np.cumsum(right[np.argsort(-scores, kind='stable')])
    precision = hits / np.arange(1, len(hits) + 1)
    best_beyond = np.maximum.accumulate(precision[::-1])[::-1]
    recall_gained = np.diff(hits, prepend=0) / truth_count
    return float((best_beyond * recall_gained).sum())


def average_precisions(
    pictures: Iterable[tuple[Detections, np.ndarray, np.ndarray]],
    *,
    class_count: int,
    min_iou: float = 0.5,
) -> np.ndarray:
    """
    Give the average precision of each class at one IoU; their mean is mAP50 when that is 0.5.

    :param pictures: for each what was found, the true boxes (M, 4) and the true labels (M,).
    :returns: (class_count,) float64, NaN for a class that was never there.
    """
    labels, scores, right = [np.zeros(0, int)], [np.zeros(0)], [np.zeros(0, bool)]
    truth_counts = np.zeros(class_count, int)
    for found, true_xyxy, true_labels in pictures:
        labels.append(found.labels)
        scores.append(found.scores)
        right.append(matches(found, true_xyxy, true_labels, min_iou=min_iou))
        truth_counts += np.bincount(true_labels, minlength=class_count)
    label, score, hit = np.concatenate(labels), np.concatenate(scores), np.concatenate(right)
    return np.array(
        [
            average_precision(score[label == index], hit[label == index], int(truth_count))
            for index, truth_count in enumerate(truth_counts)
        ]
    )


def evaluate(pipeline: Pipeline, pictures: int) -> np.ndarray:
    """Give the AP50 of each class over the first held-out pictures, (C,) float64."""
    return average_precisions(
        (
            (
                pipeline.infer(
                    Frame.from_pixels(image), Thresholds(score=0.01, iou=0.6, max_detections=100)
                ),
                xyxy,
                labels,
            )
            for image, xyxy, labels in held_out(pictures)
        ),
        class_count=len(CLASSES),
    )


def main() -> None:
    parser = ArgumentParser(
        description='Measure the demo model.', formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument('--model', default=str(MODEL), help='ONNX file')
    parser.add_argument('--pictures', type=int, default=500, help='how many held-out pictures')
    args = parser.parse_args()
    pipeline: Pipeline[Detections] = Pipeline.open(LabelledOptions(model_path=args.model))
    scores = evaluate(pipeline, args.pictures)
    pipeline.close()
    for name, score in zip(CLASSES, scores):
        print(f'{name:10} AP50 {score:.4f}')
    print(f'{"mean":10} AP50 {np.nanmean(scores):.4f} over {args.pictures} held-out pictures')


if __name__ == '__main__':
    main()
