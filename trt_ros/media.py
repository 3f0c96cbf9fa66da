"""Picture and video files. File names that crash OpenCV are refused before it is called."""

from __future__ import annotations

from collections.abc import Iterator
import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.regular_file import check_output_file, read_regular

MAX_PICTURE_NBYTES = 1 << 30  # Compressed; OpenCV limits the number of pixels.


def read_picture(path: Path) -> np.ndarray:
    """
    Read a picture as (H, W, 3) uint8 BGR, rotated by its EXIF orientation.

    :raises BadFrameError: when the file cannot be read, or OpenCV cannot decode it.
    """
    try:
        data = np.frombuffer(read_regular(path, MAX_PICTURE_NBYTES), np.uint8)
        pixels = cv2.imdecode(data, cv2.IMREAD_COLOR) if data.size else None
        cause = '' if data.size else 'The file is empty.'
    except OSError as error:
        pixels, cause = None, error.strerror or str(error)
    except cv2.error as error:  # For example more pixels than allowed.
        pixels, cause = None, str(error).strip()
    if pixels is None:
        raise BadFrameError(
            'unreadable file',
            f'Cannot read {path} as a picture.',
            cause=cause,
            remedy='Choose an existing, complete JPEG or PNG file.',
        )
    return np.asarray(pixels)


def write_picture(path: Path, pixels_bgr: np.ndarray, *, jpeg_quality: int = 95) -> None:
    """
    Write (H, W, 3) uint8 BGR in the format of the file name's suffix.

    :raises ParameterError: when the format is not supported, or the file cannot be written.
    """
    problem = f'Cannot write the picture {path}.'
    try:
        is_done, data = cv2.imencode(
            _utf8(path.suffix), pixels_bgr, [cv2.IMWRITE_JPEG_QUALITY, jpeg_quality]
        )
    except (cv2.error, UnicodeEncodeError):
        is_done = False
    if not is_done:
        check_picture_path(path)
        raise ParameterError(
            problem,
            cause=f'{pixels_bgr.shape[1]} × {pixels_bgr.shape[0]} pixels of '
            f'{pixels_bgr.dtype} do not fit into the format {path.suffix}.',
            remedy='Choose smaller images, or another format.',
        )
    try:
        path.write_bytes(data.tobytes())
    except OSError as error:
        raise ParameterError(
            problem,
            cause=error.strerror or str(error),
            remedy='Choose an existing, writable folder.',
        ) from error


def check_picture_path(path: Path) -> None:
    """
    Check that a picture can be written, before a long run that writes it at the end.

    :raises ParameterError: when it cannot, or the format is not supported.
    """
    try:
        has_writer = bool(path.suffix) and cv2.haveImageWriter(_utf8('x' + path.suffix))
    except UnicodeEncodeError:
        has_writer = False
    if not has_writer:
        raise ParameterError(
            f'Cannot write the picture {path}.',
            cause=f'Unsupported picture format {path.suffix!r}.',
            remedy='Choose a file name that ends in .png or .jpg.',
        )
    check_output_file(path)


def open_video(path: Path) -> Any:
    """
    Open a video file with OpenCV.

    :returns: an open cv2.VideoCapture; the caller releases it.
    :raises BadFrameError: when OpenCV cannot read it, or its name is not UTF-8.
    """
    kind, problem = 'unreadable file', f'Cannot read {path} as a video.'
    if not path.is_file():
        raise BadFrameError(
            kind, problem, cause='It is not a regular file.', remedy='Choose a video file.'
        )
    try:
        capture = cv2.VideoCapture(_utf8(str(path)))
    except UnicodeEncodeError as error:
        raise BadFrameError(
            kind, problem, cause='Its name is not UTF-8.', remedy='Rename the file.'
        ) from error
    if not capture.isOpened():
        raise BadFrameError(
            kind,
            problem,
            cause='OpenCV does not support the format.',
            remedy='Choose an MP4 or AVI file.',
        )
    return capture


def read_video(path: Path) -> Iterator[tuple[np.ndarray, float]]:
    """
    Yield frames, (H, W, 3) uint8 BGR, each with the video's rate in Hz.

    :raises BadFrameError: when OpenCV cannot read the file.
    """
    video = open_video(path)
    try:
        rate_hz = video.get(cv2.CAP_PROP_FPS) or 25.0
        while True:
            is_there, pixels = video.read()
            if not is_there:
                return
            yield pixels, rate_hz
    finally:
        video.release()


def read_images(source: str | os.PathLike[str]) -> Iterator[np.ndarray]:
    """
    Yield the frames of a video, a picture, or the pictures of a folder in order of name.

    :returns: (H, W, 3) uint8 BGR each.
    :raises BadFrameError: when a file is neither.
    """
    path = Path(source)
    if path.is_dir():
        yield from map(read_picture, filter(_is_picture, sorted(path.iterdir())))
    elif _is_picture(path):
        yield read_picture(path)
    else:
        yield from (pixels for pixels, _ in read_video(path))


def _is_picture(path: Path) -> bool:
    try:
        return path.is_file() and bool(cv2.haveImageReader(_utf8(str(path))))
    except UnicodeEncodeError:
        return True  # read_picture can read it.


def open_video_writer(path: Path, rate_hz: float, image_wh: tuple[int, int]) -> Any:
    """
    Create an MP4 file with OpenCV.

    :returns: an open cv2.VideoWriter; the caller releases it.
    :raises ParameterError: when it cannot be written, or its name is not UTF-8.
    """
    code = int.from_bytes(
        b'mp4v', 'little'
    )  # Equals cv2.VideoWriter_fourcc, which the stubs lack.
    try:
        writer = cv2.VideoWriter(_utf8(str(path)), code, rate_hz, image_wh)
    except UnicodeEncodeError as error:
        raise ParameterError(
            f'Cannot write the video {path}.',
            cause='Its name is not UTF-8.',
            remedy='Rename the original.',
        ) from error
    if not writer.isOpened():
        raise ParameterError(
            f'Cannot write the video {path}.', remedy='Choose another folder with --output.'
        )
    return writer


def _utf8(text: str) -> str:
    """
    Check that a string is UTF-8; otherwise OpenCV ends the process with SIGSEGV.

    :raises UnicodeEncodeError: when it is not.
    """
    text.encode()
    return text
