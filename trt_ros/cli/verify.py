"""
Comparison of an engine with ONNX Runtime, per output and per box.

With --picture, the network's input is drawn beside its result, for any task and on any machine,
and options that differ from the training of the model family are listed.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
import json
from pathlib import Path
import sys
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trt_ros.cli._arguments import finite, fraction, positive
from trt_ros.cli.build import add_build_arguments, build_options
from trt_ros.cli.detect import add_option_flags
from trt_ros.errors import BackendError, ParameterError
from trt_ros.vision.thresholds import Thresholds

#: Options of preprocessing and decoding.
PICTURE_OPTIONS = (
    'decoder',
    'labels',
    'labels_path',
    'resize',
    'crop_fraction',
    'antialias',
    'pad_value',
    'channel_order',
    'mean',
    'std',
    'scale',
)

if TYPE_CHECKING:
    import numpy as np

    from trt_ros.cli._agreement import Agreement
    from trt_ros.vision.decoders.registry import Decoder
    from trt_ros.vision.detections import Detections
    from trt_ros.vision.frame import Frame
    from trt_ros.vision.letterbox import Preprocess


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument('model', type=Path, help='ONNX file')
    parser.add_argument('images', nargs='*', type=Path, help='pictures (default: random inputs)')
    add_build_arguments(parser)
    add = parser.add_argument_group('comparison').add_argument
    add(
        '--random',
        type=positive,
        default=3,
        metavar='N',
        help='number of random inputs without pictures (default: 3)',
    )
    add(
        '--score-threshold',
        type=fraction,
        default=0.25,
        metavar='X',
        help='minimum score of compared boxes (default: 0.25)',
    )
    add(
        '--min-cosine',
        type=finite,
        default=0.99,
        metavar='X',
        help='fail below this cosine similarity of any output (default: 0.99)',
    )
    add(
        '--min-matched',
        type=fraction,
        default=0.95,
        metavar='X',
        help='fail below this fraction of matched boxes (default: 0.95)',
    )
    add('--json', action='store_true', help='print the comparison as JSON')
    group = parser.add_argument_group('picture', 'options of --picture')
    group.add_argument(
        '--picture',
        type=Path,
        metavar='FILE.png',
        help='draw the input and the result of each picture',
    )
    add_option_flags(group, PICTURE_OPTIONS)


def run(args: Namespace) -> int:
    """Compare, draw and print; 1 when the outputs do not agree."""
    from trt_ros.runtime.backends import choose_backend

    backend, reason = choose_backend(args.backend)
    if args.picture is not None:
        _draw(args)
    if backend.name != 'onnxruntime':
        return _compare(args)
    if args.picture is None:
        raise BackendError(
            'Nothing to compare: ONNX Runtime is the only backend here.',
            cause=reason,
            remedy='Follow the advice of `trt-ros doctor`; --picture needs no TensorRT.',
        )
    print(f'nothing to compare: {reason}', file=sys.stderr)
    return 0


def _draw(args: Namespace) -> None:
    from trt_ros.draw import Panel, draw_result, in_rows, input_view
    from trt_ros.media import check_picture_path, write_picture
    from trt_ros.runtime.options import LabelledOptions
    from trt_ros.runtime.pipeline import Pipeline
    from trt_ros.vision.decoders.registry import DRAWN
    from trt_ros.vision.frame import to_colour

    if not args.images:
        raise ParameterError(
            '--picture has no pictures to draw.', remedy='Add picture files after the model.'
        )
    check_picture_path(args.picture)
    options = LabelledOptions(
        model_path=str(args.model),
        backend=args.backend,
        device=args.device,
        engine_cache_dir=args.cache_dir,
        precision=build_options(args).precision,
        input_size=build_options(args).input_size,
        **{name: getattr(args, name) for name in PICTURE_OPTIONS},
    )
    with ExitStack() as stack:
        pipeline: Pipeline[object] = Pipeline.open(options, families=DRAWN)
        stack.callback(pipeline.close)
        print('\n'.join(pipeline.log_lines), file=sys.stderr)
        name, preprocess = pipeline.decoder.name, pipeline.preprocess
        if preprocess.dtype != 'uint8':
            preprocess = replace(preprocess, dtype='float32')
        differences = _differences(pipeline.decoder, preprocess)
        for option, values in differences.items():
            print(f'differs from the training of {name}: {option} is {values}', file=sys.stderr)
        caption = (
            f'; differs from the training of {name}: {", ".join(differences)}'
            if differences
            else ''
        )
        rows = []
        for path, frame in zip(args.images, _frames(args.images)):
            tensor, _ = preprocess(frame)
            found = pipeline.infer(frame, Thresholds(score=args.score_threshold))
            pixels = to_colour(frame, 'bgr').copy()
            draw_result(pixels, found, pipeline.class_names)
            rows.append(
                (
                    Panel(
                        input_view(tensor, preprocess),
                        f'input, {tensor.min():.3g} to {tensor.max():.3g}{caption}',
                    ),
                    Panel(pixels, f'{path.name}: result of {name}'),
                )
            )
    write_picture(args.picture, in_rows(rows))
    print(args.picture, file=sys.stderr)


def _differences(decoder: Decoder[object], preprocess: Preprocess) -> dict[str, str]:
    """Return the options that differ from the family's training, with both values."""
    from trt_ros.vision.letterbox import Preprocess

    trained = Preprocess(preprocess.input_hw, **decoder.preprocess)  # type: ignore[arg-type]
    normalising = ('scale', 'mean', 'std') if preprocess.dtype != 'uint8' else ()
    names = ('resize', 'crop_fraction', 'pad_value', 'channel_order', *normalising)
    return {
        name: f'{getattr(preprocess, name)}, not {getattr(trained, name)}'
        for name in names
        if getattr(preprocess, name) != getattr(trained, name)
    }


def _compare(args: Namespace) -> int:
    from trt_ros.runtime.cpu.checked_runner import CheckedRunner
    from trt_ros.runtime.gpu.open import open_tensor_runner

    with ExitStack() as stack:
        reference = CheckedRunner.open(args.model)
        stack.callback(reference.close)
        ours = open_tensor_runner(
            args.model,
            build_options(args),
            backend=args.backend,
            device=args.device,
            cache_dir=args.cache_dir,
        )
        stack.callback(ours.close)
        outputs = _compare_outputs(
            args, ours, _reference_with_outputs_of(args.model, ours, reference, stack)
        )
        boxes = _compare_boxes(args, ours, reference)
    reasons = {name: each.problem(args.min_cosine) for name, each in outputs.items()}
    if boxes and not boxes['matched'] >= args.min_matched:
        reasons['boxes'] = f'{boxes["matched"]:.1%} matched is below {args.min_matched:.1%}'
    reasons = {name: reason for name, reason in reasons.items() if reason}
    if args.json:
        print(
            json.dumps(
                {
                    'outputs': {name: asdict(each) for name, each in outputs.items()},
                    'boxes': boxes,
                    'failed': list(reasons),
                    'reasons': reasons,
                },
                indent=1,
            )
        )
    else:
        _print(outputs, boxes, reasons)
    return 1 if reasons else 0


def _print(
    outputs: dict[str, Agreement], boxes: dict[str, float], reasons: dict[str, str]
) -> None:
    for name, each in outputs.items():
        print(
            f'{name}: largest difference {each.max_error:.3g}, mean {each.mean_error:.3g} '
            f'(values up to {each.largest:.3g}), cosine {each.cosine:.6f}'
        )
    if boxes:
        print(
            f'boxes: {boxes["ours"]} here, {boxes["reference"]} in ONNX Runtime, '
            f'{boxes["matched"]:.1%} matched, smallest IoU {boxes["min_iou"]:.3f}'
        )
    for name, reason in reasons.items():
        print(f'{name} differs: {reason}')
    if any(each.overflows_here_only for each in outputs.values()):
        print('Remedy: float16 holds no more than 65504. Try --precision bf16 or tf32.')
    print(f'differs: {", ".join(reasons)}' if reasons else 'agrees')


def _reference_with_outputs_of(model: Path, ours: Any, reference: Any, stack: ExitStack) -> Any:
    """Return the reference with the engine's outputs: without NMS, where that was cut off."""
    from trt_ros.engine.build.onnx_cut_nms import write_cut
    from trt_ros.runtime.cpu.checked_runner import CheckedRunner
    from trt_ros.tensors import CUT_NMS

    if CUT_NMS not in ours.metadata:
        return reference
    path = Path(stack.enter_context(TemporaryDirectory(prefix='trt_ros'))) / 'cut.onnx'
    write_cut(model, path)
    cut = CheckedRunner.open(path)
    stack.callback(cut.close)
    return cut


def _frames(paths: list[Path]) -> Iterator[Frame]:
    from trt_ros.media import read_picture
    from trt_ros.vision.frame import Frame

    for path in paths:
        yield Frame.from_pixels(read_picture(path))


def _inputs(args: Namespace, network: Any) -> Iterator[dict[str, np.ndarray]]:
    """Yield inputs of the network: the preprocessed pictures, or noise."""
    import numpy as np

    if args.images:
        from trt_ros.runtime.fitting import fit
        from trt_ros.runtime.options import PipelineOptions
        from trt_ros.vision.decoders.registry import FAMILIES

        fitted = fit(network, PipelineOptions(model_path=str(args.model)), FAMILIES)
        image = next(spec.name for spec in network.inputs if len(spec.shape) == 4)
        for frame in _frames(args.images):
            yield {image: fitted.preprocess(frame)[0], **fitted.decoder.constant_inputs}
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
            tensors[spec.name] = (
                noise.astype(spec.dtype) if is_float else (noise * 255).astype(spec.dtype)
            )
        yield tensors


def _compare_outputs(args: Namespace, ours: Any, reference: Any) -> dict[str, Agreement]:
    import numpy as np

    from trt_ros.cli._agreement import add_answers

    found: dict[str, Agreement] = {}
    for tensors in _inputs(args, reference):
        want = {name: np.array(value) for name, value in reference.infer(tensors).items()}
        add_answers(
            found, ours.infer({spec.name: tensors[spec.name] for spec in ours.inputs}), want
        )
    return found


def _compare_boxes(args: Namespace, ours: Any, reference: Any) -> dict[str, float]:
    """
    Compare the detections of both networks; return {} where no decoder fits.

    :param ours: closed afterwards; its engine runs as a pipeline.
    """
    import numpy as np

    from trt_ros.errors import TensorMismatchError
    from trt_ros.runtime.cpu.frame_runner import StepByStep
    from trt_ros.runtime.fitting import fit
    from trt_ros.runtime.gpu.open import frames_of
    from trt_ros.runtime.options import PipelineOptions
    from trt_ros.vision.decoders.registry import FAMILIES
    from trt_ros.vision.frame import Frame
    from trt_ros.vision.nms import iou

    options = PipelineOptions(model_path=str(args.model))
    try:
        fitted = fit(reference, options, FAMILIES)
    except TensorMismatchError:
        return {}
    on_cpu = StepByStep(reference, fitted)
    rng = np.random.default_rng(0)
    frames = list(_frames(args.images)) or [
        Frame.from_pixels(rng.integers(0, 256, (480, 640, 3), dtype=np.uint8))
        for _ in range(args.random)
    ]
    thresholds = Thresholds(score=args.score_threshold, max_detections=300)
    counts, matched, smallest = [0, 0], 0, 1.0
    pipeline = frames_of(ours, options, batch=build_options(args).batch)
    try:
        for frame in frames:
            want = on_cpu.infer(frame, thresholds)
            got: Detections = pipeline.infer(frame, thresholds)
            counts = [counts[0] + len(got), counts[1] + len(want)]
            for box, label in zip(want.xyxy, want.labels):
                overlaps = iou(box, got.xyxy[got.labels == label])
                best = float(overlaps.max(initial=0.0))
                if best >= 0.5:
                    matched += 1
                    smallest = min(smallest, best)
    finally:
        pipeline.close()
    # Boxes that only one side has count as not matched.
    share = matched / max(counts) if max(counts) else 1.0
    return {'ours': counts[0], 'reference': counts[1], 'matched': share, 'min_iou': smallest}
