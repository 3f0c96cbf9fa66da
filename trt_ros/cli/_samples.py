"""Pictures, frames and other inputs of files, folders and recordings."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
import sys
from typing import Any

import cv2
import numpy as np

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.labelling.images import count_images, recorded_frames
from trt_ros.media import PICTURE_SUFFIXES, open_video, read_picture, read_video
from trt_ros.model.bindings import parse_bindings
from trt_ros.model.feeds import Feeds
from trt_ros.model.run_inputs import RunInput, RunInputs, array_specs, image_feeds, measured_inputs
from trt_ros.recording import is_recording
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

VIDEO_SUFFIXES = ('.mp4', '.avi', '.mkv', '.mov', '.webm', '.m4v', '.mpg', '.mpeg')


def is_video(path: Path) -> bool:
    """Return whether a file is a video by its name."""
    return path.suffix.lower() in VIDEO_SUFFIXES


def expand(files: Sequence[Path]) -> Iterator[Path]:
    """Yield files; of a folder its images and videos by name, or raise ParameterError."""
    for path in files:
        if is_recording(path):
            raise ParameterError(
                f'{path} is a recording, not an image or a video.',
                remedy=f'Run `trt-ros label {path} --output labeled.mcap` with the same --model.',
            )
        if not path.is_dir():
            yield path
            continue
        inside = sorted(
            each
            for each in path.iterdir()
            if each.is_file() and each.suffix.lower() in PICTURE_SUFFIXES + VIDEO_SUFFIXES
        )
        if not inside:
            raise ParameterError(
                f'The folder {path} has no images and no videos.',
                remedy=f'Use files of {", ".join(PICTURE_SUFFIXES + VIDEO_SUFFIXES)}.',
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
    for source in files:
        if is_recording(source):
            try:
                yield from recorded_frames(source, max_pixels, on_bad, topics)
            except BadFrameError as error:
                on_bad(error)
            continue
        for path in expand([source]):
            try:
                if is_video(path):
                    for index, (pixels, _) in enumerate(read_video(path, max_pixels)):
                        yield f'{path}, frame {index}', Frame.from_pixels(pixels)
                else:
                    yield str(path), Frame.from_pixels(read_picture(path, max_pixels))
            except BadFrameError as error:
                on_bad(error)


def count_frames(files: Sequence[Path], max_pixels: int, topics: Sequence[str] = ()) -> int:
    """Count what `frames` yields or leaves out; for videos, what their container declares."""
    count = 0
    for source in files:
        if is_recording(source):
            count += count_images(source, topics)
            continue
        for path in expand([source]):
            if not is_video(path):
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


def samples(args: Namespace, feeds: Feeds) -> Iterator[tuple[str, RunInputs]]:
    """Yield named inputs of runs: as many pictures as image topics, else noise; or raise."""
    rng = np.random.default_rng(0)
    bound = {each.input: each.sources for each in parse_bindings(args.inputs)}
    topics = {name: bound.get(name, (name,)) for name in image_feeds(feeds)}
    names = list(dict.fromkeys(topic for each in topics.values() for topic in each))
    tensors = {
        name: value
        for name, value in measured_inputs(feeds, None).items()
        if name in array_specs(feeds)
    }
    for name, images in _images(args, names, rng):
        by_topic = dict(zip(names, images))
        inputs: dict[str, RunInput] = {
            each: [by_topic[topic] for topic in sources] for each, sources in topics.items()
        }
        for each, zeros in tensors.items():
            inputs[each] = zeros
            if isinstance(zeros, np.ndarray):  # Not gray images.
                inputs[each] = noise(rng, zeros.shape, zeros.dtype)
        yield name, inputs


def run_sample(pipeline: Pipeline[Any], inputs: RunInputs, score: float) -> Any:
    """Return the result of one of samples(); boxes of a score from `score` on."""
    thresholds = Thresholds(score=score, max_detections=300)
    if not pipeline.is_one_image:
        return pipeline.infer(inputs, thresholds)
    images: Any = inputs[next(name for name in inputs)]
    (frame,) = images  # Networks of a fixed batch run as a whole, too.
    return pipeline.infer(frame, thresholds)


def noise(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return noise of both signs, or 0 to 1 for images (else 0 to 255) and bool."""
    values = rng.random(shape, np.float32)
    kind = np.dtype(dtype).kind
    if kind == 'f' and len(shape) != 4:
        return rng.standard_normal(shape, np.float32).astype(dtype)
    if kind == 'b':
        return values > 0.5
    return (values if kind == 'f' else values * 255).astype(dtype)


def _images(
    args: Namespace, topics: Sequence[str], rng: np.random.Generator
) -> Iterator[tuple[str, list[Frame]]]:
    if not args.images:
        for index in range(args.random):  # With alpha, for networks of one, three and four.
            pixels = [rng.integers(0, 256, (480, 640, 4), dtype=np.uint8) for _ in topics]
            yield f'random input {index}', [Frame.from_pixels(each, 'bgra8') for each in pixels]
        return
    if not topics:
        raise ParameterError(
            'The network takes no pictures.',
            cause=f'inputs is {list(args.inputs)}.' if args.inputs else 'It has no --inputs.',
            remedy='Bind an input to an image, as in --inputs x=image:camera, or leave the '
            'pictures out.',
        )
    # A picture of several that is left out would pair the others wrongly.
    on_bad = _report_bad if len(topics) == 1 else raise_bad
    pictures = frames(args.images, args.max_image_pixels, on_bad)
    count = 0
    while group := list(islice(pictures, len(topics))):
        if len(group) < len(topics):
            raise ParameterError(
                f'The last run has {len(group)} pictures, but takes {len(topics)}.',
                cause=f'The image topics are {", ".join(topics)}.',
                remedy='Give one picture per topic and run, in this order.',
            )
        yield ' + '.join(name for name, _ in group), [frame for _, frame in group]
        count += 1
    if not count:
        raise ParameterError('The files have no images.', remedy='Use some images.')


def _report_bad(error: BadFrameError) -> None:
    _report_once(f'left out: {error.problem} {error.cause}'.strip())


@cache
def _report_once(text: str) -> None:
    """Print a line once, although the pictures are read several times."""
    print(text, file=sys.stderr)
