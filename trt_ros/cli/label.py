"""
Labels of recordings of rosbag2: results of every image, written to an MCAP file.

Each image gets one result, in order, with its own stamp and time, on the topics that the node of
the task would publish: /detector/detections or, with several topics, /detector/TOPIC/detections.
The file can be read while it is written and after an interrupt; --resume continues it.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import fields
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._arguments import add_threshold_flags
from trt_ros.cli._option_flags import add_option_flags
from trt_ros.errors import ParameterError
from trt_ros.runtime.options import LabelledOptions

if TYPE_CHECKING:
    from trt_ros.labelling.job import LabelReport
    from trt_ros.runtime.pipeline import Pipeline


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        'recordings',
        nargs='+',
        type=Path,
        metavar='RECORDING',
        help='.mcap or .db3 file, folder of a recording, or folder of recordings',
    )
    parser.add_argument(
        '--output',
        type=Path,
        required=True,
        metavar='FILE',
        help='MCAP file of the results; of several recordings, the folder of these files',
    )
    parser.add_argument(
        '--topic',
        nargs='+',
        action='extend',
        default=[],
        metavar='TOPIC',
        help='image topics to label (default: all)',
    )
    parser.add_argument(
        '--with-input', action='store_true', help='also copy all messages of the recording'
    )
    parser.add_argument(
        '--resume', action='store_true', help='continue the output of an interrupted run'
    )
    parser.add_argument(
        '--video',
        action='store_true',
        help='also write the images with their results, as MP4 beside the output, one per topic',
    )
    add_threshold_flags(parser)
    add_option_flags(parser, [each.name for each in fields(LabelledOptions)])
    parser.set_defaults(frames_in_flight=2)


def run(args: Namespace) -> int:
    """Label all recordings; 1 when one was damaged or images were dropped."""
    from trt_ros.runtime.pipeline import Pipeline
    from trt_ros.vision.decoders.registry import DRAWN

    options = LabelledOptions(
        **{each.name: getattr(args, each.name) for each in fields(LabelledOptions)}
    )
    outputs = list(_outputs(args.recordings, args.output))
    is_whole = True
    families: Any = DRAWN
    with closing(Pipeline.open(options, families=families)) as pipeline:
        for line in pipeline.log_lines:
            print(line, file=sys.stderr)
        for path, output in outputs:
            is_whole &= _label(path, output, pipeline, args)
    return 0 if is_whole else 1


def _outputs(paths: Sequence[Path], output: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each recording with its output file."""
    from trt_ros.recording import is_recording, recordings_in

    found: list[Path] = []
    for path in paths:
        inside = recordings_in(path) if path.is_dir() and not is_recording(path) else []
        found += inside if len(inside) > 1 else [path]
    if len(found) == 1:
        yield found[0], output
        return
    names = [path.stem if path.is_file() else path.name for path in found]
    if len(set(names)) < len(names):
        raise ParameterError(
            'Several recordings have the same name.', remedy='Label them one by one.'
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(
            f'The output folder {output} cannot be created.',
            cause=error.strerror or '',
            remedy='Choose another folder with --output.',
        ) from error
    for path, name in zip(found, names):
        yield path, output / f'{name}.mcap'


def _label(path: Path, output: Path, pipeline: Pipeline[Any], args: Namespace) -> bool:
    """Label one recording; return whether all images got results."""
    from tqdm import tqdm

    from trt_ros.labelling.job import chosen_topics, label_recording
    from trt_ros.labelling.video import AnnotatedVideos
    from trt_ros.recording import Recording
    from trt_ros.vision.thresholds import Thresholds

    resume = args.resume and output.exists()
    if resume and args.video:
        raise ParameterError(
            f'The video of {output} cannot be continued.',
            remedy='Leave --video or --resume out, or choose another output.',
        )
    with ExitStack() as stack:
        recording = stack.enter_context(closing(Recording(path)))
        topics = chosen_topics(recording, args.topic)
        videos = None
        if args.video:
            videos = AnnotatedVideos(output, topics, recording, pipeline.class_names)
            stack.enter_context(closing(videos))
        total = sum(recording.topics[topic].count for topic in topics)
        watched = sys.stderr.isatty()
        with tqdm(
            total=total, unit=' frames', desc=path.name, mininterval=0.1 if watched else 10.0
        ) as bar:
            report = label_recording(
                recording,
                pipeline,
                output,
                topics=topics,
                thresholds=Thresholds(
                    score=args.score_threshold,
                    iou=args.iou_threshold,
                    max_detections=args.max_detections,
                ),
                in_flight=args.frames_in_flight,
                with_input=args.with_input,
                resume=resume,
                on_frames=bar.update,
                videos=videos,
            )
    return _print(path, output, report)


def _print(path: Path, output: Path, report: LabelReport) -> bool:
    """Print the summary of one recording; return whether all images got results."""
    summary = f'{path}: {report.frames} frames'
    if report.resumed:
        summary += f' after the {report.resumed} messages of the earlier run'
    for cause, count in report.dropped.items():
        summary += f', {count} dropped ({cause})'
    print(f'{summary}; see {output}', file=sys.stderr)
    if report.damage is not None:
        print(report.damage, file=sys.stderr)
    return not report.dropped and report.damage is None
