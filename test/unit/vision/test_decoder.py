from __future__ import annotations

import numpy as np
import pytest

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoder import FAMILIES, choose_decoder
from trt_ros.vision.letterbox import Letterbox, Preprocess

COCO = {'task': 'detect', 'stride': '32', 'names': str({i: f'class {i}' for i in range(80)})}


def choose(*shapes, name='auto', output='head', dtype='float32', metadata=None, hw=(640, 640),
           class_count=None):
    outputs = tuple(
        TensorSpec(output + str(i or ''), shape, dtype, 'output')
        for i, shape in enumerate(shapes))
    images = TensorSpec('images', (1, 3, *hw), dtype, 'input')
    return choose_decoder(name, (images,), outputs, metadata or {}, hw, class_count)


@pytest.mark.parametrize(('shape', 'hw'), [
    ((1, 84, 8400), (640, 640)),
    ((1, 6, 8400), (640, 640)),
    ((1, 84, 6300), (480, 640)),
    ((1, 84, 34000), (640, 640)),         # P2: a grid of stride 4, too.
    ((1, 84, 8500), (640, 640)),          # P6: a grid of stride 64, too.
    ((1, 1000, 21), (32, 32)),            # More channels than anchors.
    ((-1, 84, 8400), (640, 640)),
    ((1, 84, -1), (640, 640)),
    ((-1, 84, -1), (640, 640)),
])
def test_channels_before_anchors_are_yolov8(shape, hw):
    decoder = choose(shape, hw=hw)
    assert decoder.name == 'yolov8'
    assert decoder.head.channels_first
    assert decoder.class_count == shape[1] - 4
    assert str(shape[1]) in decoder.why and '\n' not in decoder.why


@pytest.mark.parametrize(('expected', 'classes', 'evidence'), [
    ('yolov8', 80, {'metadata': COCO}),
    ('yolov8', 80, {'output': 'output0'}),
    ('yolov8', 80, {}),                                    # 84 = 4 + COCO.
    ('yolov8', 79, {'class_count': 79, 'output': 'output'}),
    ('yolov8', 3, {'metadata': {'names': "['a', 'b', 'c']"}}),
    ('yolox', 80, {}),                                     # 85 = 5 + COCO.
    ('yolox', 3, {'output': 'output'}),
    ('yolox', 3, {'class_count': 3}),
    ('yolox', 3, {'metadata': {'names': "['a', 'b', 'c']"}}),
    ('yolox', 79, {'class_count': 79}),                    # 84, but 79 were named.
])
def test_anchors_before_channels_are_told_apart_by_evidence(expected, classes, evidence):
    before = 4 if expected == 'yolov8' else 5
    decoder = choose((1, 8400, before + classes), **evidence)
    assert (decoder.name, decoder.class_count) == (expected, classes)
    if expected == 'yolov8':
        assert not decoder.head.channels_first


def test_ultralytics_metadata_vouches_for_other_grids():
    decoder = choose((1, 84, 2000), metadata=COCO)
    assert (decoder.name, decoder.class_count) == ('yolov8', 80)
    assert "Ultralytics' metadata" in decoder.why


def test_a_dynamic_number_of_anchors_may_come_first():
    decoder = choose((1, -1, 84), output='output0')
    assert (decoder.name, decoder.head.channels_first) == ('yolov8', False)
    written_by_yolov5 = {'stride': '32', 'names': COCO['names']}
    assert choose((1, -1, 85), metadata=written_by_yolov5).name == 'yolov5'
    with pytest.raises(TensorMismatchError, match='yolox or yolov5'):
        choose((1, -1, 85))


def test_an_ambiguous_network_names_the_candidates_and_the_way_out():
    with pytest.raises(TensorMismatchError) as error:
        choose((1, 8400, 8))
    assert 'yolov8:' in error.value.cause and 'yolox:' in error.value.cause
    assert 'Set `decoder` to yolov8 or yolox' in error.value.remedy
    assert '`labels`' in error.value.remedy


@pytest.mark.parametrize(('shapes', 'arguments'), [
    ([], {}),
    ([(1, 84, 8401)], {}),
    ([(1, 4, 8400)], {}),
    ([(2, 84, 8400)], {}),
    ([(1, 84, 8400)], {'dtype': 'int64'}),
    ([(1, 8400, 5)], {'output': 'output'}),
])
def test_an_unknown_network_says_what_was_seen_and_what_there_is(shapes, arguments):
    with pytest.raises(TensorMismatchError, match='No decoder recognises') as error:
        choose(*shapes, **arguments)
    for shape in shapes:
        assert str(shape) in error.value.cause
    assert '640x640' in error.value.cause
    for family in FAMILIES:
        assert family.name in error.value.remedy


def test_names_in_the_metadata_weigh_more_than_names_of_the_user():
    metadata = {'names': "['a', 'b', 'c']"}
    assert choose((1, 8400, 8), metadata=metadata, class_count=4).name == 'yolox'


def test_a_grid_follows_the_size_of_the_input():
    assert choose((1, 3549, 8), hw=(416, 416), output='output').name == 'yolox'
    with pytest.raises(TensorMismatchError):
        choose((1, 3549, 8), hw=(640, 640), output='output')


@pytest.mark.parametrize(('name', 'shape', 'classes'), [
    ('yolov8', (1, 8400, 8), 4), ('yolox', (1, 8400, 8), 3), ('yolov8', (1, 12, 5000), 8),
    ('yolov8', (1, 5000, 12), 8), ('yolov8', (1, -1, -1), None), ('yolox', (-1, -1, -1), None),
])
def test_a_name_decides(name, shape, classes):
    decoder = choose(shape, name=name)
    assert (decoder.name, decoder.why, decoder.class_count) == (name, 'as asked', classes)


@pytest.mark.parametrize(('name', 'shapes', 'message'), [
    ('yolox', [(1, 84, 8400)], r'expected \(1, 8400, 5 \+ classes\), got head \(1, 84, 8400\)'),
    ('yolox', [(1, 8400, 5)], 'Not a YOLOX head'),
    ('yolov8', [(1, 4, 8400)], 'Not a YOLOv8 head'),
    ('yolov8', [(1, 1000)], 'Not a YOLOv8 head'),
    ('yolov8', [(1, 84, 8400), (1, 32, 160, 160)], 'One output was expected, not 2'),
    ('yolox', [], 'One output was expected, not 0'),
])
def test_a_name_that_does_not_fit_is_refused(name, shapes, message):
    with pytest.raises(TensorMismatchError, match=message):
        choose(*shapes, name=name)


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(ParameterError, match=r"no decoder 'yolo'.*\n.*yolov8, yolox, .* or "):
        choose((1, 84, 8400), name='yolo')


def test_each_family_brings_preprocessing_that_can_be_honoured():
    fields = {family.name: Preprocess((64, 64), **family.preprocess) for family in FAMILIES}
    yolov8, yolox = fields['yolov8'], fields['yolox']
    assert (yolov8.resize, yolov8.channel_order, yolov8.scale) == ('letterbox', 'rgb', 1 / 255)
    assert (yolox.resize, yolox.channel_order, yolox.scale) == ('letterbox_topleft', 'bgr', 1.0)


def test_the_choice_decodes():
    decoder = choose((1, 6, 8400), output='output0')
    output = np.zeros((1, 6, 8400), np.float32)
    output[0, :, 7] = 320, 320, 64, 32, 0.1, 0.9
    found = decoder(
        {'output0': output}, Letterbox.fit((1280, 1280), (640, 640), 'letterbox'),
        score_threshold=0.5, iou_threshold=0.5, max_detections=10)
    assert found.xyxy.tolist() == [[576, 608, 704, 672]]
    assert found.labels.tolist() == [1]
    assert (decoder.task, decoder.class_count) == ('detect', 2)
