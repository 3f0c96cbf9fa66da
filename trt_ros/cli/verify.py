"""
Comparison of an engine with ONNX Runtime, per output and per box.

Of a network of several images, each run takes one picture per image topic of --inputs, in that
order; tensors are noise, and states the outputs of the previous run on either side.

With --picture, the network's input is drawn beside its result, for any task and on any machine,
and options that differ from the training of the model family, or from its default, are listed.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._flags import (
    MIN_COSINE,
    add_flags,
    fraction,
    given_options,
    model_argument,
    positive,
    refuse_layers,
)
from trt_ros.cli._samples import add_input_flags, run_sample, samples
from trt_ros.cli.build import add_build_arguments
from trt_ros.errors import BackendError, ParameterError
from trt_ros.runtime.options import LabeledOptions
from trt_ros.vision.thresholds import Thresholds

if TYPE_CHECKING:
    from trt_ros.decode.choice import Decoder
    from trt_ros.runtime.pipeline import Pipeline
    from trt_ros.vision.letterbox import Preprocess

MAX_DRAWN = 16  # As in the help of --picture.


def draw_network_inputs(args: Namespace) -> None:
    """Draw the network's input beside its result, for the first `MAX_DRAWN` pictures."""
    from trt_ros.drawing import draw
    from trt_ros.drawing.panels import Panel, in_rows, input_view
    from trt_ros.media import check_picture_path, write_picture
    from trt_ros.model.run_inputs import image_feeds
    from trt_ros.vision.frame import to_color
    from trt_ros.vision.letterbox import INTEGERS

    if not args.images:
        raise ParameterError(
            '--picture has no pictures to draw.', remedy='Add picture files after the model.'
        )
    check_picture_path(args.picture)
    with ExitStack() as stack:
        pipeline = open_pipeline(args)
        stack.callback(pipeline.close)
        name, preprocess = pipeline.decoder.name, pipeline.preprocess
        if preprocess.dtype not in INTEGERS:
            preprocess = replace(preprocess, dtype='float32')
        differences, caption = _differences(pipeline.decoder, preprocess), ''
        # Networks of many authors have the same outputs: no one knows how this one was trained.
        is_known = pipeline.decoder.is_training_known
        how = f'differs from the training of {name}' if is_known else f'set for this {name}'
        than = 'not' if is_known else 'by default'
        for option, (value, other) in differences.items():
            print(f'{how}: {option} is {value}, {than} {other}', file=sys.stderr)
        if differences and is_known:
            caption = f'; {how}: {", ".join(differences)}'
        rows = []
        for path, inputs in islice(samples(args, pipeline.feeds), MAX_DRAWN):
            name_of_images, feed = next(iter(image_feeds(pipeline.feeds).items()))
            images: Any = inputs[name_of_images]
            tensor, _ = preprocess(*images[: 1 + feed.has_second])
            found = run_sample(pipeline, inputs, args.score_threshold)
            pixels = to_color(images[0], 'bgr').copy()
            draw(pixels, found)
            rows.append(
                (
                    Panel(
                        input_view(tensor, preprocess),
                        f'input, {tensor.min():.3g} to {tensor.max():.3g}{caption}',
                    ),
                    Panel(pixels, f'{Path(path).name}: result of {name}'),
                )
            )
    write_picture(args.picture, in_rows(rows))
    print(args.picture, file=sys.stderr)


def open_pipeline(args: Namespace) -> Pipeline[Any]:
    """Open the pipeline of the arguments, and print its log lines."""
    from trt_ros.runtime.pipeline import Pipeline

    pipeline: Pipeline[Any] = Pipeline.open(given_options(args, LabeledOptions))
    print('\n'.join(pipeline.log_lines), file=sys.stderr)
    return pipeline


def _differences(
    decoder: Decoder[object], preprocess: Preprocess
) -> dict[str, tuple[object, object]]:
    from trt_ros.vision.letterbox import INTEGERS, Preprocess

    trained = Preprocess(preprocess.input_hw, **decoder.preprocess)  # type: ignore[arg-type]
    normalizing = ('scale', 'mean', 'std') if preprocess.dtype not in INTEGERS else ()
    names = ('resize', 'crop_fraction', 'pad_value', 'channel_order', *normalizing)
    return {
        name: (getattr(preprocess, name), getattr(trained, name))
        for name in names
        if getattr(preprocess, name) != getattr(trained, name)
    }


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    pictures = 'pictures, videos, recordings or folders of pictures (default: random inputs)'
    add_flags(
        parser,
        ('model', model_argument, None, 'ONNX file, or bundle of networks'),
        ('images images *', Path, [], pictures),
    )
    add_build_arguments(parser)
    add_flags(
        parser.add_argument_group('comparison'),
        ('--random N', positive, 3, 'number of random inputs without pictures'),
        ('--score-threshold X', fraction, Thresholds.score, 'minimum score of compared boxes'),
        MIN_COSINE,
        ('--min-matched X', fraction, 0.95, 'fail below this fraction of matched boxes'),
        ('--layers', 'name the first layer that differs; done automatically for NaN and Inf'),
        ('--json', 'print the comparison as JSON'),
        (
            '--picture FILE.png',
            Path,
            None,
            'draw the input and the result of the first 16 pictures or frames',
        ),
    )
    add_input_flags(parser)


def run(args: Namespace) -> int:
    """Compare, draw and print; 1 when the outputs do not agree."""
    from trt_ros.cli._comparison import compare
    from trt_ros.runtime.backends import choose_backend

    refuse_layers(args)
    backend, reason = choose_backend(args.backend)
    if args.picture is not None:
        draw_network_inputs(args)
    if backend.name != 'onnxruntime':
        if given_options(args, LabeledOptions).is_cascade:
            from trt_ros.cli._comparison import compare_cascade

            return compare_cascade(args)
        return compare(args)
    if args.picture is None:
        open_pipeline(args).close()  # Tells how the network is read, and what a trial run says.
        pictures = ' '.join(map(str, args.images[:1])) or 'photo.jpg'
        raise BackendError(
            'Nothing to compare: ONNX Runtime is the only backend here.',
            cause=reason,
            remedy='Look at the input and the result instead: '
            f'`trt-ros verify {args.model} {pictures} --picture seen.png`; for TensorRT, follow '
            'the advice of `trt-ros doctor`.',
        )
    print(f'nothing to compare: {reason}', file=sys.stderr)
    return 0
