"""
Quantization of an ONNX file to int8, fp8 or int4, calibrated with images.

The last layers stay in float. If the results differ too much from those of the original, the most
sensitive layers return to float. An interrupted calibration continues when run again.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Sequence
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._flags import (
    add_flags,
    add_option_flags,
    given_options,
    model_argument,
    positive,
    refuse_bundle,
    refuse_without_effect,
)
from trt_ros.cli.build import REPEATED, Bar
from trt_ros.errors import BadFrameError, ParameterError, printable
from trt_ros.progress import Reporter
from trt_ros.quantization.options import QuantOptions
from trt_ros.regular_file import check_output_file, write_text
from trt_ros.runtime.options import PREPROCESSING, LabeledOptions
from trt_ros.vision.pixel_limit import PixelLimit

if TYPE_CHECKING:
    from trt_ros.quantization.quantize import FrameSource, QuantReport

OPTIONS = (*PREPROCESSING, 'labels', 'labels_path', 'input_size', 'device', 'engine_cache_dir')
#: Arguments of the flags of a quantization that do not follow from their types.
MORE = {
    'to': {'required': True, 'default': None},
    'keep': {**REPEATED['fp32'], 'flags': ['--keep']},
    'engine': {'flags': ['--no-latency']},
}
SHOWN_LAYERS = 8


def add_arguments(parser: ArgumentParser) -> None:
    pictures = 'pictures, videos, folders or recordings of rosbag2: some hundred typical images'
    add_option_flags(parser, cls=QuantOptions, more=MORE)
    add_flags(
        parser,
        ('model', model_argument, None, 'float32 ONNX file'),
        ('images images +', Path, None, pictures),
        ('--output FILE.onnx', Path, ..., 'ONNX file to write'),
        ('--force', 'replace the output'),
        ('--max-images N', positive, 256, 'maximum number of images, evenly spread'),
        ('--json FILE', Path, None, 'write the report'),
        ('--topic TOPIC +', str, [], 'image topics of recordings to use (default: all)'),
    )
    add_option_flags(parser, cls=PixelLimit)
    add_option_flags(parser.add_argument_group('preprocessing, decoding and GPU'), OPTIONS)


def run(args: Namespace) -> int:
    """Quantize, write and report."""
    from trt_ros.quantization.engine_check import measure_latency
    from trt_ros.quantization.quantize import quantize

    refuse_bundle(args.model, 'quantize')
    if args.json:
        if args.json.suffix == '.onnx':
            raise ParameterError(
                f'The report {args.json} would be an .onnx file.', remedy='Name it .json.'
            )
        check_output_file(args.json)
    if args.output.exists() and not args.force:
        raise ParameterError(f'{args.output} exists already.', remedy='Add --force to replace it.')
    options = given_options(args, QuantOptions)
    pipeline_options = given_options(args, LabeledOptions)
    bad: list[BadFrameError] = []
    with Bar() as bar:
        report = Reporter(bar)
        try:
            source = _source(args, bad.append)
            found = quantize(options, pipeline_options, source, args.output, report)
        finally:
            _print_bad(bad)
        if options.engine and not (found.engine and found.engine.problem):
            found.latency = measure_latency(
                args.model, args.output, args.to, pipeline_options, report
            )
    if args.json:
        text = json.dumps(found.as_dict(), indent=1)
        write_text(args.json, text, 'Choose another file with --json.')
    _print(found)
    if found.engine:
        found.engine.raise_problem(args.output)
    return 0


def _source(args: Namespace, on_bad: Callable[[BadFrameError], None]) -> FrameSource:
    from trt_ros.cli._samples import count_frames, fingerprint, frames
    from trt_ros.quantization.quantize import FrameSource, limited
    from trt_ros.recording import is_recording

    missing = [str(path) for path in args.images if not path.exists()]
    if missing:
        raise ParameterError(
            f'{", ".join(missing)} does not exist.', remedy='Correct the path of the images.'
        )
    refuse_without_effect(
        ('--topic', args.topic, any(map(is_recording, args.images)), 'a recording')
    )
    count = count_frames(args.images, args.max_image_pixels, args.topic)

    def opened() -> Any:
        found = frames(args.images, args.max_image_pixels, on_bad, args.topic)
        return limited((frame for _, frame in found), count, args.max_images)

    return FrameSource(
        opened,
        min(count, args.max_images),
        json.dumps([fingerprint(args.images), args.max_images, args.max_image_pixels, args.topic]),
    )


def _print_bad(bad: Sequence[BadFrameError]) -> None:
    for kind, count in Counter(each.kind for each in bad).items():
        first = next(each for each in bad if each.kind == kind)
        print(
            f'left out: {count} ({kind}). {first.problem} {first.cause}'.strip(), file=sys.stderr
        )


def _print(found: QuantReport) -> None:
    print(*map(printable, found.log_lines), sep='\n', file=sys.stderr)
    resumed = f', {found.resumed} of them by an earlier run' if found.resumed else ''
    tool = ' of nvidia-modelopt' if found.tool else ''
    print(f'calibrated with {found.frames} images{resumed}, method {found.method}{tool}')
    quantized = [layer for layer in found.layers if not layer.reason]
    print(f'{found.to}: {len(quantized)} of {len(found.layers)} convolutions and matrix products')
    measured = [layer for layer in found.layers if layer.error is not None]
    measured.sort(key=lambda layer: -(layer.error or 0.0))
    if measured:
        print(f'{"error alone":>12}  most sensitive layers')
    for layer in measured[:SHOWN_LAYERS]:
        reason = f' ({layer.reason})' if layer.reason else ''
        print(printable(f'{layer.error:12.2%}  {layer.name}{reason}'))
    print(f'results: {found.agreement}')
    if found.engine:
        print(f'engine: {found.engine.agreement or found.engine.error}')
    if found.latency:
        print('\n'.join(found.latency.lines()))
    print(found.output)
