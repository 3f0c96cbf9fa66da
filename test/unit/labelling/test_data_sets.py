"""Results of recordings as a data set in COCO format, and as a table in Parquet format."""

from contextlib import closing
import json
from types import SimpleNamespace

import numpy as np
import pytest

from support.descriptions import head as open_as
from support.objects import detections
from trt_ros.errors import ParameterError
from trt_ros.families.semantic import MaskHeads
from trt_ros.labelling.coco import CocoLabels
from trt_ros.labelling.parquet import ParquetLabels
from trt_ros.labelling.results import ImageHeader
from trt_ros.results.boxes import Detections
from trt_ros.results.classes import Classification
from trt_ros.results.masks import ClassMask, Instances
from trt_ros.vision.frame import Frame

FRAME = Frame.from_pixels(np.zeros((8, 16, 3), np.uint8))
HEADER = ImageHeader((-1, 5), 'camera', (16, 8))
BOXES = detections((2, 1, 6, 5), (0, 0, 16, 8), score=(0.5, 0.25), label=(1, 7))
MASK = Instances(BOXES[:1], [np.eye(4, dtype=bool)], np.int32([[2, 1]]), (16, 8))
ORIGIN = {'model': 'a.onnx'}


def pipeline(task='detect', name='yolov8', names=('a', 'b')):
    head = open_as('yolov8', 'output0 (1, 84, 8400)')
    decoder = SimpleNamespace(task=task, name=name, head=head, class_count=len(names) or None)
    return SimpleNamespace(decoder=decoder, class_names=names)


def write(labels, results):
    for result in results:
        labels.write('/front', HEADER, FRAME, result)
    labels.close()
    labels.close()


def coco(path, *results, names=('a', 'b')):
    write(CocoLabels(path, pipeline(names=names), ORIGIN), results)
    return json.loads(path.read_text())


def table(path, *results, **options):
    parquet = pytest.importorskip('pyarrow.parquet', reason='pip install pyarrow')
    write(ParquetLabels(path, pipeline(**options), ORIGIN), results)
    return parquet.read_table(path)


def test_categories_are_the_classes_of_the_network_or_those_found(tmp_path):
    found = coco(tmp_path / 'found.json', BOXES[::-1], names=())
    assert [each['category_id'] for each in found['annotations']] == [8, 2]
    assert found['categories'] == [{'id': 2, 'name': '1'}, {'id': 8, 'name': '7'}]
    found = coco(tmp_path / 'named.json', Detections.empty())
    assert (len(found['images']), found['annotations']) == (1, [])
    assert found['categories'] == [{'id': 1, 'name': 'a'}, {'id': 2, 'name': 'b'}]


def test_area_of_masks_is_that_of_their_pixels_and_tasks_that_coco_lacks_are_refused(tmp_path):
    classes = np.full((8, 16), 255, np.uint8)
    classes[2:4, 3:15] = 1
    found = coco(tmp_path / 'out.json', MASK, ClassMask(classes))
    assert [each['area'] for each in found['annotations']] == [4, 24]
    assert found['annotations'][1]['bbox'] == [3, 2, 12, 2]
    assert [each['image_id'] for each in found['annotations']] == [1, 2]
    assert [each['category_id'] for each in found['annotations']] == [2, 2]
    assert found['images'][0]['file_name'] == 'front/-0.999999995.png'
    with pytest.raises(ParameterError, match='no format for the results of decoder midas'):
        CocoLabels(tmp_path / 'out.json', pipeline('depth', 'midas'), {})
    several = pipeline('segment', 'mask')
    several.decoder.head = MaskHeads.of(
        [open_as('semantic', f'{name} (1, 3, 8, 8)') for name in ('area', 'line')]
    )
    with pytest.raises(ParameterError, match=r'several masks per image.*\n.*with --outputs'):
        CocoLabels(tmp_path / 'out.json', several, {})


def test_images_without_a_stamp_have_files_of_their_own(tmp_path):
    stamps = (0, 0), (0, 0), (2, 0), (1, 5)
    with closing(CocoLabels(tmp_path / 'out.json', pipeline(), {})) as labels:
        headers = [ImageHeader(each, '', (16, 8)) for each in stamps]
        names = [labels.picture_name(*each) for each in zip(['/front', 'front'] * 2, headers)]
    ends = '0.000000000', '0.000000000_1', '2.000000000', '1.000000005'
    assert names == [f'front/{each}.png' for each in ends]


@pytest.mark.parametrize('topic', ['/../../evil/x', '/a/../b', '', '/', '/a\0b'])
def test_no_file_is_written_outside_the_folder(tmp_path, topic):
    labels = CocoLabels(tmp_path / 'out.json', pipeline(), {}, tmp_path / 'pictures')
    with closing(labels), pytest.raises(ParameterError, match='cannot be named after the topic'):
        labels.write(topic, HEADER, FRAME, None)
    assert not list(tmp_path.iterdir())


def test_rows_are_the_objects_and_images_without_any(tmp_path):
    tracked = BOXES.with_ids(np.int64([4, 9]))
    found = table(tmp_path / 'out.parquet', Detections.empty(), tracked, MASK, names=())
    assert json.loads(found.schema.metadata[b'trt_ros']) == ORIGIN
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


def test_classes_of_an_image_are_rows_the_best_first_and_depth_has_none(tmp_path):
    scores = Classification(np.float32([0.25, 0.75]))
    scores.class_names = ('a', 'b')
    rows = table(tmp_path / 'out.parquet', scores, task='classify').to_pylist()
    assert [(row['class'], row['score']) for row in rows] == [('b', 0.75), ('a', 0.25)]
    with pytest.raises(ParameterError, match='--parquet has no format'):
        table(tmp_path / 'out.parquet', task='depth')
