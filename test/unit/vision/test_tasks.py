"""Which task and family a network is taken for: a row a rule."""

from __future__ import annotations

import re

import pytest

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision import decoder
from trt_ros.vision.family import Network
from trt_ros.vision.letterbox import Preprocess

TABLE = {
    'detect': decoder.FAMILIES, 'segment': decoder.SEGMENTERS, 'pose': decoder.POSES,
    'obb': decoder.ORIENTED, 'classify': decoder.CLASSIFIERS, 'depth': decoder.DEPTHS,
    'embed': decoder.EMBEDDINGS}
OTHERS = [family for task, families in TABLE.items() if task != 'detect' for family in families]


def network(outputs, *, task='', names=None, hw=(640, 640), class_count=None, **metadata):
    """Read 'name (1, ?, 4) float32; ..'; float32 may be left out."""
    specs = []
    for name, shape, dtype in re.findall(r'(\S+) \(([^)]*)\)(?: (\w+))?', outputs):
        sizes = tuple(-1 if size == '?' else int(size) for size in re.findall(r'[?\d]+', shape))
        specs.append(TensorSpec(name, sizes, dtype or 'float32', 'output'))
    metadata = {**metadata, **({'task': task} if task else {})}
    image = TensorSpec('images', (1, 3, *hw), 'float32', 'input')
    return Network((image,), tuple(specs), metadata, hw, names or class_count)


SEG = 'output0 (1, 116, 8400); output1 (1, 32, 160, 160)'
SEG_26 = 'output0 (1, 300, 38); output1 (1, 32, 160, 160)'
POSE = {'task': 'pose', 'kpt_shape': '[17, 3]'}


@pytest.mark.parametrize(('family', 'classes', 'outputs', 'others'), [
    ('yolov8_seg', 80, SEG, {'task': 'segment', 'names': 80}),
    ('yolov8_seg', 80, SEG, {}),
    ('yolov8_seg', 80, 'protos (1, 32, 160, 160); boxes (1, 116, 8400)', {}),
    ('yolov8_seg', 80, 'output0 (?, 116, ?); output1 (?, 32, ?, ?)', {'task': 'segment'}),
    ('yolov8_seg', None, SEG_26, {'task': 'segment', 'names': 80, 'end2end': 'True'}),
    ('yolov8_seg', None, SEG_26, {}),
    ('yolov8_pose', 1, 'output0 (1, 56, 8400)', {**POSE, 'names': 1}),
    ('yolov8_pose', 1, 'output0 (1, 56, 8400)', {}),
    ('yolov8_pose', 2, 'output0 (1, 15, 8400)', {'class_count': 2}),
    ('yolov8_pose', 1, 'output0 (1, 13, 8400)', {'task': 'pose', 'kpt_shape': '[4, 2]'}),
    ('yolov8_pose', None, 'output0 (1, 300, 57)', {**POSE, 'end2end': 'True'}),
    ('yolov8_pose', None, 'output0 (1, 300, 57)', {}),
    ('yolov8_obb', 15, 'output0 (1, 20, 8400)', {'task': 'obb', 'names': 15}),
    ('yolov8_obb', 15, 'output0 (1, 20, 8400)', {}),
    ('yolov8_obb', None, 'output0 (1, 300, 7)', {'task': 'obb', 'end2end': 'True'}),
    ('yolov8_cls', 1000, 'output0 (1, 1000)', {'task': 'classify', 'names': 1000}),
    ('classifier', 1000, 'logits (1, 1000)', {}),
    ('classifier', 9, 'logits (?, 9, 1, 1)', {'class_count': 9}),
    ('classifier', None, 'logits (?, ?)', {}),
    ('semantic', 21, 'out (1, 21, 640, 640)', {}),
    ('semantic', 150, 'logits (1, 150, 128, 128)', {'hw': (512, 512)}),          # SegFormer
    ('semantic', 2, 'sigmoid (1, 1, 544, 960)', {'hw': (544, 960)}),
    ('semantic', 2, 'softmax_1 (1, 544, 960, 2)', {'hw': (544, 960)}),            # PeopleSemSegNet
    ('semantic', None, 'argmax_1 (1, 544, 960, 1) int32', {'hw': (544, 960)}),
    ('semantic', None, 'out (1, 640, 640) int64', {}),
    ('semantic', None, 'out (1, ?, ?) int64', {}),
    ('yolo_semantic', None, 'output0 (1, 640, 640) uint8', {'task': 'semantic', 'names': 19}),
    ('depth', None, 'predicted_depth (1, 518, 518)', {'hw': (518, 518)}),
    ('depth', None, 'out (1, 1, 266, 476)', {'hw': (266, 476)}),
    ('depth', None, 'depth (1, 1, 280, 504); sky (1, 1, 280, 504)', {'hw': (280, 504)}),
    ('yolo_depth', None, 'output0 (1, 1, 640, 640)', {'task': 'depth'}),
    ('embedding', None, 'image_embeds (1, 512)', {}),
    ('embedding', None, 'last_hidden_state (1, 257, 768); pooler_output (1, 768)', {}),
])
def test_a_network_is_recognised(family, classes, outputs, others):
    task = next(row.task for row in OTHERS if row.name == family)
    seen = network(outputs, **others)
    chosen, why = decoder.choose_family(TABLE[task], 'auto', seen)
    assert chosen.name == family
    assert any(spec.name in why for spec in seen.outputs) and '\n' not in why
    assert getattr(chosen.open(seen), 'class_count', None) == classes


@pytest.mark.parametrize(('task', 'outputs', 'others'), [
    ('segment', 'output0 (1, 84, 8400)', {}),
    ('segment', 'output0 (1, 116, 8400); output1 (1, 32, 160, 90)', {}),
    ('segment', 'output0 (1, 116, 8400); output1 (1, 32, 160, 160)', {'class_count': 81}),
    ('segment', 'output0 (1, 36, 8400); output1 (1, 32, 160, 160)', {}),
    ('segment', 'out (1, 21, 640, 480)', {}),
    ('segment', 'out (1, 21, 640, 640)', {'class_count': 3}),
    ('segment', 'depth (1, 1, 640, 640)', {}),
    ('segment', 'out (2, 21, 640, 640)', {}),
    ('pose', 'output0 (1, 55, 8400)', {}),
    ('pose', 'output0 (1, 56, 8401)', {}),
    ('obb', 'output0 (1, 5, 8400)', {}),
    ('obb', 'output0 (1, 20, 8401)', {}),
    ('classify', 'out (1, 9)', {'class_count': 10}),
    ('classify', 'out (1, 9) int64', {}),
    ('classify', 'out (1, 9, 9)', {}),
    ('depth', 'out (1, 2, 640, 640)', {}),
    ('depth', 'out (1, 640, 640) int32', {}),
    ('depth', 'near_depth (1, 640, 640); far_depth (1, 640, 640)', {}),
    ('embed', 'a (1, 9); b (1, 9)', {}),
    ('embed', 'scores (1, 99); boxes (1, 99, 4)', {}),
])
def test_others_are_not(task, outputs, others):
    with pytest.raises(TensorMismatchError) as error:
        decoder.choose_family(TABLE[task], 'auto', network(outputs, **others))
    assert 'More than one' not in error.value.problem


@pytest.mark.parametrize('name', ['auto', 'yolov8'])
@pytest.mark.parametrize(('stated', 'kind'), [
    ('segment', 'a segmentation'), ('semantic', 'a segmentation'), ('pose', 'a keypoint'),
    ('obb', 'an oriented-box'), ('classify', 'a classification'), ('depth', 'a depth')])
def test_a_detector_does_not_open_what_says_it_is_something_else(stated, kind, name):
    seen = network('output0 (1, 84, 8400)', task=stated)
    with pytest.raises(TensorMismatchError) as error:
        decoder.choose_family(decoder.FAMILIES, name, seen)
    assert error.value.problem == f'This is {kind} network; the detector serves detection.'
    assert f"'task' is '{stated}'" in error.value.cause
    assert error.value.remedy == 'Give a network for detection.'


@pytest.mark.parametrize(('outputs', 'kind'), [
    (SEG, 'a segmentation'),
    (SEG_26, 'a segmentation'),
    ('out (1, 21, 640, 640)', 'a segmentation'),
    ('output0 (1, 300, 57)', 'a keypoint'),
    ('out (1, 1000)', 'a classification or embedding'),
    ('depth (1, 640, 640)', 'a depth'),
    ('out (1, 1, 640, 640)', 'a segmentation or depth'),
])
def test_a_detector_tells_by_the_shape_what_a_network_may_be_instead(outputs, kind):
    with pytest.raises(TensorMismatchError) as error:
        decoder.choose_family(decoder.FAMILIES, 'auto', network(outputs))
    assert error.value.problem == f'This looks like {kind} network; the detector serves detection.'
    assert outputs.split()[0] in error.value.cause
    assert 'If it is one: Set `decoder` to yolov8, ' in error.value.remedy


def test_another_task_is_told_as_well_what_it_was_given():
    with pytest.raises(TensorMismatchError, match='a detection network; a keypoint network is w'):
        decoder.choose_family(decoder.POSES, 'auto', network('out (1, 84, 8400)', task='detect'))


@pytest.mark.parametrize('family', OTHERS, ids=lambda family: family.name)
@pytest.mark.parametrize(
    'outputs', ['none', 'x (1, 2, 3, 4, 5)', 'x (1, 3, 2, 2); y (1, 3, 2, 2)'])
def test_a_name_that_cannot_fit_says_what_it_expects_and_what_helps(family, outputs):
    seen = network(outputs)
    assert decoder.choose_family(TABLE[family.task], family.name, seen) == (family, 'as asked')
    with pytest.raises(TensorMismatchError, match='expected') as error:
        family.open(seen)
    assert error.value.remedy


def test_an_unknown_name_lists_those_of_the_task():
    with pytest.raises(ParameterError, match=r'Set `decoder` to yolov8_pose\.$'):
        decoder.choose_family(decoder.POSES, 'yolov8', network('output0 (1, 56, 8400)'))


def test_each_family_brings_preprocessing_that_can_be_honoured():
    fields = {family.name: Preprocess((64, 64), **family.preprocess) for family in OTHERS}
    assert fields['yolov8_seg'].resize == 'letterbox'
    assert (fields['semantic'].resize, fields['semantic'].mean[0]) == ('stretch', 0.485)
    assert len(fields) == len(OTHERS)


@pytest.mark.parametrize(('name', 'outputs', 'others'), [
    ('embedding', 'image_embeds (1, 512)', {}),
    ('tensor', 'a (1, 3, 5); b (7) int64', {}),
    ('tensor', 'output0 (1, 56, 8400)', POSE),
])
def test_any_network_gives_tensors(name, outputs, others):
    chosen, _ = decoder.choose_family(decoder.TENSORS, 'auto', network(outputs, **others))
    assert chosen.name == name
