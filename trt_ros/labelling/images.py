"""Images of recordings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from trt_ros.errors import BadFrameError
from trt_ros.labelling.task import chosen_topics
from trt_ros.recording import Recording
from trt_ros.ros.frames import FrameReader
from trt_ros.vision.frame import Frame


def count_images(path: Path, topics: Sequence[str] = ()) -> int:
    """Count the images of a recording, of all or some topics; ParameterError if there are none."""
    with closing(Recording(path)) as recording:
        return sum(
            recording.topics[topic].count for topic in chosen_topics(recording, list(topics))
        )


def recorded_frames(
    path: Path,
    max_pixels: int,
    on_bad: Callable[[BadFrameError], None],
    topics: Sequence[str] = (),
) -> Iterator[tuple[str, Frame]]:
    """Yield images of a recording with their names, as in 'drive.mcap, /image_raw, 12.300 s'."""
    with closing(Recording(path)) as recording:
        readers = {
            topic: FrameReader(recording.topics[topic].message_type, max_pixels)
            for topic in chosen_topics(recording, list(topics))
        }
        for topic, time_ns, data, *_ in recording.messages([*readers]):
            try:
                found = readers[topic].read(data)
            except BadFrameError as error:
                on_bad(error)
                continue
            seconds = (time_ns - recording.start_ns) / 1e9
            for _, frame in found:
                yield f'{path}, {topic}, {seconds:.3f} s', frame
        for topic, reader in readers.items():
            for _, frame in reader.flush():
                yield f'{path}, {topic}, end', frame
