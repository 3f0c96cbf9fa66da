"""Results of files for `trt-ros infer`: annotated files, JSON and COCO."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, count
import json
from pathlib import Path
import sys
from typing import Any

import numpy as np
from tqdm import tqdm

from trt_ros import media
from trt_ros.cli._flags import given_options, output_folder, refuse_without_effect, thresholds_of
from trt_ros.cli._samples import expand, is_video
from trt_ros.drawing import draw
from trt_ros.errors import BadFrameError, ParameterError, TensorMismatchError, printable
from trt_ros.labelling.coco import check_has_format
from trt_ros.model.array_files import FILES, read_arrays
from trt_ros.regular_file import check_output_file, write_text
from trt_ros.results.base import Result
from trt_ros.results.labels import CocoIds, category_ids, check_unique
from trt_ros.runtime.options import TiledOptions, changed_options
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import Arrays
from trt_ros.vision.class_choice import OBJECT_TASKS
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import ThresholdOptions, Thresholds

IGNORED = ('score_threshold', 'iou_threshold', 'max_detections')  # By networks of no objects.
MANY_FILES = 20  # From this number on, a progress bar is shown also without a terminal.


def open_coco_file(
    args: Namespace, pipeline: Pipeline[Any], files: Sequence[Path]
) -> CocoFile | None:
    """Return the file of --coco, or None; raise ParameterError for --annotations alone."""
    refuse_without_effect(('--annotations', args.annotations, args.coco, '--coco'))
    return CocoFile(args.coco, args.annotations, pipeline, files) if args.coco else None


class CocoFile:
    """A file of results in COCO format, with the ids of `annotations`, or ParameterError."""

    def __init__(
        self, path: Path, annotations: Path | None, pipeline: Pipeline[Any], files: Sequence[Path]
    ) -> None:
        self._path = path
        decoder = pipeline.decoder
        check_has_format(decoder)
        check_output_file(path)
        ids = CocoIds.read(annotations) if annotations else None
        self._image_ids = _image_ids(files, ids.images if ids else None)
        self._next_id = 1
        self._categories = category_ids(
            pipeline.class_names, decoder.class_count or 0, ids.categories if ids else None
        )
        self._entries: list[dict[str, Any]] = []

    def add(self, path: Path, result: Result) -> int:
        """Add the result of an image or video frame; return its image id."""
        image_id = self._image_ids.get(path, self._next_id)
        self._next_id += 1
        self._entries += result.as_coco(image_id, self._categories)
        return image_id

    def write(self) -> None:
        """Write the file, or raise ParameterError."""
        write_text(self._path, json.dumps(self._entries), 'Choose another file with --coco.')


def _image_ids(files: Sequence[Path], known: Mapping[str, int] | None) -> dict[Path, int]:
    """Return the image ids of the files; empty where images are counted."""
    if known is None:
        numbers = [int(path.stem) for path in files if path.stem.isdecimal()]
        is_numbered = len(set(numbers)) == len(files) and not any(map(is_video, files))
        return dict(zip(files, numbers)) if is_numbered else {}
    missing = [str(path) for path in files if path.name not in known]
    if missing:
        raise ParameterError(
            f'The annotations have no image {Path(missing[0]).name}.',
            cause=f'{len(missing)} of {len(files)} files are not in them, videos never are.',
            remedy='Choose the images of the annotations, or leave --annotations out.',
        )
    check_unique([path.name for path in files], 'There are')
    return {path: known[path.name] for path in files}


def infer(args: Namespace) -> int:
    """Run the network on all files; return 1 when some have no result, or not a whole one."""
    options, thresholds = given_options(args, TiledOptions), thresholds_of(args)
    folder = args.output or (None if args.json else Path('results'))
    paths = list(expand(args.files))
    entries: list[dict[str, Any]] = []
    with ExitStack() as stack:
        if folder is not None:
            _check_inputs(folder, paths)
            stack.enter_context(output_folder(folder))
        pipeline: Pipeline[Any] = Pipeline.open(options)
        stack.callback(pipeline.close)
        for line in (*pipeline.log_lines, *_ignored(args, pipeline)):
            print(line, file=sys.stderr)
        coco = open_coco_file(args, pipeline, paths)
        # Written also after an interrupt.
        if folder is not None:
            stack.callback(_write_json, folder / 'results.json', entries)
        if coco is not None:
            stack.callback(coco.write)
        watched = sys.stderr.isatty()
        bar = stack.enter_context(
            tqdm(
                paths,
                unit=' files',
                mininterval=0.1 if watched else 10.0,
                disable=len(paths) < (2 if watched else MANY_FILES),
            )
        )
        for path, name in zip(bar, _output_names(paths)):
            annotated = folder and folder / name
            try:
                entries.extend(
                    _entries_of(path, pipeline, thresholds, args.max_image_pixels, annotated, coco)
                )
            except (BadFrameError, TensorMismatchError) as error:
                entries.append({'file': str(path), 'error': error.problem})
                tqdm.write(printable(f'{path}: {error}', lines=True), file=sys.stderr)
    if args.json:
        print(json.dumps(entries, indent=1))
    failed, nonfinite = (sum(key in each for each in entries) for key in ('error', 'non_finite'))
    found = [each['detections'] for each in entries if 'detections' in each]
    counts = [f'files: {len(paths) - failed}']
    counts += [f'detections: {sum(map(len, found))}'] if found else []
    counts += [f'failed: {failed}'] if failed else []
    counts += [f'results of NaN or infinite outputs: {nonfinite}'] if nonfinite else []
    summary = ', '.join(counts) + (f'; see {folder}' if folder else '')
    print(printable(summary), file=sys.stderr)
    return 1 if failed or nonfinite else 0


def _ignored(args: Namespace, pipeline: Pipeline[Any]) -> list[str]:
    """Return a line about the thresholds that are given to a network of no objects."""
    names = changed_options(given_options(args, ThresholdOptions), IGNORED)
    if not names or pipeline.decoder.task in OBJECT_TASKS or pipeline.decoder.finds_objects:
        return []
    return [f'Ignored by the decoder {pipeline.decoder.name}: {", ".join(names)}.']


def _check_inputs(folder: Path, inputs: Sequence[Path]) -> None:
    for path in inputs:
        if path.resolve().parent == folder.resolve():
            raise ParameterError(
                f'The output folder {folder} contains the input {path}.',
                cause='Annotated files have the names of the inputs and would overwrite them.',
                remedy='Choose another folder with --output.',
            )


def _output_names(paths: Sequence[Path]) -> Iterator[str]:
    """Yield names of annotated files: those of the inputs, with a number where one is taken."""
    taken = set[str]()
    for path in paths:
        suffix = '.mp4' if is_video(path) else path.suffix.lower()
        suffix = suffix if suffix in ('.mp4', *media.COLOR_SUFFIXES) else '.png'
        numbered = (f'{path.stem}_{number}' for number in count(2))
        stem = next(each for each in chain([path.stem], numbered) if each.lower() not in taken)
        taken.add(stem.lower())
        yield stem + suffix


def _entries_of(
    path: Path,
    pipeline: Pipeline[Any],
    thresholds: Thresholds,
    max_pixels: int,
    annotated: Path | None,
    coco: CocoFile | None,
) -> Iterator[dict[str, Any]]:
    """Yield the entries of one file, and write it with its results to `annotated`."""
    if path.suffix in FILES:
        result, flags = _run(pipeline, read_arrays(path), thresholds)
        image_id = {'image_id': coco.add(path, result)} if coco else {}
        data = result.as_json(annotated and _array_writer(annotated))
        yield {'file': str(path), **image_id, **flags, **data}
        return
    of_video = is_video(path)
    with ExitStack() as stack:
        writer: media.VideoWriter | None = None
        for index, (pixels, rate_hz) in enumerate(
            media.read_video(path, max_pixels)
            if of_video
            else [(media.read_picture(path, max_pixels), 0.0)]
        ):
            height, width = pixels.shape[:2]
            result, flags = _run(pipeline, Frame.from_pixels(pixels), thresholds)
            image_id = {'image_id': coco.add(path, result)} if coco else {}
            entry = {'file': str(path), **({'frame': index} if of_video else {}), **image_id}
            number = f'_{index:06}' if of_video else ''
            data = result.as_json(annotated and _array_writer(annotated, number))
            yield {**entry, 'width': width, 'height': height, **flags, **data}
            if annotated is None:
                continue
            draw(pixels, result)
            if not of_video:
                media.write_picture(annotated, pixels)
                continue
            if writer is None:
                writer = media.VideoWriter(annotated, rate_hz, (width, height))
                stack.callback(writer.release)
            writer.write(pixels)


def _run(
    pipeline: Pipeline[Any], inputs: Frame | Arrays, thresholds: Thresholds
) -> tuple[Any, dict[str, bool]]:
    """Return the result, and what an entry has where outputs had NaN or infinite values."""
    before = pipeline.nonfinite_count
    result = pipeline.infer(inputs, thresholds)
    return result, {'non_finite': True} if pipeline.nonfinite_count > before else {}


def _array_writer(annotated: Path, number: str = '') -> Callable[..., str]:
    """Return the function that writes an array or a picture, and returns the name of the file."""

    def write(name: str, values: np.ndarray | Arrays) -> str:
        path = annotated.with_name(f'{annotated.stem}{number}_{name}')
        if isinstance(values, Mapping):
            media.write_npz(path, values)
        else:
            media.write_picture(path, values)
        return path.name

    return write


def _write_json(path: Path, entries: Sequence[dict[str, Any]]) -> None:
    write_text(path, json.dumps(entries, indent=1) + '\n')
