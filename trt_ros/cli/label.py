"""
Labels of recordings of rosbag2: results of every image, written to an MCAP file.

Each image gets one result, in order, with its own stamp and time, on the topics that the node of
the task would publish: /detector/detections or, with several topics, /detector/TOPIC/detections.
The file can be read while it is written and after an interrupt; --resume continues it.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from trt_ros.cli._flags import add_flags, add_option_flags, finite, positive, refuse_without_effect
from trt_ros.errors import ParameterError
from trt_ros.vision.pixel_limit import PixelLimit
from trt_ros.vision.thresholds import ThresholdOptions

DEFAULT_BUDGET = 500
_OF_REPORT = ('recordings', 'recursive', 'include', 'exclude', 'split', 'start', 'end', 'report')


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_flags(
        parser,
        (
            'recordings RECORDING *',
            str,
            [],
            '.mcap or .db3 file, folder of a recording, or folder of recordings; or the URL of '
            'one, as in s3://bucket/drives',
        ),
        (
            '--output FILE',
            str,
            None,
            'MCAP file of the results; of several recordings, a folder of them or with --split, '
            'the folder of these files',
        ),
        (
            '--report FILE',
            Path,
            None,
            'append the outcome of each recording, one JSON object per line; --resume leaves out '
            'what is done according to it',
        ),
        ('--retry REPORT', Path, None, 'label what is not done by a report, and add to it'),
        ('--start S', finite, 0.0, 'seconds of the recording to skip'),
        ('--end S', finite, None, 'seconds of the recording after which to stop'),
        ('--every N', positive, 1, 'label one of N images per topic'),
        (
            '--select RULE',
            str,
            None,
            'also write the images worth annotating, by uncertain, rare:CLASS or disagree:MODEL',
        ),
        ('--budget N', positive, None, f'selected images of the job (default: {DEFAULT_BUDGET})'),
        ('--split S', finite, None, 'label parts of S seconds, to files of a folder each'),
        (
            '--workers N',
            positive,
            None,
            'label N recordings at a time, each in a process of its own; with --ray up to N, as '
            'the cluster grows',
        ),
        (
            '--gpus-per-worker X',
            finite,
            None,
            'GPUs, or part of one, per worker of Ray (default: 1 where the cluster has any)',
        ),
        ('--recursive', 'also look into the folders of folders'),
        ('--with-input', 'also copy all messages of the recording'),
        ('--resume', 'continue the output of an interrupted run'),
        ('--video', 'also write images with results, as MP4 beside the output, one per topic'),
        ('--images', 'with --coco: also write the image files'),
        ('--include PATTERN +', str, [], 'label only recordings whose name or path matches'),
        ('--exclude PATTERN +', str, [], 'leave out recordings that match, as in day_*/f*'),
        ('--topic TOPIC +', str, [], 'image topics to label (default: all)'),
    )
    add('--shard', type=_shard, default=(0, 1), metavar='I/N', help='label part I, from 0, of N')
    for name, format_name in (('coco', 'data set in COCO format'), ('parquet', 'Parquet table')):
        text = f'also write a {format_name}, beside the output'
        more: Any = {'action': 'append_const', 'dest': 'data_sets', 'const': name, 'default': []}
        add(f'--{name}', help=text, **more)
    add(
        '--track',
        nargs='?',
        const='ocsort',
        default='',
        choices=('ocsort', 'bytetrack'),
        help='objects of data sets and videos get identities by this method (default: ocsort)',
    )
    add(
        '--ray',
        nargs='?',
        const='local',
        metavar='ADDRESS',
        help='label in the workers of a Ray cluster: its address, or auto (default: on this '
        'machine); recordings and outputs are on a file system that all of them share',
    )
    add_option_flags(parser, cls=PixelLimit)
    add_option_flags(parser, cls=ThresholdOptions)
    more = {'default': None, 'note': ' (default: 2)'}
    add_option_flags(parser, more={'frames_in_flight': more})


def _shard(text: str) -> tuple[int, int]:
    """Parse I/N."""
    with suppress(ValueError):
        index, count = map(int, text.split('/'))
        if 0 <= index < count:
            return index, count
    raise ArgumentTypeError(f'{text!r} is not I/N with I from 0 to N - 1')


def check_flags(args: Namespace) -> None:
    """Raise ParameterError for flags that would be ignored, or choose nothing."""
    others = args.data_sets or args.video or args.select
    refuse_without_effect(
        ('--images', args.images, 'coco' in args.data_sets, '--coco'),
        ('--track', args.track, others, '--coco, --parquet, --video or --select'),
        ('--budget', args.budget, args.select, '--select'),
        ('--gpus-per-worker', args.gpus_per_worker is not None, args.ray, '--ray'),
    )
    given = [name for name in _OF_REPORT if getattr(args, name)]
    if args.retry and given:
        raise ParameterError(
            f'--retry takes no {", ".join(given)}.',
            cause='The report has the recordings and their parts.',
            remedy='Leave them out.',
        )
    if args.report and not args.resume and args.report.exists() and args.report.stat().st_size:
        raise ParameterError(
            f'Report {args.report} exists already.',
            remedy='Continue its run with --resume, or choose another file for --report.',
        )
    if args.split is not None and args.split <= 0:
        raise ParameterError(f'--split is {args.split:g} s.', remedy='Set it to more than 0.')
    if args.start < 0 or (args.end is not None and args.end <= args.start):
        raise ParameterError(
            f'A recording has no part from {args.start:g} s to {args.end or 0.0:g} s.',
            remedy='Set --start to 0 or more, and --end to more than --start.',
        )


def run(args: Namespace) -> int:
    """Label all recordings; 1 when one failed or was damaged, or images were dropped."""
    from trt_ros.cli._label import label

    check_flags(args)
    args.budget = args.budget or DEFAULT_BUDGET
    return label(args)
