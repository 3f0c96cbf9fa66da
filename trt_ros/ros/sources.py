"""Picture sources: image files, videos and V4L2 cameras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import glob
from pathlib import Path
import re

import cv2
import numpy as np

from trt_ros.errors import BadFrameError, ParameterError, printable
from trt_ros.media import open_video, read_picture

PICTURE_SUFFIXES = frozenset(
    {'.bmp', '.jpeg', '.jpg', '.pgm', '.png', '.pnm', '.ppm', '.tif', '.tiff', '.webp'}
)


@dataclass(frozen=True)
class PictureSource:
    """
    A finite or endless sequence of pictures; the caller of open_source() closes it.

    :param description: for the log.
    :param own_rate_hz: frame rate of a video; 0.0 where there is none.
    :param read: returns the next picture, (H, W, 3) uint8 BGR; None after the last.
        Raises BadFrameError when one cannot be read; the next call continues after it.
    :param rewind: returns to the first picture.
    :param close: releases the file or device.
    """

    description: str
    own_rate_hz: float
    read: Callable[[], np.ndarray | None]
    rewind: Callable[[], None]
    close: Callable[[], None]


def open_source(source: str, camera_wh: Sequence[int] = ()) -> PictureSource:
    """
    Open a folder, a file, a glob pattern, a video or a V4L2 camera.

    :param camera_wh: requested width and height of a camera; empty for its default.
    :raises ParameterError: when the source does not exist or cannot be opened.
    """
    if not source:
        raise ParameterError(
            'The parameter source is empty.',
            remedy='Set source to a folder, a file, a pattern such as '
            'photos/*.jpg, a video, or a camera such as /dev/video0.',
        )
    if source.isdigit() or source.startswith('/dev/video'):
        return _camera(source, camera_wh)
    path = Path(source).expanduser()
    if path.is_dir():
        return _files(source, [each for each in path.iterdir() if is_picture(each)])
    if path.is_file():
        return _files(source, [path]) if is_picture(path) else _video(path)
    if glob.has_magic(source):
        found = (Path(name) for name in glob.glob(str(path), recursive=True))
        return _files(source, [each for each in found if is_picture(each)])
    raise ParameterError(
        f'Source {source!r} does not exist.',
        cause='' if path.is_absolute() else f'The working directory is {Path.cwd()}.',
        remedy='Correct the path in source.',
    )


def is_picture(path: Path) -> bool:
    """Return whether a file has a picture suffix."""
    return path.suffix.lower() in PICTURE_SUFFIXES


def _files(source: str, paths: list[Path]) -> PictureSource:
    if not paths:
        raise ParameterError(
            f'Source {source!r} contains no pictures.',
            remedy=f'Provide files that end in {", ".join(sorted(PICTURE_SUFFIXES))}.',
        )
    # Natural order: picture 2 before picture 10.
    paths.sort(
        key=lambda path: [
            (part.isdigit(), int(part) if part.isdigit() else 0, part)
            for part in re.split(r'(\d+)', str(path))
        ]
    )
    left = list(reversed(paths))

    def read() -> np.ndarray | None:
        if not left:
            return None
        return read_picture(left.pop())

    def rewind() -> None:
        left[:] = reversed(paths)

    count = f'{len(paths)} picture{"s" if len(paths) > 1 else ""} in {source}'
    return PictureSource(count, 0.0, read, rewind, lambda: None)


def _video(path: Path) -> PictureSource:
    try:
        capture = open_video(path)
    except BadFrameError as error:
        raise ParameterError(
            error.problem,
            cause=f'Its suffix is not that of a picture. {error.cause}',
            remedy='Provide an MP4 or AVI video, or a picture that ends in '
            f'{", ".join(sorted(PICTURE_SUFFIXES))}.',
        ) from error
    rate_hz = capture.get(cv2.CAP_PROP_FPS)

    def rewind() -> None:
        # Seeking is not exact in every format.
        capture.open(str(path))

    return PictureSource(
        f'video {path}',
        rate_hz if 0 < rate_hz < 1000 else 0.0,
        lambda: capture.read()[1],
        rewind,
        capture.release,
    )


def _camera(source: str, camera_wh: Sequence[int]) -> PictureSource:
    capture = cv2.VideoCapture(
        int(source) if source.isdigit() else printable(source), cv2.CAP_V4L2
    )
    if not capture.isOpened():
        raise ParameterError(
            f'Camera {source} cannot be opened.',
            remedy='Check that it is plugged in (v4l2-ctl --list-devices), that no other program '
            'uses it, and that you are in the group video.',
        )
    # Queued images would be outdated.
    capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
    if camera_wh:
        capture.set(cv2.CAP_PROP_FRAME_WIDTH, camera_wh[0])
        capture.set(cv2.CAP_PROP_FRAME_HEIGHT, camera_wh[1])
        actual_wh = (
            int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)),
            int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT)),
        )
        if actual_wh != tuple(camera_wh):
            capture.release()
            raise ParameterError(
                f'Camera {source} does not support {camera_wh[0]}x{camera_wh[1]}.',
                cause=f'The nearest supported size is {actual_wh[0]}x{actual_wh[1]}.',
                remedy='Set camera_size to that size, or leave it empty.',
            )

    def read() -> np.ndarray:
        is_read, pixels = capture.read()
        if not is_read:
            raise BadFrameError('no image', f'Camera {source} returned no image.')
        return pixels

    return PictureSource(f'camera {source}', 0.0, read, lambda: None, capture.release)
