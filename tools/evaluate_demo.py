"""
Average precision of the demo model on held-out pictures.

    python tools/evaluate_demo.py --pictures 500
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser

import numpy as np

from trt_ros.demo.scene import CLASSES, MODEL, held_out
from trt_ros.results.boxes import Detections
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.average_precision import average_precisions
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds


def evaluate(pipeline: Pipeline, pictures: int) -> np.ndarray:
    """Compute the AP50 per class over the first `pictures` held-out pictures, (C,) float64."""
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
    """Print the AP50 per class and their mean."""
    parser = ArgumentParser(
        description='Compute the average precision of the demo model.',
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument('--model', default=str(MODEL), help='ONNX model')
    parser.add_argument('--pictures', type=int, default=500, help='number of held-out pictures')
    args = parser.parse_args()
    pipeline: Pipeline[Detections] = Pipeline.open(LabeledOptions(model_path=args.model))
    scores = evaluate(pipeline, args.pictures)
    pipeline.close()
    for name, score in zip(CLASSES, scores):
        print(f'{name:10} AP50 {score:.4f}')
    print(f'{"mean":10} AP50 {np.nanmean(scores):.4f} over {args.pictures} held-out pictures')


if __name__ == '__main__':
    main()
