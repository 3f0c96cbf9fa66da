"""
Decoder and preprocessing of a network, found with pictures.

Tries the decoders that fit the outputs, the usual normalizations, both channel orders, methods to
resize and, of a network that takes any, input sizes; flags that are given are not varied. The
readings are ranked by what mirrored and cropped pictures confirm of each result, or, with
--annotations or --counts, by the agreement with these.

The folder of --output gets fit.html and fit.png, the best readings side by side, and per reading
the parameters of a node: 1.yaml is for the first.

Readings are tied where the pictures do not tell them apart: then the training of the model family
comes first, which may be wrong. More pictures, or annotations, decide.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import islice
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._flags import (
    add_flags,
    add_option_flags,
    comma_separated,
    given_options,
    model_argument,
    number,
    output_folder,
    positive,
)
from trt_ros.errors import ParameterError, counted, printable
from trt_ros.progress import Reporter
from trt_ros.runtime.options import PREPROCESSING, ModelOptions
from trt_ros.vision.pixel_limit import PixelLimit
from trt_ros.vision.thresholds import ThresholdOptions

if TYPE_CHECKING:
    from trt_ros.runtime.ranking import Ranked, Truth

OPTIONS = (
    *(name for name in PREPROCESSING if name != 'strict'),
    *('labels', 'labels_path', 'outputs', 'input_size', 'backend', 'device'),
    *('engine_cache_dir', 'cpu_threads'),
)
PRINTED = 10


def add_arguments(parser: ArgumentParser) -> None:
    pictures = 'pictures, videos, recordings or folders of pictures, of what the network is for'
    counts = 'number of objects per picture, in their order'
    add_flags(
        parser,
        ('model', model_argument, None, 'ONNX file'),
        ('images images +', Path, None, pictures),
        ('--output DIR', Path, Path('fit'), 'folder'),
        ('--max-images N', positive, 12, 'number of pictures or frames to use'),
        ('--annotations FILE.json', Path, None, 'boxes or classes of the pictures in COCO format'),
        ('--counts N,N,..', comma_separated(number(int, 0)), (), counts),
        ('--json', 'print the ranking as JSON'),
    )
    add_option_flags(parser, ('score_threshold',), ThresholdOptions)
    add_option_flags(parser, cls=PixelLimit)
    add_option_flags(parser, OPTIONS, ModelOptions, {'backend': {'default': 'onnxruntime'}})


def run(args: Namespace) -> int:
    """Rank the readings, write the page and print; 1 when no result is confirmed."""
    from trt_ros.cli._fit_page import line_of

    options = given_options(args, ModelOptions)
    if args.annotations and args.counts:
        raise ParameterError('Both --annotations and --counts are given.', remedy='Give one.')
    with output_folder(args.output):
        order, verdict = _rank(args, options)
    if args.json:
        print(json.dumps([_entry(each) for each in order], indent=1))
    else:
        lines = [line_of(number, each) for number, each in enumerate(order[:PRINTED], 1)]
        print(*map(printable, lines), sep='\n')
    print(printable(verdict, lines=True), file=sys.stderr)
    print(args.output / 'fit.html', file=sys.stderr)
    return int(order[0].is_weak)


def _rank(args: Namespace, options: ModelOptions) -> tuple[Sequence[Ranked], str]:
    """Rank the readings and write the page; return them, and what the pictures say."""
    from tqdm import tqdm

    from trt_ros.cli._fit_page import write_page
    from trt_ros.cli._samples import frames
    from trt_ros.runtime.backends import open_network
    from trt_ros.runtime.ranking import search
    from trt_ros.vision.frame import to_color

    pictures = [
        (name, to_color(frame, 'bgr').copy())
        for name, frame in islice(frames(args.images, args.max_image_pixels), args.max_images)
    ]
    if not pictures:
        raise ParameterError('The files have no images.', remedy='Use some images.')
    truths = _truths(args, [name for name, _ in pictures])

    def watch(some: Iterable[Any]) -> Iterable[Any]:
        bar: Iterable[Any] = tqdm(some, unit=' pictures', disable=not sys.stderr.isatty())
        return bar

    network, _, chosen = open_network(options, Reporter())
    with closing(network):
        print(*chosen, sep='\n', file=sys.stderr)
        colors = [pixels for _, pixels in pictures]
        order = search(network, options, colors, truths, score=args.score_threshold, watch=watch)
        verdict = '\n'.join(_verdict(order, has_truth=any(truths)))
        write_page(args.output, network, order, pictures, verdict, score=args.score_threshold)
    return order, verdict


def _truths(args: Namespace, names: Sequence[str]) -> list[Truth | None]:
    """Return the truth of each picture; raise ParameterError for another number of counts."""
    from trt_ros.runtime.ranking import Truth, read_truths

    if args.annotations:
        return read_truths(args.annotations, [Path(name) for name in names])
    if args.counts and len(args.counts) != len(names):
        raise ParameterError(
            f'--counts has {counted(len(args.counts), "number")} for '
            f'{counted(len(names), "picture")}.',
            remedy='Give one number per picture, in their order.',
        )
    return [Truth(count) for count in args.counts] or [None] * len(names)


def _verdict(order: Sequence[Ranked], *, has_truth: bool) -> list[str]:
    """Return what the pictures say and what they do not, in sentences."""
    best, *others = order
    if best.is_weak:
        return [
            f'All readings are impossible: {best.problem}'
            if best.problem
            else 'This ranking means nothing: no result depends on what these pictures show.',
            'Remedy: Use different pictures of what the network finds, of several classes; lower '
            '--score-threshold; or set --decoder and the preprocessing as its authors do.',
        ]
    tied = [each for each in others if each.is_tied]
    by = 'the annotations' if has_truth else 'the results alone'
    if not tied:
        return [f'Reading 1 is the best by {by}.']
    texts = [each.candidate.texts() for each in (best, *tied)]
    values = {name: dict.fromkeys(each[name] for each in texts) for name in texts[0]}
    differing = [f'{name} {", ".join(some)}' for name, some in values.items() if len(some) > 1]
    return [
        f'Readings 1 to {len(tied) + 1} are tied: by {by}, these pictures do not tell apart '
        f'{"; ".join(differing)}.',
        *['Scores of different decoders are not compared.'] * (len(values['decoder']) > 1),
        'The first is the nearest to the training of its model family, not the surest. More or '
        'other pictures, or --annotations, may decide.',
    ]


def _entry(each: Ranked) -> dict[str, Any]:
    return {
        **each.candidate.described(),
        'score': None if each.problem else round(each.score, 4),
        'tied': each.is_tied,
        'found': len(each.confidences),
        'confidence': round(each.confidence, 4),
        'confirmed': round(each.confirmed, 4),
        'problem': each.problem,
    }
