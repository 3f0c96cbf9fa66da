"""A file of results in COCO format, and its flags."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trt_ros.cli._pictures import VIDEO_SUFFIXES
from trt_ros.errors import ParameterError
from trt_ros.regular_file import check_output_file

if TYPE_CHECKING:
    from trt_ros.results.base import Result
    from trt_ros.runtime.pipeline import Pipeline


def add_coco_flags(parser: ArgumentParser) -> None:
    """Declare the options of COCO results."""
    parser.add_argument(
        '--coco', type=Path, metavar='FILE.json', help='also write results in COCO format'
    )
    parser.add_argument(
        '--annotations',
        type=Path,
        metavar='FILE.json',
        help='ground truth in COCO format whose image and category ids the results of --coco get',
    )


def open_coco_file(
    args: Namespace, pipeline: Pipeline[Any], files: Sequence[Path]
) -> CocoFile | None:
    """
    Return the file of --coco; None without the flag.

    :raises ParameterError: see CocoFile; also for --annotations alone.
    """
    if args.coco:
        return CocoFile(args.coco, args.annotations, pipeline, files)
    if args.annotations:
        raise ParameterError(
            '--annotations has no effect without --coco.', remedy='Add --coco FILE.json.'
        )
    return None


class CocoFile:
    """
    A file of results in COCO format, written at the end.

    :param annotations: ground truth that states the ids; None: none.
    :param files: images and videos in their order.
    :raises ParameterError: when the task has no such format, the file cannot be written, or the
        annotations lack a file or all classes.
    """

    def __init__(
        self, path: Path, annotations: Path | None, pipeline: Pipeline[Any], files: Sequence[Path]
    ) -> None:
        from trt_ros.labelling.coco import check_has_format
        from trt_ros.results.coco import CocoIds, category_ids

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
        """
        Write the file.

        :raises ParameterError: when that is not possible.
        """
        try:
            self._path.write_text(json.dumps(self._entries))
        except OSError as error:
            raise ParameterError(
                f'The file {self._path} cannot be written.',
                cause=error.strerror or '',
                remedy='Choose another file with --coco.',
            ) from error


def _image_ids(files: Sequence[Path], known: Mapping[str, int] | None) -> dict[Path, int]:
    """Return the image ids of the files; empty where images are counted."""
    if known is None:
        numbers = [int(path.stem) for path in files if path.stem.isdecimal()]
        is_numbered = len(set(numbers)) == len(files) and not any(map(_is_video, files))
        return dict(zip(files, numbers)) if is_numbered else {}
    missing = [str(path) for path in files if path.name not in known]
    if missing:
        raise ParameterError(
            f'The annotations have no image {Path(missing[0]).name}.',
            cause=f'{len(missing)} of {len(files)} files are not in them, videos never are.',
            remedy='Choose the images of the annotations, or leave --annotations out.',
        )
    return {path: known[path.name] for path in files}


def _is_video(path: Path) -> bool:
    return path.suffix.lower() in VIDEO_SUFFIXES
