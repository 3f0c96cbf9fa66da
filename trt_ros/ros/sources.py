"""Picture sources: image files, videos, recordings, streams and V4L2 cameras."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
import glob
from pathlib import Path
import threading

import cv2
import numpy as np

from trt_ros.errors import BadFrameError, ParameterError, counted, printable
from trt_ros.media import PICTURE_SUFFIXES, open_video, read_frames, read_picture
from trt_ros.recording import Recording, is_recording, natural_order
from trt_ros.ros.frames import FrameReader, color_topics
from trt_ros.video import IMAGE_TYPES, import_av, is_address, read_stream, without_password
from trt_ros.vision.frame import Frame, to_color
from trt_ros.vision.pixel_limit import MAX_IMAGE_PIXELS, TOO_MANY_PIXELS
from trt_ros.vision.video_frame import VideoFrame

SECONDS_TO_REOPEN = 1.0


@dataclass(frozen=True)
class PictureSource:
    """
    A finite or endless sequence of pictures; the caller of open_source() closes it.

    :param description: for the log.
    :param own_rate_hz: frame rate of a video or recording; 0.0 where there is none.
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


def open_source(
    source: str, camera_wh: Sequence[int] = (), max_pixels: int = MAX_IMAGE_PIXELS
) -> PictureSource:
    """Open a folder, file, glob, video, recording (PATH#TOPIC), stream or camera; or raise."""
    if not source:
        raise ParameterError(
            'The parameter source is empty.',
            remedy='Set source to a folder, a file, a pattern such as '
            'photos/*.jpg, a video, a recording, or a camera such as /dev/video0.',
        )
    if source.isdigit() or source.startswith('/dev/video'):
        return _camera(source, camera_wh)
    if is_address(source):
        return _stream(source, max_pixels)
    path = Path(source).expanduser()
    recording, _, topic = source.partition('#')
    if not path.exists() and topic:
        path = Path(recording).expanduser()
    if path.exists() and is_recording(path):
        return _recording(path, topic, max_pixels)
    if path.is_dir():
        return _files(source, [each for each in path.iterdir() if is_picture(each)], max_pixels)
    if path.is_file():
        return _files(source, [path], max_pixels) if is_picture(path) else _video(path, max_pixels)
    if glob.has_magic(source):
        found = (Path(name) for name in glob.glob(str(path), recursive=True))
        return _files(source, [each for each in found if is_picture(each)], max_pixels)
    raise ParameterError(
        f'Source {source!r} does not exist.',
        cause='' if path.is_absolute() else f'The working directory is {Path.cwd()}.',
        remedy='Correct the path in source.',
    )


def is_picture(path: Path) -> bool:
    """Return whether a file has a picture suffix."""
    return path.suffix.lower() in PICTURE_SUFFIXES


def _files(source: str, paths: list[Path], max_pixels: int) -> PictureSource:
    if not paths:
        raise ParameterError(
            f'Source {source!r} contains no pictures.',
            remedy=f'Provide files that end in {", ".join(PICTURE_SUFFIXES)}.',
        )
    paths.sort(key=natural_order)
    left = list(reversed(paths))

    def read() -> np.ndarray | None:
        return read_picture(left.pop(), max_pixels) if left else None

    def rewind() -> None:
        left[:] = reversed(paths)

    description = f'{counted(len(paths), "picture")} in {source}'
    return PictureSource(description, 0.0, read, rewind, lambda: None)


def _video(path: Path, max_pixels: int) -> PictureSource:
    try:
        capture = open_video(path, max_pixels)
    except BadFrameError as error:
        if error.kind == TOO_MANY_PIXELS:
            raise ParameterError(error.problem, cause=error.cause, remedy=error.remedy) from error
        raise ParameterError(
            error.problem,
            cause=f'Its suffix is not that of a picture. {error.cause}',
            remedy='Provide an MP4 or AVI video, or a picture that ends in '
            f'{", ".join(PICTURE_SUFFIXES)}.',
        ) from error
    rate_hz = capture.get(cv2.CAP_PROP_FPS)
    frames = read_frames(capture, path)

    def rewind() -> None:
        nonlocal frames
        frames = read_frames(capture, path)

    return PictureSource(
        f'video {path}',
        rate_hz if 0 < rate_hz < 1000 else 0.0,
        lambda: next(frames, None),
        rewind,
        capture.release,
    )


def _recording(path: Path, topic: str, max_pixels: int) -> PictureSource:
    recording = Recording(path)
    try:
        if not topic:
            topic = _only_image_topic(recording)
        recorded = recording.topics.get(topic)
        if recorded is None or recorded.message_type not in IMAGE_TYPES:
            raise ParameterError(
                f'Recording {path} has no images on topic {topic!r}.',
                cause=f'Its image topics are {", ".join(recording.images()) or "none"}.',
                remedy='Correct the topic behind # in source.',
            )
        reader = FrameReader(recorded.message_type, max_pixels)
    except ParameterError:
        recording.close()
        raise
    messages, waiting = recording.messages([topic]), deque[Frame]()

    def read() -> np.ndarray | None:
        for message in messages:
            waiting.extend(frame for _, frame in reader.read(message.data))
            if waiting:
                break
        else:
            waiting.extend(frame for _, frame in reader.flush())
        return np.asarray(to_color(waiting.popleft(), 'bgr')) if waiting else None

    def rewind() -> None:
        nonlocal messages
        messages = recording.messages([topic])

    return PictureSource(
        f'{recorded.count} images on {topic} of recording {path}',
        recording.mean_rate_hz(topic),
        read,
        rewind,
        recording.close,
    )


def _stream(address: str, max_pixels: int) -> PictureSource:
    """Open a stream; what is decoded while a picture is published is not kept."""
    import_av()
    newest, closing = deque[VideoFrame | BadFrameError](maxlen=1), threading.Event()
    has_come = threading.Event()

    def run() -> None:
        while not closing.is_set():
            try:
                for frame in read_stream(address, max_pixels):
                    newest.append(frame)
                    has_come.set()
                    if closing.is_set():
                        return
            except BadFrameError as error:
                newest.append(error)
                has_come.set()
            closing.wait(SECONDS_TO_REOPEN)

    thread = threading.Thread(target=run, name='stream')
    thread.start()

    def read() -> np.ndarray:
        if not has_come.wait(SECONDS_TO_REOPEN):
            raise BadFrameError('no image', f'Stream {without_password(address)} has no picture.')
        has_come.clear()
        found = newest.pop()
        if isinstance(found, BadFrameError):
            raise found
        return np.asarray(to_color(found, 'bgr'))

    def close() -> None:
        closing.set()
        thread.join()

    description = f'stream {without_password(address)}'
    return PictureSource(description, 0.0, read, lambda: None, close)


def _only_image_topic(recording: Recording) -> str:
    topics = color_topics(recording)
    if len(topics) == 1:
        return topics[0]
    raise ParameterError(
        f'Recording {recording.path} has '
        + (f'several image topics: {", ".join(topics)}.' if topics else 'no image topic.'),
        remedy='Set source to PATH#TOPIC.' if topics else 'Choose a recording of images.',
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
