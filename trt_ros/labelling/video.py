"""Receivers of the labeled images of a recording: videos, and identities of their objects."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from trt_ros.drawing import draw
from trt_ros.errors import ParameterError
from trt_ros.labelling.results import ImageHeader
from trt_ros.media import VideoWriter
from trt_ros.recording import Recording
from trt_ros.results.boxes import ObjectsT
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tracking.tracker import Tracker
from trt_ros.vision.frame import Frame, to_color


def video_paths(output: Path, topics: Sequence[str]) -> dict[str, Path]:
    """Return the video of each topic, beside the output file: NAME.mp4 or NAME_TOPIC.mp4."""
    if len(topics) == 1:
        return {topics[0]: output.with_suffix('.mp4')}
    return {
        topic: output.with_name(f'{output.stem}_{topic.strip("/").replace("/", "_")}.mp4')
        for topic in topics
    }


class AnnotatedVideos:
    """MP4 files of images with their results, one per topic, at its mean rate in the recording."""

    def __init__(self, output: Path, topics: Sequence[str], recording: Recording) -> None:
        self._paths = video_paths(output, topics)
        self._rates_hz = {topic: recording.mean_rate_hz(topic) for topic in topics}
        self._writers = dict[str, VideoWriter]()

    def write(self, topic: str, header: ImageHeader, frame: Frame, result: object) -> None:
        """Draw a result and append the image, as large as the first; or raise ParameterError."""
        pixels = np.array(to_color(frame, 'bgr'))
        draw(pixels, result)
        if topic not in self._writers:
            self._writers[topic] = VideoWriter(self._paths[topic], self._rates_hz[topic], frame.wh)
        self._writers[topic].write(pixels)

    def close(self) -> None:
        """Finish the files; may be called twice."""
        while self._writers:
            self._writers.popitem()[1].release()


class Tracking:
    """A tracker per topic; no two objects of a recording get the same identity."""

    def __init__(self, method: str, pipeline: Pipeline[Any]) -> None:
        if not pipeline.decoder.finds_objects:
            raise ParameterError(
                f'The results of decoder {pipeline.decoder.name} cannot be tracked.',
                cause='They have no boxes.',
                remedy='Leave --track out.',
            )
        self._method, self._ids = method, count(1)
        self._trackers: dict[str, Tracker] = {}

    def __call__(self, topic: str, header: ImageHeader, found: ObjectsT) -> ObjectsT:
        """Return the objects that belong to a track, with their identities."""
        if topic not in self._trackers:
            # Labels have all objects from their first image on.
            self._trackers[topic] = Tracker(self._method, self._ids, min_hits=1)
        seconds, nanoseconds = header.stamp
        return self._trackers[topic](found, 10**9 * seconds + nanoseconds)
