"""
Comparison of an engine with ONNX Runtime, per output and per box.

Of a network of several images, each run takes one picture per image topic of --inputs, in that
order; tensors are noise, and states the outputs of the previous run on either side.

With --picture, the network's input is drawn beside its result, for any task and on any machine,
and options that differ from the training of the model family, or from its default, are listed.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
import sys

from trt_ros.cli._flags import (
    MIN_COSINE,
    add_flags,
    add_option_flags,
    fraction,
    given_options,
    model_argument,
    positive,
    refuse_bundle,
)
from trt_ros.cli.build import add_build_arguments
from trt_ros.errors import BackendError
from trt_ros.runtime.options import PREPROCESSING, LabeledOptions
from trt_ros.vision.pixel_limit import PixelLimit
from trt_ros.vision.thresholds import Thresholds


def add_arguments(parser: ArgumentParser) -> None:
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
    add_option_flags(
        parser.add_argument_group('inputs and outputs', 'as the parameters of the nodes'),
        (*PREPROCESSING, 'labels', 'labels_path', 'inputs', 'outputs'),
    )
    add_option_flags(parser, cls=PixelLimit)


def run(args: Namespace) -> int:
    """Compare, draw and print; 1 when the outputs do not agree."""
    from trt_ros.cli._comparison import compare, compare_cascade
    from trt_ros.cli._network_inputs import draw_network_inputs, open_pipeline
    from trt_ros.runtime.backends import choose_backend

    if args.layers:
        refuse_bundle(args.model, '--layers')
    backend, reason = choose_backend(args.backend)
    if args.picture is not None:
        draw_network_inputs(args)
    if backend.name != 'onnxruntime':
        if given_options(args, LabeledOptions).is_cascade:
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
