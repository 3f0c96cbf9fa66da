"""
Detection in images, folders and videos, to annotated files and detections.json.

detections.json holds one entry per image or video frame, each with "detections": "label",
"class_index", "score" and "xyxy" (left, top, right, bottom, in pixels of the image). A rotated box
also has "cxcywh" (centre, width, height) and "theta", the angle of its width in radians, clockwise
from the image's x axis; its "xyxy" is the upright rectangle around it.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields
import json
from pathlib import Path
import re
import sys
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from trt_ros.cli._arguments import add_threshold_flags
from trt_ros.cli._pictures import IMAGE_SUFFIXES, VIDEO_SUFFIXES, expand, read_video
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.runtime.options import LabelledOptions
from trt_ros.vision.thresholds import Thresholds

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    import numpy as np

    from trt_ros.runtime.pipeline import Pipeline
    from trt_ros.vision.detections import Detections
    from trt_ros.vision.results import OrientedBoxes

MANY_FILES = 20  # From this number on, a progress bar is shown also without a terminal.


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        'files', nargs='+', type=Path, metavar='FILE', help='image or video, or a folder of them'
    )
    parser.add_argument(
        '--output',
        type=Path,
        metavar='DIR',
        help='folder of annotated files and detections.json (default: detections; '
        'none with --json)',
    )
    parser.add_argument('--json', action='store_true', help='print the detections to stdout')
    add_threshold_flags(parser)
    add_option_flags(parser, [each.name for each in fields(LabelledOptions)])


def run(args: Namespace) -> int:
    """Detect in all files; 1 when some could not be read."""
    from tqdm import tqdm

    from trt_ros.runtime.pipeline import Pipeline
    from trt_ros.vision.decoders.registry import FAMILIES, ORIENTED

    options = LabelledOptions(
        **{each.name: getattr(args, each.name) for each in fields(LabelledOptions)}
    )
    folder = args.output or (None if args.json else Path('detections'))
    paths = list(expand(args.files))
    if folder is not None:
        _make_folder(folder, paths)
    entries: list[dict[str, Any]] = []
    failed = 0
    with ExitStack() as stack:
        families: Any = (*FAMILIES, *ORIENTED)
        pipeline: Pipeline[Detections | OrientedBoxes] = Pipeline.open(options, families=families)
        stack.callback(pipeline.close)
        for line in pipeline.log_lines:
            print(line, file=sys.stderr)
        if folder is not None:
            # Written also after an interrupt.
            stack.callback(_write_json, folder / 'detections.json', entries)
        names = _Names()
        watched = sys.stderr.isatty()
        bar = stack.enter_context(
            tqdm(
                paths,
                unit=' files',
                mininterval=0.1 if watched else 10.0,
                disable=len(paths) < (2 if watched else MANY_FILES),
            )
        )
        for path in bar:
            try:
                _detect_file(path, pipeline, args, folder and folder / names.unique(path), entries)
            except BadFrameError as error:
                failed += 1
                entries.append({'file': str(path), 'error': error.problem})
                tqdm.write(f'{path}: {error}', file=sys.stderr)
    if args.json:
        print(json.dumps(entries, indent=1))
    found = sum(len(entry.get('detections', ())) for entry in entries)
    summary = f'files: {len(paths) - failed}, detections: {found}'
    if failed:
        summary += f', failed: {failed}'
    print(summary + (f'; see {folder}' if folder else ''), file=sys.stderr)
    return 1 if failed else 0


def add_option_flags(parser: ArgumentParser | _ArgumentGroup, names: Sequence[str]) -> None:
    """Declare a flag per named field of LabelledOptions; --model stands for model_path."""
    types = get_type_hints(LabelledOptions)
    for each in fields(LabelledOptions):
        if each.name not in names:
            continue
        kind, described = types[each.name], each.metadata
        more: dict[str, Any] = {'type': kind, 'metavar': kind.__name__.upper()}
        if kind is bool:
            more = {'action': 'store_true'}
        elif kind is str:
            more['metavar'] = 'FILE' if each.name.endswith('path') else 'NAME'
        if get_args(kind):
            more = {'type': _comma_separated(get_args(kind)[0]), 'metavar': 'A,B,..'}
        if each.name == 'inputs':
            more = {'type': _bindings, 'metavar': 'INPUT=KIND:SOURCE,..'}
        if described['choices']:
            more = {'choices': described['choices']}
        flags = ['--' + each.name.replace('_', '-')]
        if each.name == 'model_path':
            flags, more['required'] = ['--model', *flags], True
        description = described['description'].rstrip('.').replace('%', '%%')
        if description[1].islower():
            description = description[0].lower() + description[1:]
        parser.add_argument(*flags, dest=each.name, default=each.default, help=description, **more)


def _bindings(text: str) -> tuple[str, ...]:
    """Split bindings at the commas between them; their topics and settings have commas, too."""
    parts = re.split(r',(?=[^,=?&]+=\s*(?:image|tensor|state):)', text)
    return tuple(part.strip() for part in parts)


def _comma_separated(kind: type) -> Callable[[str], tuple[Any, ...]]:
    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind(part.strip()) for part in text.split(',') if part.strip())

    parse.__name__ = f'comma-separated {kind.__name__}'  # argparse shows it: "invalid .. value".
    return parse


def _make_folder(folder: Path, inputs: Sequence[Path]) -> None:
    for path in inputs:
        if path.resolve().parent == folder.resolve():
            raise ParameterError(
                f'The output folder {folder} contains the input {path}.',
                cause='Annotated files have the names of the inputs and would overwrite them.',
                remedy='Choose another folder with --output.',
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(
            f'The output folder {folder} cannot be created.',
            cause=error.strerror or '',
            remedy='Choose another folder with --output.',
        ) from error


class _Names:
    """Names of annotated files: those of the inputs, with a number where a name is taken."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, path: Path) -> str:
        """Return a name that no earlier call has returned."""
        suffix = path.suffix.lower()
        if suffix in VIDEO_SUFFIXES:
            suffix = '.mp4'
        elif suffix not in IMAGE_SUFFIXES:
            suffix = '.png'
        name, number = path.stem + suffix, 1
        while name.lower() in self._taken:
            number += 1
            name = f'{path.stem}_{number}{suffix}'
        self._taken.add(name.lower())
        return name


def _detect_file(
    path: Path,
    pipeline: Pipeline,
    args: Namespace,
    annotated: Path | None,
    entries: list[dict[str, Any]],
) -> None:
    """
    Detect in one file, append its entries, and write it with the boxes to `annotated`.

    :raises BadFrameError: when it is neither an image nor a video.
    """
    from trt_ros.draw.objects import draw_detections
    from trt_ros.media import read_picture, write_picture
    from trt_ros.vision.frame import Frame

    is_video = path.suffix.lower() in VIDEO_SUFFIXES
    with ExitStack() as stack:
        write: Callable[[np.ndarray], None] | None = None
        for index, (pixels, rate_hz) in enumerate(
            read_video(path) if is_video else [(read_picture(path), 0.0)]
        ):
            height, width = pixels.shape[:2]
            found = pipeline.infer(
                Frame.from_pixels(pixels),
                Thresholds(
                    score=args.score_threshold,
                    iou=args.iou_threshold,
                    max_detections=args.max_detections,
                ),
            )
            entries.append(
                {
                    'file': str(path),
                    **({'frame': index} if is_video else {}),
                    'width': width,
                    'height': height,
                    'detections': _as_json(found, pipeline.class_names),
                }
            )
            if annotated is None:
                continue
            if write is None:
                write = (
                    _video_writer(annotated, width, height, rate_hz, stack)
                    if is_video
                    else lambda pixels: write_picture(annotated, pixels)
                )
            draw_detections(pixels, found, pipeline.class_names)
            write(pixels)


def _as_json(found: Detections | OrientedBoxes, names: Sequence[str]) -> list[dict[str, Any]]:
    import numpy as np

    from trt_ros.vision.decoders.obb import hull
    from trt_ros.vision.labels import name_of
    from trt_ros.vision.results import OrientedBoxes

    more: list[dict[str, Any]] = [{} for _ in range(len(found))]
    if isinstance(found, OrientedBoxes):
        xyxy = np.hstack(hull(np.column_stack([found.cxcywh, found.theta])))
        more = [
            {'cxcywh': [round(float(each), 2) for each in cxcywh], 'theta': round(float(theta), 5)}
            for cxcywh, theta in zip(found.cxcywh, found.theta)
        ]
    else:
        xyxy = found.xyxy
    return [
        {
            'label': name_of(names, int(label)),
            'class_index': int(label),
            'score': round(float(score), 4),
            'xyxy': [round(float(edge), 2) for edge in edges],
            **angle,
        }
        for edges, score, label, angle in zip(xyxy, found.scores, found.labels, more)
    ]


def _video_writer(
    path: Path, width: int, height: int, rate_hz: float, stack: ExitStack
) -> Callable[[np.ndarray], None]:
    from trt_ros.media import open_video_writer

    writer = open_video_writer(path, rate_hz, (width, height))
    stack.callback(writer.release)

    def write(pixels: np.ndarray) -> None:
        writer.write(pixels)

    return write


def _write_json(path: Path, entries: Sequence[dict[str, Any]]) -> None:
    _write(path, (json.dumps(entries, indent=1) + '\n').encode())


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ParameterError(
            f'The file {path} cannot be written.',
            cause=error.strerror or '',
            remedy='Choose another folder with --output.',
        ) from error
