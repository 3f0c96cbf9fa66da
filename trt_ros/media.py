"""Pictures and videos in files. OpenCV never sees a file name that would crash it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.regular_file import read_regular

MAX_PICTURE_NBYTES = 1 << 30  # Of a file, compressed; OpenCV has a limit of its own for pixels.


def read_picture(path: Path) -> np.ndarray:
    """
    Read a picture as (H, W, 3) uint8 BGR, turned upright as its EXIF says.

    :raises BadFrameError: when the file cannot be read, or is no picture that OpenCV can decode.
    """
    try:
        data = np.frombuffer(read_regular(path, MAX_PICTURE_NBYTES), np.uint8)
        pixels = cv2.imdecode(data, cv2.IMREAD_COLOR) if data.size else None
        cause = '' if data.size else 'The file is empty.'
    except OSError as error:
        pixels, cause = None, error.strerror or str(error)
    except cv2.error as error:  # Such as more pixels than it allows.
        pixels, cause = None, str(error).strip()
    if pixels is None:
        raise BadFrameError(
            'unreadable file',
            f'{path} cannot be read as a picture.',
            cause=cause,
            remedy='Give a JPEG or PNG file that exists and is complete.',
        )
    return np.asarray(pixels)


def write_picture(path: Path, pixels_bgr: np.ndarray, *, jpeg_quality: int = 95) -> None:
    """
    Write (H, W, 3) uint8 BGR in the format of the name's suffix.

    :raises ParameterError: when there is no such format, or the file cannot be written.
    """
    problem = f'The picture cannot be written to {path}.'
    try:
        is_done, data = cv2.imencode(
            _utf8(path.suffix), pixels_bgr, [cv2.IMWRITE_JPEG_QUALITY, jpeg_quality]
        )
    except (cv2.error, UnicodeEncodeError):
        is_done = False
    if not is_done:
        raise ParameterError(
            problem,
            cause=f'{path.suffix!r} is no suffix of a picture format.',
            remedy='Give a name that ends in .png or .jpg.',
        )
    try:
        path.write_bytes(data.tobytes())
    except OSError as error:
        raise ParameterError(
            problem,
            cause=error.strerror or str(error),
            remedy='Give a name in a folder that exists and can be written.',
        ) from error


def check_picture_path(path: Path) -> None:
    """
    Check what can be checked before a long run whose picture is written last.

    :raises ParameterError: when there is no such format, or no such folder.
    """
    problem = f'The picture cannot be written to {path}.'
    if not path.suffix or not cv2.haveImageWriter('x' + path.suffix):
        raise ParameterError(
            problem,
            cause=f'{path.suffix!r} is no suffix of a picture format.',
            remedy='Give a name that ends in .png or .jpg.',
        )
    if not path.parent.is_dir():
        raise ParameterError(
            problem,
            cause=f'There is no folder {path.parent}.',
            remedy='Give a name in a folder that exists and can be written.',
        )


def open_video(path: Path) -> Any:
    """
    Open a video file with OpenCV.

    :returns: an open cv2.VideoCapture, the caller's to release.
    :raises BadFrameError: when OpenCV cannot read it, or its name is not UTF-8.
    """
    kind, problem = 'unreadable file', f'{path} cannot be read as a video.'
    if not path.is_file():
        raise BadFrameError(
            kind, problem, cause='It is not a regular file.', remedy='Give a video file.'
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
            cause='OpenCV does not know the format.',
            remedy='Give an MP4 or AVI file.',
        )
    return capture


def open_video_writer(path: Path, rate_hz: float, image_wh: tuple[int, int]) -> Any:
    """
    Create an MP4 file with OpenCV.

    :returns: an open cv2.VideoWriter, the caller's to release.
    :raises ParameterError: when it cannot be written, or its name is not UTF-8.
    """
    code = int.from_bytes(b'mp4v', 'little')  # As cv2.VideoWriter_fourcc, which stubs lack.
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
            f'Cannot write the video {path}.', remedy='Give another folder with --output.'
        )
    return writer


def _utf8(text: str) -> str:
    """
    Check that OpenCV can take a string: one that is not UTF-8 ends the process with SIGSEGV.

    :raises UnicodeEncodeError: when it cannot.
    """
    text.encode()
    return text
