"""Areas of objects in data sets in COCO format."""

from contextlib import closing
import json
from types import SimpleNamespace

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.errors import ParameterError
from trt_ros.families.semantic import MaskHeads
from trt_ros.labelling.coco import CocoLabels
from trt_ros.labelling.results import ImageHeader
from trt_ros.results.boxes import Detections
from trt_ros.results.masks import ClassMask, Instances
from trt_ros.vision.frame import Frame

FRAME = Frame.from_pixels(np.zeros((8, 16, 3), np.uint8))
HEADER = ImageHeader((1, 5), 'camera', (16, 8))


def pipeline(task='detect', name='yolov8', names=('a', 'b')):
    head = open_as('yolov8', 'output0 (1, 84, 8400)')
    decoder = SimpleNamespace(task=task, name=name, head=head, class_count=len(names) or None)
    return SimpleNamespace(decoder=decoder, class_names=names)


def written(path, *results, names=('a', 'b')):
    labels = CocoLabels(path, pipeline(names=names), {'model': 'a.onnx'})
    for result in results:
        labels.write('/front', HEADER, FRAME, result)
    labels.close()
    labels.close()
    return json.loads(path.read_text())


def test_categories_of_unknown_classes_are_those_found(tmp_path):
    boxes = Detections(np.float32([[2, 1, 6, 5]] * 2), np.float32([0.5] * 2), np.int32([8, 3]))
    found = written(tmp_path / 'out.json', boxes, names=())
    assert [each['category_id'] for each in found['annotations']] == [9, 4]
    assert found['categories'] == [{'id': 4, 'name': '3'}, {'id': 9, 'name': '8'}]


def test_area_of_masks_is_that_of_their_pixels(tmp_path):
    boxes = Detections(np.float32([[2, 1, 6, 5]]), np.float32([0.5]), np.int32([1]))
    mask = np.eye(4, dtype=bool)
    instances = Instances(boxes, [mask], np.int32([[2, 1]]), (16, 8))
    classes = np.full((8, 16), 255, np.uint8)
    classes[:2] = 1
    found = written(tmp_path / 'out.json', instances, ClassMask(classes))
    assert [each['area'] for each in found['annotations']] == [4, 32]
    assert [each['image_id'] for each in found['annotations']] == [1, 2]
    assert [each['category_id'] for each in found['annotations']] == [2, 2]
    assert found['images'][0]['file_name'] == 'front/1.000000005.png'


def test_images_without_a_stamp_have_files_of_their_own(tmp_path):
    stamps = (0, 0), (0, 0), (2, 0), (1, 0)
    with closing(CocoLabels(tmp_path / 'out.json', pipeline(), {})) as labels:
        headers = [ImageHeader(each, '', (16, 8)) for each in stamps]
        names = [labels.picture_name(*each) for each in zip(['/front', 'front'] * 2, headers)]
    ends = '0.000000000', '0.000000000_1', '2.000000000', '1.000000000'
    assert names == [f'front/{each}.png' for each in ends]


@pytest.mark.parametrize('topic', ['/../../evil/x', '/a/../b', '', '/', '/a\0b'])
def test_no_file_is_written_outside_the_folder(tmp_path, topic):
    labels = CocoLabels(tmp_path / 'out.json', pipeline(), {}, tmp_path / 'pictures')
    with closing(labels), pytest.raises(ParameterError, match='cannot be named after the topic'):
        labels.write(topic, HEADER, FRAME, None)
    assert not list(tmp_path.iterdir())


def test_tasks_that_coco_lacks_are_refused(tmp_path):
    with pytest.raises(ParameterError, match='no format for the results of decoder midas'):
        CocoLabels(tmp_path / 'out.json', pipeline('depth', 'midas'), {})
    several = pipeline('segment', 'mask')
    several.decoder.head = MaskHeads.of(
        [open_as('semantic', f'{name} (1, 3, 8, 8)') for name in ('area', 'line')]
    )
    with pytest.raises(ParameterError, match=r'several masks per image.*\n.*with --outputs'):
        CocoLabels(tmp_path / 'out.json', several, {})


def test_image_without_objects_has_no_annotations(tmp_path):
    none = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int32))
    found = written(tmp_path / 'out.json', none)
    assert (len(found['images']), found['annotations']) == (1, [])
    assert found['categories'] == [{'id': 1, 'name': 'a'}, {'id': 2, 'name': 'b'}]
