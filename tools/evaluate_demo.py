"""
Average precision of the demo models on held-out pictures.

    python tools/evaluate_demo.py --pictures 500
    python tools/evaluate_demo.py --scene robot
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Iterable

from demo import scene
import numpy as np

from trt_ros.demo import MODEL
from trt_ros.results.boxes import Detections
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.average_precision import average_precisions
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

Picture = tuple[np.ndarray, np.ndarray, np.ndarray]


def evaluate(
    pipeline: Pipeline[Detections], pictures: Iterable[Picture], class_count: int
) -> np.ndarray:
    """Compute the AP50 per class over pictures with boxes and labels, (C,) float64."""
    thresholds = Thresholds(score=0.01, iou=0.6, max_detections=100)
    return average_precisions(
        (
            (pipeline.infer(Frame.from_pixels(image), thresholds), xyxy, labels)
            for image, xyxy, labels in pictures
        ),
        class_count=class_count,
    )


def main() -> None:
    """Print the AP50 per class and their mean."""
    parser = ArgumentParser(
        description='Compute the average precision of a demo model.',
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument('--scene', choices=('shapes', 'robot'), default='shapes')
    parser.add_argument('--model', help='ONNX model, by default that of the demo')
    parser.add_argument('--pictures', type=int, default=500, help='number of held-out pictures')
    args = parser.parse_args()
    classes: tuple[str, ...] = scene.CLASSES
    drawn, model = scene.held_out, MODEL
    if args.scene == 'robot':
        from demo.robot import pictures, world  # Needs MuJoCo.

        classes, drawn, model = world.CLASSES, pictures.held_out_pictures, pictures.MODEL
    pipeline: Pipeline[Detections] = Pipeline.open(
        LabeledOptions(model_path=args.model or str(model))
    )
    scores = evaluate(pipeline, drawn(args.pictures), len(classes))
    pipeline.close()
    for name, score in zip(classes, scores):
        print(f'{name:10} AP50 {score:.4f}')
    print(f'{"mean":10} AP50 {np.nanmean(scores):.4f} over {args.pictures} held-out pictures')


if __name__ == '__main__':
    main()
