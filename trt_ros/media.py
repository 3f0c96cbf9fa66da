"""Picture and video files. File names that crash OpenCV are refused before it is called."""

from collections.abc import Iterator
from functools import cache
import logging
import os
from pathlib import Path
import struct
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
_TO_H264 = 'as with `ffmpeg -i IN -c:v libx264 OUT.mp4`.'
_EBML, _SEGMENT = b'\x1aE\xdf\xa3', b'\x18S\x80g'  # Of Matroska and WebM.
_UNDECODED = 1000  # Packets to try behind one that OpenCV cannot decode.
_DARKEST = 15  # Of 255, the highest level of 12 bits in 16.
_START_NBYTES = 1 << 20  # Of a video, which may be a picture: room for the header of a JPEG.


def read_picture(path: Path, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Read a picture as (H, W, 3) uint8 BGR, rotated by its EXIF orientation; or BadFrameError."""
    problem, cause = f'Cannot read {path} as a picture.', ''
    try:
        data = np.frombuffer(read_regular(path, MAX_PICTURE_NBYTES), np.uint8)
        if data.size:
            header = read_picture_header(data, max_pixels)
            is_webp = header.codec == 'webp'  # OpenCV 4 ignores its orientation anyway.
            flags = cv2.IMREAD_COLOR | (is_webp and cv2.IMREAD_IGNORE_ORIENTATION)
            pixels = cv2.imdecode(data, flags)
            if pixels is not None:
                if pixels.max() <= _DARKEST and _has_16_bits(data):
                    _report_dark(path.parent)
                return _turned(np.asarray(pixels), header.orientation)
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


def _turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Return a picture turned by an EXIF orientation, 1 to 8."""
    if orientation == 1:
        return pixels
    if orientation > 4:
        pixels = pixels.swapaxes(0, 1)
    down, across = ((1, 1), (1, -1), (-1, -1), (-1, 1))[(orientation - 1) % 4]
    return np.ascontiguousarray(pixels[::down, ::across])


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
    # OpenCV ends the process with SIGSEGV for a text that is no UTF-8.
    if not path.suffix.isascii() or not cv2.haveImageWriter(f'x{path.suffix}'):
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
            kind, 'OpenCV decodes none of its pictures.', remedy=f'Convert it to H.264, {_TO_H264}'
        )
    return capture


def read_frames(capture: Any, path: Path) -> Iterator[np.ndarray]:
    """
    Yield the frames of an open video from its start, (H, W, 3) uint8 BGR.

    :raises BadFrameError: behind the last frame before damage, or where the file was cut off.
    """
    capture.open(_video_name(path))  # Seeking is not exact in every format.
    count = 0
    while (found := capture.read())[0]:
        yield found[1]
        count += 1
    if any(capture.grab() for _ in range(_UNDECODED)):
        cause = 'OpenCV cannot decode what follows.'
    elif is_cut_off(path):
        cause = 'The file is shorter than its header says.'
    else:
        return
    raise BadFrameError(
        'damaged video',
        f'The video {path} is damaged: {count} of its pictures were read.',
        cause=cause,
        remedy=f'Copy it again, or convert what is left of it, {_TO_H264}',
    )


def is_cut_off(path: Path) -> bool:
    """Return whether an MP4, Matroska or AVI file is shorter than the lengths in it."""
    with open_regular(path) as file:
        nbytes, at = file.seek(0, os.SEEK_END), 0

        def read(at: int) -> bytes:
            file.seek(at)
            return file.read(16).ljust(16, b'\0')

        start = read(0)
        if start[:4] == b'RIFF':
            return nbytes < 8 + int.from_bytes(start[4:8], 'little') < 1 << 32
        if start[:4] == _EBML:
            at = 4 + sum(_matroska_number(start[4:]))
            segment = read(min(at, nbytes))
            size, length = _matroska_number(segment[4:])
            is_known = segment[:4] == _SEGMENT and size < (1 << 7 * length) - 1
            return is_known and at + 4 + length + size > nbytes
        while nbytes - at >= 8:
            size, kind, large = struct.unpack('>I4sQ', read(at))
            size = large if size == 1 else size
            if at + size > nbytes:
                return kind in (b'mdat', b'moov', b'moof')
            at += size or nbytes  # 0 is up to the end.
    return False


def _matroska_number(data: bytes) -> tuple[int, int]:
    """Return a number, and how many bytes it takes."""
    length = 9 - data[0].bit_length()
    return int.from_bytes(data[:length], 'big') & (1 << 7 * length) - 1, length


def read_video(
    path: Path, max_pixels: int = MAX_IMAGE_PIXELS
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield frames, (H, W, 3) uint8 BGR, each with the video's rate in Hz; see open_video()."""
    video = open_video(path, max_pixels)
    try:
        rate_hz = video.get(cv2.CAP_PROP_FPS) or 25.0
        for pixels in read_frames(video, path):
            yield pixels, rate_hz
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
    :raises BadFrameError: when a file is neither, or a folder has no picture; behind the last
        frame that can be read of a damaged video.
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
    :param image_wh: size of the video, at least 2 × 2; pictures of other sizes are resized.
    """

    def __init__(self, path: Path, rate_hz: float, image_wh: tuple[int, int]) -> None:
        width, height = image_wh
        self._wh = max(2, width), max(2, height)
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
        self._writer, self._count = cv2.VideoWriter(self._name, code, rate_hz, self._wh), 0
        if not self._writer.isOpened():
            raise ParameterError(
                self._problem,
                cause=f'OpenCV opens no file of {width} × {height} pixels there.',
                remedy='Choose another folder with --output.',
            )

    def write(self, pixels_bgr: np.ndarray) -> None:
        """Append a picture, (H, W, 3) uint8 BGR."""
        if pixels_bgr.shape[1::-1] != self._wh:
            pixels_bgr = np.asarray(cv2.resize(pixels_bgr, self._wh))
        self._writer.write(pixels_bgr)
        self._count += 1

    def release(self) -> None:
        """Finish the file, or raise ParameterError: OpenCV itself is silent about a full disk."""
        self._writer.release()
        count = int(cv2.VideoCapture(self._name).get(cv2.CAP_PROP_FRAME_COUNT))
        if count < self._count:
            Path(self._name).unlink(missing_ok=True)
            raise ParameterError(
                self._problem,
                cause=f'The file had {count} of its {self._count} pictures: the disk may be full.',
                remedy='Free space, or choose another folder with --output.',
            )


def _video_name(path: Path) -> str:
    """Return the name of a video for OpenCV, which takes 12:30.mp4 for an address."""
    return _utf8(str(path.absolute()))


def _utf8(text: str) -> str:
    """Return UTF-8 text, or raise UnicodeEncodeError: OpenCV ends the process with SIGSEGV."""
    text.encode()
    return text
