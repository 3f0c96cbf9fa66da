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

from trt_ros.cli._arguments import (
    finite,
    fraction,
    model_argument,
    positive,
    refuse_layers,
)
from trt_ros.cli._samples import add_input_flags, input_options
from trt_ros.cli._verify_picture import draw_network_inputs, open_pipeline
from trt_ros.cli.build import add_build_arguments
from trt_ros.errors import BackendError
from trt_ros.vision.thresholds import Thresholds


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument('model', type=model_argument, help='ONNX file, or bundle of networks')
    parser.add_argument(
        'images',
        nargs='*',
        type=Path,
        help='pictures, videos, recordings or folders of pictures (default: random inputs)',
    )
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
        default=Thresholds.score,
        metavar='X',
        help=f'minimum score of compared boxes (default: {Thresholds.score})',
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
    add(
        '--layers',
        action='store_true',
        help='name the first layer that differs; done automatically for NaN and Inf',
    )
    add('--json', action='store_true', help='print the comparison as JSON')
    add(
        '--picture',
        type=Path,
        metavar='FILE.png',
        help='draw the input and the result of the first 16 pictures or frames',
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
        if input_options(args).is_cascade:
            from trt_ros.cli._cascade import compare_cascade

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
