"""Pictures, frames of videos and images of recordings, of files and folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trt_ros.errors import BadFrameError, ParameterError

if TYPE_CHECKING:
    from trt_ros.vision.frame import Frame

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp')  # OpenCV writes all.
VIDEO_SUFFIXES = ('.mp4', '.avi', '.mkv', '.mov', '.webm', '.m4v', '.mpg', '.mpeg')


def expand(files: Sequence[Path]) -> Iterator[Path]:
    """Yield files; of a folder its images and videos by name, or raise ParameterError."""
    for path in files:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(
            each
            for each in path.iterdir()
            if each.is_file() and each.suffix.lower() in IMAGE_SUFFIXES + VIDEO_SUFFIXES
        )
        if not inside:
            raise ParameterError(
                f'The folder {path} has no images and no videos.',
                remedy=f'Use files of {", ".join(IMAGE_SUFFIXES + VIDEO_SUFFIXES)}.',
            )
        yield from inside


def raise_bad(error: BadFrameError) -> None:
    """Refuse an image that cannot be read."""
    raise error


def frames(
    files: Sequence[Path],
    max_pixels: int,
    on_bad: Callable[[BadFrameError], None] = raise_bad,
    topics: Sequence[str] = (),
) -> Iterator[tuple[str, Frame]]:
    """
    Yield every picture, video frame and image of a recording with its name, such as 'a.jpg'.

    :param on_bad: called for what is neither an image nor a video, and for a damaged recording,
        of which the rest is left out.
    :raises ParameterError: when a folder has no images, or a recording cannot be opened.
    """
    from trt_ros.media import read_picture, read_video
    from trt_ros.recording import is_recording
    from trt_ros.vision.frame import Frame

    for source in files:
        if is_recording(source):
            from trt_ros.labelling.images import recorded_frames

            try:
                yield from recorded_frames(source, max_pixels, on_bad, topics)
            except BadFrameError as error:
                on_bad(error)
            continue
        for path in expand([source]):
            try:
                if path.suffix.lower() in VIDEO_SUFFIXES:
                    for index, (pixels, _) in enumerate(read_video(path, max_pixels)):
                        yield f'{path}, frame {index}', Frame.from_pixels(pixels)
                else:
                    yield str(path), Frame.from_pixels(read_picture(path, max_pixels))
            except BadFrameError as error:
                on_bad(error)


def count_frames(files: Sequence[Path], max_pixels: int, topics: Sequence[str] = ()) -> int:
    """Count what `frames` yields or leaves out; for videos, what their container declares."""
    import cv2

    from trt_ros.media import open_video
    from trt_ros.recording import is_recording

    count = 0
    for source in files:
        if is_recording(source):
            from trt_ros.labelling.images import count_images

            count += count_images(source, topics)
            continue
        for path in expand([source]):
            if path.suffix.lower() not in VIDEO_SUFFIXES:
                count += 1
                continue
            try:
                video = open_video(path, max_pixels)
            except BadFrameError:
                continue
            try:
                count += max(1, int(video.get(cv2.CAP_PROP_FRAME_COUNT)))
            finally:
                video.release()
    return count


def fingerprint(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of each file, by which changes are noticed."""
    found = []
    for source in files:
        for path in sorted(source.iterdir()) if source.is_dir() else [source]:
            status = path.stat()
            found.append((str(path.resolve()), status.st_size, status.st_mtime_ns))
    return found
