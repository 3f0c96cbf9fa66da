"""Results of recordings as a table in Parquet format."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip('pyarrow', reason='it writes Parquet: pip install pyarrow')

from pyarrow import parquet

from support.descriptions import head as open_as
from trt_ros.errors import ParameterError
from trt_ros.labelling.parquet import ParquetLabels
from trt_ros.labelling.results import ImageHeader
from trt_ros.results.boxes import Detections
from trt_ros.results.classes import Classification
from trt_ros.results.masks import Instances
from trt_ros.vision.frame import Frame

FRAME = Frame.from_pixels(np.zeros((8, 16, 3), np.uint8))
HEADER = ImageHeader((-1, 5), 'camera', (16, 8))
BOXES = Detections(
    np.float32([[2, 1, 6, 5], [0, 0, 16, 8]]), np.float32([0.5, 0.25]), np.int32([1, 7])
)


def written(path, *results, task='detect', names=('a', 'b')):
    head = open_as('yolov8', 'output0 (1, 84, 8400)')
    decoder = SimpleNamespace(task=task, name='yolov8', head=head, class_count=len(names) or None)
    pipeline = SimpleNamespace(decoder=decoder, class_names=names)
    labels = ParquetLabels(path, pipeline, {'model': 'a.onnx'})
    for result in results:
        labels.write('/front', HEADER, FRAME, result)
    labels.close()
    labels.close()
    return parquet.read_table(path)


def test_rows_are_the_objects_and_images_without_any(tmp_path):
    none = Detections.empty()
    mask = Instances(BOXES[:1], [np.eye(4, dtype=bool)], np.int32([[2, 1]]), (16, 8))
    tracked = BOXES.with_ids(np.int64([4, 9]))
    found = written(tmp_path / 'out.parquet', none, tracked, mask, names=())
    assert json.loads(found.schema.metadata[b'trt_ros']) == {'model': 'a.onnx'}
    rows = found.to_pylist()
    assert [row['class_index'] for row in rows] == [None, 1, 7, 1]
    assert [row['track_id'] for row in rows] == [None, 4, 9, None]
    assert {(row['topic'], row['frame_id'], row['image_width']) for row in rows} == {
        ('/front', 'camera', 16)
    }
    assert found['stamp_ns'].to_pylist() == 4 * [5 - 10**9]
    box = [rows[1][name] for name in ('class', 'score', 'left', 'top', 'width', 'height')]
    assert box == ['1', 0.5, 2, 1, 4, 4]
    assert json.loads(rows[3]['segmentation'])['size'] == [8, 16] and rows[3]['area'] == 4


def test_classes_of_an_image_are_rows_the_best_first(tmp_path):
    scores = Classification(np.float32([0.25, 0.75]))
    scores.class_names = ('a', 'b')
    rows = written(tmp_path / 'out.parquet', scores, task='classify').to_pylist()
    assert [(row['class'], row['score']) for row in rows] == [('b', 0.75), ('a', 0.25)]


def test_depth_has_no_rows(tmp_path):
    with pytest.raises(ParameterError, match='--parquet has no format'):
        written(tmp_path / 'out.parquet', task='depth')
