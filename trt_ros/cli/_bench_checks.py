"""Arguments of `trt-ros bench` that cannot be honored."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from trt_ros.cli._flags import refuse_layers
from trt_ros.cli.build import build_options
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ParameterError
from trt_ros.runtime.options import PipelineOptions

if TYPE_CHECKING:
    from trt_ros.runtime.backends import Backend


def refuse_bad_arguments(args: Namespace) -> None:
    """:raises ParameterError: when an argument is invalid, before anything is measured."""
    from trt_ros.regular_file import check_output_file
    from trt_ros.vision.frame import ENCODINGS

    if args.encoding not in ENCODINGS:
        raise ParameterError(
            f'The image encoding {args.encoding!r} is not supported.',
            remedy=f'Choose one of {", ".join(ENCODINGS)}.',
        )
    refuse_layers(args)
    for path in filter(None, (args.json, args.export_times)):
        check_output_file(path)
    if args.precisions and args.precision != 'auto':
        raise ParameterError(
            '--precision and --precisions cannot be combined.', remedy='Remove one of them.'
        )


def refuse_for_cascades(args: Namespace, options: BuildOptions) -> None:
    """:raises ParameterError: when an option is for one network."""
    plain = BuildOptions(
        precision=options.precision, batch=options.batch, input_size=options.input_size
    )
    if options != plain or args.no_graph or args.precisions:
        raise ParameterError(
            'An option of the engine, --no-graph or --precisions is given for a bundle of a '
            'detector and a classifier.',
            remedy='Leave it out, or give the ONNX file of one of its networks.',
        )


def refuse_on_the_cpu(args: Namespace, backend: Backend, chosen: str) -> None:
    """:raises ParameterError: when an option has no effect with this backend."""
    options, plain = build_options(args), BuildOptions()
    refused = [
        name
        for name, value in vars(options).items()
        if value != getattr(plain, name) and name not in ('batch', 'input_size')
    ]
    names = ['precisions', 'no_graph', 'no_transfers']
    refused += ['gpu_wait'] * (args.gpu_wait != PipelineOptions.gpu_wait)
    refused += [
        name for name in (*names, *([] if backend.is_local else ['layers'])) if getattr(args, name)
    ]
    if refused:
        flags = ', '.join(f'--{name.replace("_", "-")}' for name in refused)
        raise ParameterError(
            f'{flags} cannot be used with {backend.title}.',
            cause=chosen,
            remedy='Leave it out, or run `trt-ros doctor` to see why TensorRT is not used.'
            if backend.is_local
            else 'Leave it out: the server decides.',
        )


def in_flight(args: Namespace, default: int) -> int:
    """Return the frames in flight; raise ParameterError for several with states."""
    from trt_ros.model.bindings import parse_bindings
    from trt_ros.model.feeds import FEEDS
    from trt_ros.model.feeds.history import HISTORY

    bindings = parse_bindings(tuple(args.inputs))
    if not any(FEEDS[each.kind].has_memory or HISTORY in each.settings for each in bindings):
        return int(args.frames_in_flight or max(default, args.contexts))
    if (args.frames_in_flight or 1) > 1:
        raise ParameterError(
            f'--frames-in-flight {args.frames_in_flight} cannot be used with states.',
            cause='A run needs the states of the run before it.',
            remedy='Leave --frames-in-flight out.',
        )
    return 1


def refuse_other_batch(args: Namespace, max_batch: int) -> None:
    """:raises ParameterError: when --batch differs from what would be measured."""
    batch = build_options(args).batch
    if 'batch' in args and batch != max_batch:
        raise ParameterError(
            f'batch is {batch}, but this network runs with a batch of {max_batch}.',
            remedy='Leave --batch out, or export with a dynamic batch (build an '
            f'engine with --batch {batch}).',
        )
