"""Whether an engine computes what ONNX Runtime computes: per output, and box by box."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trt_ros.cli.build import add_build_arguments, build_options

if TYPE_CHECKING:
    import numpy as np

    from trt_ros.vision.detections import Detections
    from trt_ros.vision.frame import Frame


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument('model', type=Path, help='ONNX file')
    parser.add_argument('images', nargs='*', type=Path, help='pictures (default: random inputs)')
    add_build_arguments(parser)
    add = parser.add_argument_group('comparison').add_argument
    add('--random', type=int, default=3, metavar='N',
        help='random inputs where no picture is given (default: 3)')
    add('--score-threshold', type=float, default=0.25, metavar='X', help='of boxes to compare')
    add('--min-cosine', type=float, default=0.99, metavar='X',
        help='fail below this similarity of any output (default: 0.99)')
    add('--min-matched', type=float, default=0.95, metavar='X',
        help='fail when a smaller share of the boxes has its like (default: 0.95)')
    add('--json', action='store_true', help='print the comparison as JSON')


def run(args: Namespace) -> int:
    from trt_ros.runtime.onnx_cpu import OnnxRuntimeRunner
    from trt_ros.runtime.tensorrt_open import open_network

    reference = OnnxRuntimeRunner.open(str(args.model))
    try:
        ours = open_network(args.model, build_options(args), backend=args.backend,
                            device=args.device, cache_dir=args.cache_dir)
        try:
            outputs = _compare_outputs(args, ours, reference)
        finally:
            ours.close()
        boxes = _compare_boxes(args, reference)
    finally:
        reference.close()
    failed = [name for name, each in outputs.items() if each['cosine'] < args.min_cosine]
    if boxes and boxes['matched'] < args.min_matched:
        failed.append('boxes')
    if args.json:
        print(json.dumps({'outputs': outputs, 'boxes': boxes, 'failed': failed}, indent=1))
    else:
        for name, each in outputs.items():
            print(f'{name}: largest difference {each["max_error"]:.3g}, mean '
                  f'{each["mean_error"]:.3g} (values up to {each["largest"]:.3g}), '
                  f'cosine {each["cosine"]:.6f}')
        if boxes:
            print(f'boxes: {boxes["ours"]} here, {boxes["reference"]} in ONNX Runtime, '
                  f'{boxes["matched"]:.1%} matched, smallest overlap {boxes["min_iou"]:.3f}')
        print(f'differs: {", ".join(failed)}' if failed else 'agrees')
    return 1 if failed else 0


def _frames(paths: list[Path]) -> Iterator[Frame]:
    import cv2

    from trt_ros.errors import ParameterError
    from trt_ros.vision.frame import Frame
    for path in paths:
        image = cv2.imread(str(path))
        if image is None:
            raise ParameterError(
                f'{path} is no picture that can be read.',
                remedy='Give JPEG or PNG files that exist.')
        yield Frame.from_pixels(image)


def _inputs(args: Namespace, network: Any) -> Iterator[dict[str, np.ndarray]]:
    """Give the network's inputs: the pictures as it wants them, or noise."""
    import numpy as np
    if args.images:
        from trt_ros.runtime.options import PipelineOptions
        from trt_ros.runtime.pipeline import Pipeline

        # Only decides how a picture goes in; the runner is not its own to close.
        preprocess = Pipeline.open(
            PipelineOptions(model_path=str(args.model)), runner=network).preprocess
        for frame in _frames(args.images):
            yield {network.inputs[0].name: preprocess(frame)[0]}
        return
    rng = np.random.default_rng(0)
    for _ in range(args.random):
        tensors = {}
        for spec in network.inputs:
            shape = tuple(size if size > 0 else 1 for size in spec.shape)
            if len(shape) == 4 and min(spec.shape[2:]) < 0:
                height, width = build_options(args).input_size or (640, 640)
                shape = (shape[0], 3, height, width)
            noise = rng.random(shape, np.float32)
            is_float = np.dtype(spec.dtype).kind == 'f'
            tensors[spec.name] = noise.astype(spec.dtype) if is_float else (
                noise * 255).astype(spec.dtype)
        yield tensors


def _compare_outputs(args: Namespace, ours: Any, reference: Any) -> dict[str, dict[str, float]]:
    import numpy as np
    found: dict[str, dict[str, float]] = {}
    for tensors in _inputs(args, reference):
        want = {name: np.array(value) for name, value in reference.infer(tensors).items()}
        got = ours.infer({spec.name: tensors[spec.name] for spec in ours.inputs})
        for name, expected in want.items():
            a, b = got[name].astype(np.float64).ravel(), expected.astype(np.float64).ravel()
            error = np.abs(a - b)
            size = float(np.linalg.norm(a) * np.linalg.norm(b))
            each = {'max_error': float(error.max(initial=0.0)), 'mean_error': float(error.mean()),
                    'largest': float(np.abs(b).max(initial=0.0)),
                    # Two outputs of zeros are alike.
                    'cosine': float(a @ b) / size if size else float(not error.any())}
            before = found.setdefault(name, each)
            found[name] = {key: (min if key == 'cosine' else max)(before[key], each[key])
                           for key in each}
    return found


def _compare_boxes(args: Namespace, reference: Any) -> dict[str, float]:
    """Compare what the whole pipeline finds with the CPU's; {} where no decoder fits."""
    import numpy as np

    from trt_ros.errors import TensorMismatchError
    from trt_ros.runtime.options import PipelineOptions
    from trt_ros.runtime.pipeline import Pipeline
    from trt_ros.runtime.tensorrt_open import open_frames
    from trt_ros.vision.frame import Frame
    from trt_ros.vision.nms import iou

    try:
        on_cpu: Pipeline[Detections] = Pipeline.open(
            PipelineOptions(model_path=str(args.model)), runner=reference)
    except TensorMismatchError:
        return {}
    rng = np.random.default_rng(0)
    frames = list(_frames(args.images)) or [
        Frame.from_pixels(rng.integers(0, 256, (480, 640, 3), dtype=np.uint8))
        for _ in range(args.random)]
    asked: dict[str, Any] = {'score_threshold': args.score_threshold, 'iou_threshold': 0.45,
                             'max_detections': 300}
    counts, matched, smallest = [0, 0], 0, 1.0
    pipeline = open_frames(args.model, build_options(args), backend=args.backend,
                           cache_dir=args.cache_dir)
    try:
        for frame in frames:
            want: Detections = on_cpu.infer(frame, **asked)
            got: Detections = pipeline.infer(frame, **asked)
            counts = [counts[0] + len(got), counts[1] + len(want)]
            for box, label in zip(want.xyxy, want.labels):
                alike = iou(box, got.xyxy[got.labels == label])
                best = float(alike.max(initial=0.0))
                if best >= 0.5:
                    matched += 1
                    smallest = min(smallest, best)
    finally:
        pipeline.close()
    # Boxes that only one side has count against it, whichever it is.
    share = matched / max(counts) if max(counts) else 1.0
    return {'ours': counts[0], 'reference': counts[1], 'matched': share, 'min_iou': smallest}
