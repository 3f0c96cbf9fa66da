"""Results of recordings as a table in Parquet format."""

from collections.abc import Iterator, Mapping
import json
from pathlib import Path
from typing import Any

from trt_ros.errors import requires
from trt_ros.labelling.coco import check_has_format, writing_data_set
from trt_ros.labelling.results import MAX_CLASSES, ImageHeader
from trt_ros.results.base import Result
from trt_ros.results.classes import Classification
from trt_ros.results.labels import category_ids, name_of
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame

ROWS_PER_GROUP = 10_000


class ParquetLabels:
    """
    A table with a row per object, class of a mask or class of an image, finished at close().

    An image without any has one row, too. Without images, there is no file.

    :param origin: what the results depend on, for the metadata of the file.
    :raises ParameterError: when pyarrow is not installed, or the results have no rows.
    """

    def __init__(self, path: Path, pipeline: Pipeline[Any], origin: Mapping[str, Any]) -> None:
        check_has_format(pipeline.decoder, 'parquet')
        with requires('the Python package pyarrow', '--parquet', 'pip install pyarrow.'):
            import pyarrow
            import pyarrow.parquet
        self._arrow, self._path = pyarrow, path
        text, integer, real = pyarrow.string(), pyarrow.int64(), pyarrow.float32()
        self._schema = pyarrow.schema(
            {
                **{'topic': text, 'stamp_ns': integer, 'frame_id': text},
                **{'image_width': integer, 'image_height': integer},
                **{'class': text, 'class_index': integer, 'score': real},
                **dict.fromkeys(('left', 'top', 'width', 'height', 'area'), real),
                **{'track_id': integer, 'segmentation': text, 'keypoints': pyarrow.list_(real)},
            },
            {'trt_ros': json.dumps(origin)},
        )
        self._ids = category_ids(pipeline.class_names, pipeline.decoder.class_count or 0)
        self._names = pipeline.class_names
        self._rows: list[dict[str, Any]] = []
        self._writer: Any = None

    def write(self, topic: str, header: ImageHeader, frame: Frame, result: Result) -> None:
        """Append the rows of an image, or raise ParameterError."""
        seconds, nanoseconds = header.stamp
        image = {
            **{'topic': topic, 'stamp_ns': 10**9 * seconds + nanoseconds},
            **{'frame_id': header.frame_id},
            **dict(zip(('image_width', 'image_height'), header.wh)),
        }
        before = len(self._rows)
        self._rows.extend({**image, **row} for row in self._results(result))
        if len(self._rows) == before:
            self._rows.append(image)
        if len(self._rows) >= ROWS_PER_GROUP:
            self._write_rows()

    def _results(self, result: Any) -> Iterator[dict[str, Any]]:
        if isinstance(result, Classification):
            best = result.top(MAX_CLASSES)
            for label, score in zip(best.tolist(), result.scores[best].tolist()):
                yield {**self._class(label), 'score': score}
            return
        entries = list(result.as_coco(0, self._ids, with_area=True))
        indices = {number: index for index, number in self._ids.items()}
        for entry in entries:
            row = {name: value for name, value in entry.items() if name in self._schema.names}
            row |= dict(zip(('left', 'top', 'width', 'height'), entry.get('bbox', ())))
            if 'segmentation' in entry:
                row['segmentation'] = json.dumps(entry['segmentation'])
            yield {**row, **self._class(indices[entry['category_id']])}

    def _class(self, label: int) -> dict[str, Any]:
        return {'class': name_of(self._names, label), 'class_index': label}

    def _write_rows(self) -> None:
        table = self._arrow.Table.from_pylist(self._rows, self._schema)
        with writing_data_set(self._path):
            if self._writer is None:
                self._writer = self._arrow.parquet.ParquetWriter(self._path, self._schema)
            self._writer.write_table(table)
        self._rows = []

    def close(self) -> None:
        """Finish the file, if there were images, or raise ParameterError; may be called twice."""
        if self._rows:
            self._write_rows()
        if self._writer is not None:
            with writing_data_set(self._path):
                self._writer.close()
            self._writer = None
