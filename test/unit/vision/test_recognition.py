"""Which family `decoder: auto` takes a network for: a row a rule."""

from __future__ import annotations

from pathlib import Path
import re

import pytest

from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoder import (
    CLASSIFIERS,
    DEPTHS,
    EMBEDDINGS,
    FAMILIES,
    ORIENTED,
    POSES,
    SEGMENTERS,
    choose_decoder,
)

NAMES = str({i: f'class {i}' for i in range(80)})
ULTRALYTICS = {'task': 'detect', 'stride': '32', 'names': NAMES}
V5 = {'stride': '32', 'names': NAMES}
TWO = {**ULTRALYTICS, 'names': "{0: 'a', 1: 'b'}"}
RTDETR_L = {**TWO, 'description': 'Ultralytics rtdetr-l model trained on coco.yaml'}


def specs(text, mode):
    """Read 'name (1, ?, 4) float32; ..'; float32 may be left out."""
    found = []
    for name, shape, dtype in re.findall(r'(\S+) \(([^)]*)\)(?: (\w+))?', text):
        sizes = tuple(-1 if size == '?' else int(size) for size in re.findall(r'[?\d]+', shape))
        found.append(TensorSpec(name, sizes, dtype or 'float32', mode))
    return tuple(found)


def choose(outputs, *, inputs='', metadata=None, hw=(640, 640), class_count=None, name='auto'):
    image = TensorSpec('images', (1, 3, *hw), 'float32', 'input')
    return choose_decoder(name, (image, *specs(inputs, 'input')), specs(outputs, 'output'),
                          metadata or {}, hw, class_count)


@pytest.mark.parametrize(('family', 'classes', 'outputs', 'others'), [
    # One output, told by its shape and the metadata. YOLOv8 and YOLOX: test_decoder.py.
    ('yolov5', 80, 'output (1, 25200, 85)', {}),
    ('yolov5', 3, 'output0 (1, 25200, 8)', {'metadata': {'stride': '32'}}),
    ('yolov5', 80, 'output0 (1, ?, 85)', {'metadata': V5}),
    ('yolov5', None, 'output0 (?, ?, ?)', {'metadata': V5, 'name': 'yolov5'}),
    ('yolov5', 80, 'output0 (1, 102000, 85)', {'hw': (1280, 1280)}),      # P6
    ('yolov5', 80, 'output (1, 18900, 85)', {'hw': (480, 640)}),
    ('yolov10', None, 'output0 (1, 300, 6)', {}),
    ('yolov10', None, 'output0 (1, 300, 6)', {'metadata': ULTRALYTICS}),
    ('yolov10', None, 'output0 (1, 300, 6)', {'metadata': {**TWO, 'end2end': 'True'}}),
    ('yolov10', None, 'output0 (1, 300, ?)', {'metadata': {**TWO, 'end2end': 'True'}}),
    ('yolov10', None, 'output0 (1, 300, 6)', {'metadata': {
        **ULTRALYTICS, 'args': "{'batch': 1, 'nms': True}"}}),
    ('rtdetr', 80, 'output0 (1, 300, 84)', {'metadata': ULTRALYTICS}),
    ('rtdetr', 2, 'output0 (1, 300, 6)', {'metadata': RTDETR_L}),
    ('rtdetr', None, 'output0 (?, ?, 6)', {'metadata': {**TWO, 'head': 'RTDETRDecoder'}}),
    ('rtdetr', None, 'output0 (1, 300, 6)', {'metadata': {
        **ULTRALYTICS, 'head': 'RTDETRDecoder', 'end2end': 'False'}}),
    # Queries.
    ('rtdetr', 80, 'logits (1, 300, 80); pred_boxes (1, 300, 4)', {}),
    ('rtdetr', 3, 'logits (1, 300, 3); pred_boxes (1, 300, 4)', {'class_count': 3}),
    ('rtdetr', 80, 'pred_logits (1, 300, 80); pred_boxes (1, 300, 4); last (1, 300, 256)', {}),
    ('detr', 91, 'logits (1, 100, 92); pred_boxes (1, 100, 4)', {}),
    ('detr', 3, 'pred_logits (1, 100, 4); pred_boxes (1, 100, 4)', {'class_count': 3}),
    ('rfdetr', 91, 'dets (1, 300, 4); labels (1, 300, 91)', {}),
    ('rtdetr', None, 'labels (?, 300) int64; boxes (?, 300, 4); scores (?, 300)',
     {'inputs': 'orig_target_sizes (?, 2) int64'}),
    # Boxes with scores.
    ('ssd', 3, 'scores (1, 3000, 4); boxes (1, 3000, 4)', {'hw': (300, 300)}),
    ('ssd', 20, 'scores (1, 99, 21); boxes (1, 99, 4)', {'class_count': 20}),
    ('boxes', 80, 'boxes (1, 8400, 4); scores (1, 8400, 80)', {}),        # YOLO-NAS
    ('boxes', None, 'boxes (?, 4); labels (?) int64; scores (?)', {}),    # torchvision
    ('efficient_nms', None, 'num_dets (1, 1) int32; det_boxes (1, 100, 4); det_scores (1, 100); '
     'det_classes (1, 100) int32', {}),
    ('efficient_nms', None, 'num_dets (?, 1) int64; boxes (?, 100, 4); scores (?, 100); '
     'labels (?, 100) int32', {}),                                        # MMYOLO
    ('efficient_nms', None, 'num_detections (1, 1) int32; nmsed_boxes (1, 100, 4); '
     'nmsed_scores (1, 100); nmsed_classes (1, 100)', {}),                # BatchedNMS
    ('onnx_nms', 80, 'selected_indices (?, 3) int64; boxes (1, 8400, 4); scores (1, 80, 8400)',
     {}),
    ('onnx_nms', 4, 'chosen (?, 3) int64; boxes (1, 4, 4); scores (1, 4, 4)', {}),
    ('yolov3', 80, 'yolonms_layer_1 (1, ?, 4); yolonms_layer_1:1 (1, 80, ?); '
     'yolonms_layer_1:2 (?, 3) int32', {'inputs': 'image_shape (1, 2)', 'hw': (416, 416)}),
    # Grids.
    ('detectnet_v2', 3, 'output_cov/Sigmoid:0 (?, 3, 34, 60); output_bbox/BiasAdd:0 '
     '(?, 12, 34, 60)', {'hw': (544, 960)}),
    ('detectnet_v2', 1, 'output_bbox (1, 4, 23, 40); output_cov (1, 1, 23, 40)',
     {'hw': (368, 640)}),
])
def test_a_network_is_recognised(family, classes, outputs, others):
    decoder = choose(outputs, **others)
    assert (decoder.name, decoder.class_count) == (family, classes)
    assert decoder.why == 'as asked' or specs(outputs, 'output')[0].name in decoder.why
    assert '\n' not in decoder.why


@pytest.mark.parametrize(('families', 'outputs', 'others'), [
    ('yolox yolov5', 'head (1, ?, 85)', {}),
    ('yolov8 yolox yolov5 yolov10', 'head (1, ?, 6)', {}),
    ('yolov10 rtdetr', 'output0 (1, 300, 6)', {'metadata': TWO}),
    ('rtdetr detr', 'logits (1, 300, 91); pred_boxes (1, 300, 4)', {}),
    ('ssd boxes boxes_normalised', 'boxes (1, 99, 4); scores (1, 99, 21)', {}),
    ('boxes boxes_normalised', 'boxes (1, 99, 4); scores (1, 99, 21)', {'class_count': 21}),
    ('boxes boxes_normalised', 'boxes (1, 99, 4); scores (1, 99); labels (1, 99) int64', {}),
    ('boxes boxes_normalised', 'boxes (1, 99, 4); confidence (1, 99)', {}),
])
def test_what_shape_and_name_leave_open_is_for_the_user(families, outputs, others):
    with pytest.raises(TensorMismatchError, match='More than one decoder') as error:
        choose(outputs, **others)
    candidates = re.findall(r'(?:^|; )(\w+): ', error.value.cause)
    assert candidates == families.split()
    for family in candidates:
        assert choose(outputs, **{**others, 'name': family}).name == family


@pytest.mark.parametrize(('outputs', 'others'), [
    ('output0 (1, 25200, 85)', {'metadata': ULTRALYTICS}),
    ('output (1, 25201, 85)', {}),
    ('output (1, 25200, 5)', {}),
    ('output0 (1, 84, 8400)', {'metadata': {**ULTRALYTICS, 'end2end': 'True'}}),
    ('logits (1, 300, 80); pred_boxes (1, 300, 4)', {'class_count': 4}),
    ('logits (1, 300, 80); pred_boxes (1, 300, 6)', {}),
    ('dets (1, 100, 5); labels (1, 100) int64', {}),
    ('boxes (1, 99, 4)', {}),
    ('boxes (1, 99, 4); scores (1, 98, 21)', {}),
    ('boxes (1, 99, 4); scores (1, 99, 21)', {'class_count': 7}),
    ('boxes (1, 99, 4); scores (1, 99, 21); masks (1, 99, 28, 28)', {}),
    ('boxes (2, 99, 4); scores (2, 99, 21)', {}),
    ('num (1) int32; boxes (1, 99, 4); scores (1, 99)', {}),
    ('chosen (?, 3) int64; boxes (1, 99, 4)', {}),
    ('cov (1, 3, 34, 60); bbox (1, 12, 34, 60)', {'hw': (640, 640)}),
    ('cov (1, 3, 40, 40); bbox (1, 12, 20, 20)', {}),
    ('cov (1, 3, 40, 40); bbox (1, 11, 40, 40)', {}),
])
def test_others_are_not(outputs, others):
    with pytest.raises(TensorMismatchError, match='No decoder recognises'):
        choose(outputs, **others)


@pytest.mark.parametrize('family', FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize('outputs', ['none', 'x (1, 1000)', 'x (1, 3, 2, 2); y (1, 7)'])
def test_a_name_that_cannot_fit_says_what_it_expects_and_what_helps(family, outputs):
    with pytest.raises(TensorMismatchError, match='expected') as error:
        choose(outputs, name=family.name)
    assert error.value.remedy


def test_only_the_families_that_ask_for_it_are_fed_a_size():
    deployed = 'labels (1, 9) int64; boxes (1, 9, 4); scores (1, 9)'
    fed = choose(deployed, inputs='orig_target_sizes (1, 2) int64', hw=(480, 640)).extra_inputs
    assert fed['orig_target_sizes'].tolist() == [[640, 480]]
    assert fed['orig_target_sizes'].dtype == 'int64'
    fed = choose('boxes (1, ?, 4); scores (1, 80, ?); chosen (?, 3) int32',
                 inputs='image_shape (1, 2)', hw=(480, 640)).extra_inputs
    assert fed['image_shape'].tolist() == [[480, 640]]
    assert choose('output (1, 300, 6)').extra_inputs == {}


def test_the_docs_have_every_family_in_the_tables_of_exports_and_of_preprocessing():
    text = (Path(__file__).parents[3] / 'docs' / 'models.md').read_text()
    detectors, others, preprocessing = re.findall(r'((?:^\|.*\n)+)', text, re.MULTILINE)[:3]
    tasks = (SEGMENTERS, POSES, ORIENTED, CLASSIFIERS, DEPTHS, EMBEDDINGS)
    elsewhere = [family.name for task in tasks for family in task]
    for table, families in (
            (detectors, [family.name for family in FAMILIES]), (others, elsewhere),
            (preprocessing, [*(family.name for family in FAMILIES), *elsewhere])):
        first_column = ' '.join(re.findall(r'^\| (`.*?) \|', table, re.MULTILINE))
        named = re.findall(r'`(\w+)`', first_column.replace('`decoder`', ''))
        assert sorted(named) == sorted(families)
