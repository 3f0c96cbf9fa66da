"""Results of recordings as a data set in COCO format."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, suppress
from itertools import count
import json
from pathlib import Path
import tempfile
from typing import IO, Any

import numpy as np

from trt_ros.decode.choice import Decoder
from trt_ros.errors import ParameterError
from trt_ros.labelling.results import ImageHeader
from trt_ros.media import write_picture
from trt_ros.regular_file import writing
from trt_ros.results.base import Result
from trt_ros.results.labels import category_ids, name_of
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.class_choice import OBJECT_TASKS
from trt_ros.vision.frame import Frame, to_color

_COPY_NBYTES = 1 << 20


def check_has_format(decoder: Decoder[Any], kind: str = 'coco') -> None:
    """Check that a format has the results of a decoder; raise ParameterError when it has not."""
    if len(decoder.head.classes_by_output) > 1:
        raise ParameterError(
            f'--{kind} has no format for several masks per image.',
            remedy=f'Choose one output with --outputs, or leave --{kind} out.',
        )
    if decoder.task not in (*OBJECT_TASKS, 'segment', *['classify'] * (kind == 'parquet')):
        raise ParameterError(
            f'--{kind} has no format for the results of decoder {decoder.name}.',
            remedy=f'Leave --{kind} out.',
        )


class CocoLabels:
    """
    A JSON file with `images`, `annotations` and `categories`, written at close().

    Without images, there is no file.

    Images are named by topic and stamp: front/image_raw/1700000000.099000000.png; with a number
    behind the stamp, 0.000000000_1.png, where an image before has the same.

    :param origin: what the results depend on, for `info`.
    :param pictures: folder of the image files; None to write none.
    :raises ParameterError: when COCO has no format for the results.
    """

    def __init__(
        self,
        path: Path,
        pipeline: Pipeline[Any],
        origin: Mapping[str, Any],
        pictures: Path | None = None,
    ) -> None:
        decoder = pipeline.decoder
        check_has_format(decoder)
        self._path, self._names, self._origin = path, pipeline.class_names, origin
        self._pictures = pictures
        self._category_ids = category_ids(self._names, decoder.class_count or 0)
        # A recording may have more objects than fit into memory.
        self._images = _JsonArray(path.parent)
        self._annotations = _JsonArray(path.parent)
        self._stamps = defaultdict[str, set[int]](set)  # In nanoseconds, by folder.
        self._repeated = count(1)

    def write(self, topic: str, header: ImageHeader, frame: Frame, result: Result) -> None:
        """Append an image and its objects, and write its picture if that is wanted."""
        name = self.picture_name(topic, header)
        if self._pictures is not None:
            self.write_picture(name, frame)
        self.append(name, header, result)

    def picture_name(self, topic: str, header: ImageHeader) -> str:
        """Return the name of the file of an image, another one each time."""
        parts = [each for each in topic.split('/') if each]
        if not parts or '\0' in topic or not {'.', '..'}.isdisjoint(parts):
            raise ParameterError(
                f'Files of images cannot be named after the topic {topic!r}.',
                remedy='Choose another topic with --topic, or correct the recording.',
            )
        seconds, nanoseconds = header.stamp
        stamp_ns = seconds * 10**9 + nanoseconds
        folder = '/'.join(parts)
        number = f'_{next(self._repeated)}' if stamp_ns in self._stamps[folder] else ''
        self._stamps[folder].add(stamp_ns)
        sign, size_ns = '-' if stamp_ns < 0 else '', abs(stamp_ns)
        return f'{folder}/{sign}{size_ns // 10**9}.{size_ns % 10**9:09d}{number}.png'

    def write_picture(self, name: str, frame: Frame) -> None:
        """Write the file of an image; see write()."""
        assert self._pictures is not None
        path = self._pictures / name
        with writing_data_set(self._path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_picture(path, np.asarray(to_color(frame, 'bgr')))

    def append(self, name: str, header: ImageHeader, result: Result, **more: Any) -> None:
        """Append an image without its picture; `more`: of its entry in the file."""
        with writing_data_set(self._path):
            image_id, (width, height) = self._images.count + 1, header.wh
            self._images.append(
                {'id': image_id, 'file_name': name, 'width': width, 'height': height, **more}
            )
            for entry in result.as_coco(image_id, self._category_ids, with_area=True):
                self._annotations.append(
                    {'id': self._annotations.count + 1, **entry, 'iscrowd': 0}
                )

    def close(self) -> None:
        """Write the file, if there were images, or raise ParameterError; may be called twice."""
        with writing_data_set(self._path), closing(self._images), closing(self._annotations):
            if self._images.is_closed or not self._images.count:
                return
            with self._path.open('xb') as file:
                info = {'description': 'Results of trt_ros', 'trt_ros': self._origin}
                file.write(f'{{"info": {json.dumps(info)}, "images": '.encode())
                self._images.copy_to(file)
                file.write(b', "annotations": ')
                self._annotations.copy_to(file)
                categories = [
                    {'id': number, 'name': name_of(self._names, index)}
                    for index, number in sorted(self._category_ids.items())
                ]
                file.write(f', "categories": {json.dumps(categories)}}}\n'.encode())


def writing_data_set(path: Path) -> AbstractContextManager[None]:
    """Raise errors of the file system as a ParameterError about the file of a data set."""
    remedy = (
        'Free space, or whatever else prevents it, delete the files of this run, and start again.'
    )
    return writing(path, remedy)


class _JsonArray:
    """A JSON array in a nameless temporary file. Owns it until close()."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self.count = 0

    @property
    def is_closed(self) -> bool:
        return self._file.closed

    def append(self, entry: Mapping[str, Any]) -> None:
        self._file.write((b',\n' if self.count else b'[') + json.dumps(entry).encode())
        self.count += 1

    def copy_to(self, file: IO[bytes]) -> None:
        self._file.write(b']' if self.count else b'[]')
        self._file.seek(0)
        while data := self._file.read(_COPY_NBYTES):
            file.write(data)

    def close(self) -> None:
        with suppress(OSError):  # Of the rest in the buffer, after a failed write.
            self._file.close()
