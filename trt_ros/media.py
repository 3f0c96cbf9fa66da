"""Picture and video files. File names that crash OpenCV are refused before it is called."""

from collections.abc import Iterator
from functools import cache
import logging
import os
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import cv2
import numpy as np

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.regular_file import check_output_file, open_regular, read_regular, writing_whole
from trt_ros.tensors import Arrays
from trt_ros.video import is_address, read_stream
from trt_ros.vision.frame import to_color
from trt_ros.vision.picture_header import picture_codec, read_picture_header
from trt_ros.vision.pixel_limit import MAX_IMAGE_PIXELS, TOO_MANY_PIXELS, check_pixels

log = logging.getLogger('trt_ros.media')

#: Of files that hold colors, and of all that are read as pictures, not as videos.
COLOR_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp', '.ppm', '.pnm')
PICTURE_SUFFIXES = (*COLOR_SUFFIXES, '.pgm')
MAX_PICTURE_NBYTES = 1 << 30  # Compressed.
_REMEDY = 'Choose an existing, writable folder.'
_PICTURE_BACKENDS = ('CV_IMAGES', 'CV_MJPEG')  # They decode pictures of any size.
_DARKEST = 15  # Of 255, the highest level of 12 bits in 16.
_START_NBYTES = 1 << 20  # Of a video, which may be a picture: room for the header of a JPEG.


def read_picture(path: Path, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Read a picture as (H, W, 3) uint8 BGR, rotated by its EXIF orientation; or BadFrameError."""
    problem, cause = f'Cannot read {path} as a picture.', ''
    try:
        data = np.frombuffer(read_regular(path, MAX_PICTURE_NBYTES), np.uint8)
        if data.size:
            read_picture_header(data, max_pixels)
            pixels = cv2.imdecode(data, cv2.IMREAD_COLOR)
            if pixels is not None:
                if pixels.max() <= _DARKEST and _has_16_bits(data):
                    _report_dark(path.parent)
                return np.asarray(pixels)
        else:
            cause = 'The file is empty.'
    except OSError as error:
        cause = error.strerror or str(error)
    except cv2.error as error:
        cause = str(error).strip()
    except BadFrameError as error:
        if error.kind == TOO_MANY_PIXELS:
            raise _of_file(error, problem) from error
        cause = error.problem
    raise BadFrameError(
        'unreadable file',
        problem,
        cause=cause,
        remedy='Choose an existing, complete JPEG, PNG, TIFF, WebP, BMP or PNM file.',
    )


def _has_16_bits(data: np.ndarray) -> bool:
    pixels = cv2.imdecode(data, cv2.IMREAD_UNCHANGED)
    return pixels is not None and pixels.dtype == np.uint16 and bool(pixels.any())


@cache
def _report_dark(folder: Path) -> None:
    log.warning(
        'Pictures in %s have 16 bits, but only values below 4096: they are nearly black. If these '
        'are 12 bits, multiply them by 16.',
        folder,
    )


def _of_file(error: BadFrameError, problem: str) -> BadFrameError:
    return BadFrameError(error.kind, problem, cause=error.problem, remedy=error.remedy)


def write_npz(path: Path, arrays: Arrays) -> None:
    """Write arrays by any name, as numpy.load reads them, or raise ParameterError."""
    with writing_whole(path, _REMEDY), ZipFile(path, 'w') as archive:
        for name, array in arrays.items():
            with archive.open(f'{name}.npy', 'w', force_zip64=True) as file:
                np.save(file, array, allow_pickle=False)


def write_picture(path: Path, pixels_bgr: np.ndarray) -> None:
    """Write (H, W, 3) uint8 BGR in the format of the name's suffix, or raise ParameterError."""
    try:
        is_done, data = cv2.imencode(_utf8(path.suffix), pixels_bgr)
    except (cv2.error, UnicodeEncodeError):
        is_done = False
    if not is_done:
        check_picture_path(path)
        raise ParameterError(
            f'Cannot write the picture {path}.',
            cause=f'{pixels_bgr.shape[1]} × {pixels_bgr.shape[0]} pixels of '
            f'{pixels_bgr.dtype} do not fit into the format {path.suffix}.',
            remedy='Choose smaller images, or another format.',
        )
    with writing_whole(path, _REMEDY):
        path.write_bytes(data.tobytes())


def check_picture_path(path: Path) -> None:
    """Raise ParameterError if a picture cannot be written, before a long run."""
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


def open_video(path: Path, max_pixels: int = MAX_IMAGE_PIXELS) -> Any:
    """Return an open cv2.VideoCapture, which the caller releases, or raise BadFrameError."""
    try:
        return _open_video(path, max_pixels)
    except BadFrameError as error:
        raise _of_file(error, f'Cannot read {path} as a video.') from error


def _open_video(path: Path, max_pixels: int) -> Any:
    kind = 'unreadable file'
    try:
        name = _video_name(path)
        with open_regular(path) as file:
            start = np.frombuffer(file.read(_START_NBYTES), np.uint8)
    except UnicodeEncodeError as error:
        raise BadFrameError(kind, 'Its name is not UTF-8.', remedy='Rename the file.') from error
    except OSError as error:
        raise BadFrameError(
            kind, error.strerror or str(error), remedy='Choose a video file.'
        ) from error
    if picture_codec(start[:16].tobytes()):  # Opening a picture decodes it.
        read_picture_header(start, max_pixels, is_whole=False)
    capture = cv2.VideoCapture(name)
    if not capture.isOpened() or capture.getBackendName() in _PICTURE_BACKENDS:
        raise BadFrameError(
            kind, 'OpenCV does not support the format.', remedy='Choose an MP4 or AVI file.'
        )
    width, height = capture.get(cv2.CAP_PROP_FRAME_WIDTH), capture.get(cv2.CAP_PROP_FRAME_HEIGHT)
    check_pixels(int(width), int(height), max_pixels)
    if not capture.read()[0]:
        raise BadFrameError(
            kind,
            'OpenCV decodes none of its pictures.',
            remedy='Convert it to H.264, as with `ffmpeg -i IN -c:v libx264 OUT.mp4`.',
        )
    rewind_video(capture, path)
    return capture


def rewind_video(capture: Any, path: Path) -> None:
    """Open the video `path` again: seeking is not exact in every format."""
    capture.open(_video_name(path))


def read_video(
    path: Path, max_pixels: int = MAX_IMAGE_PIXELS
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield frames, (H, W, 3) uint8 BGR, each with the video's rate in Hz; see open_video()."""
    video = open_video(path, max_pixels)
    try:
        rate_hz = video.get(cv2.CAP_PROP_FPS) or 25.0
        while (found := video.read())[0]:
            yield found[1], rate_hz
    finally:
        video.release()


def read_images(
    source: str | os.PathLike[str], max_image_pixels: int = MAX_IMAGE_PIXELS
) -> Iterator[np.ndarray]:
    """
    Yield the frames of a video or a stream, a picture, or those of a folder in order of name.

    A stream is given by its address, as in rtsp://camera/main, and needs the package av.

    :param max_image_pixels: larger pictures and videos are refused before they are decoded.
    :returns: (H, W, 3) uint8 BGR each.
    :raises BadFrameError: when a file is neither, or a folder has no picture.
    """
    if is_address(str(source)):
        for frame in read_stream(str(source), max_image_pixels):
            yield np.array(to_color(frame, 'bgr'))
        return
    path = Path(source)
    if path.is_dir():
        pictures = list(filter(_is_picture, sorted(path.iterdir())))
        if not pictures:
            problem = f'The folder {path} has no picture.'
            raise BadFrameError('no pictures', problem, remedy='Choose another one, or a file.')
        for each in pictures:
            yield read_picture(each, max_image_pixels)
    elif _is_picture(path):
        yield read_picture(path, max_image_pixels)
    else:
        yield from (pixels for pixels, _ in read_video(path, max_image_pixels))


def _is_picture(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return bool(picture_codec(file.read(16)))
    except OSError:
        return False


class VideoWriter:
    """
    An MP4 file that OpenCV writes. The caller releases it.

    :param rate_hz: rates outside 0.01 to 60000, also 0.0 for an unknown one, are written as 10.
    """

    def __init__(self, path: Path, rate_hz: float, image_wh: tuple[int, int]) -> None:
        self._problem = f'Cannot write the video {path}.'
        # Equals cv2.VideoWriter_fourcc, which the stubs lack.
        code = int.from_bytes(b'mp4v', 'little')
        try:
            self._name = _video_name(path)
        except UnicodeEncodeError as error:
            raise ParameterError(
                self._problem, cause='Its name is not UTF-8.', remedy='Rename the original.'
            ) from error
        if not 0.01 <= rate_hz <= 60_000:  # The encoder refuses 0.001 and 90,000.
            rate_hz = 10.0
        self._writer, self._count = cv2.VideoWriter(self._name, code, rate_hz, image_wh), 0
        if not self._writer.isOpened():
            raise ParameterError(self._problem, remedy='Choose another folder with --output.')

    def write(self, pixels_bgr: np.ndarray) -> None:
        """Append a picture of the size of the video, (H, W, 3) uint8 BGR."""
        self._writer.write(pixels_bgr)
        self._count += 1

    def release(self) -> None:
        """Finish the file, or raise ParameterError: OpenCV itself is silent about a full disk."""
        self._writer.release()
        count = int(cv2.VideoCapture(self._name).get(cv2.CAP_PROP_FRAME_COUNT))
        if count < self._count:
            raise ParameterError(
                self._problem,
                cause=f'The file has {count} of its {self._count} pictures: the disk may be full.',
                remedy='Free space, or choose another folder with --output.',
            )


def _video_name(path: Path) -> str:
    """Return the name of a video for OpenCV, which takes 12:30.mp4 for an address."""
    return _utf8(str(path.absolute()))


def _utf8(text: str) -> str:
    """Return UTF-8 text, or raise UnicodeEncodeError: OpenCV ends the process with SIGSEGV."""
    text.encode()
    return text
