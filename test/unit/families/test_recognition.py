"""Recognition of the decoder by outputs and metadata."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
import random
import re
from types import SimpleNamespace

import pytest

from support.descriptions import TASKS
from support.recognized_networks import COCO, CUT, SEG, TOLD, TWO, bins, cut
from trt_ros.decode.choice import open_head
from trt_ros.decode.cuda.choice import gpu_decoder
from trt_ros.errors import TensorMismatchError
from trt_ros.families import registry as decoder
from trt_ros.families.family import NetworkDescription
from trt_ros.families.registry import choose_family
from trt_ros.tensors import TensorSpec

MODELS = (Path(__file__).parents[3] / 'docs' / 'models.md').read_text()
DETECTORS = {family.name: family for families in TASKS.values() for family in families}

PIXELS = 'cx, cy, w, h in pixels'
CELL = 'box relative to its cell, objectness'
CORNERS = {'boxes': 'x1, y1, x2, y2 in pixels', 'boxes_normalised': 'x1, y1, x2, y2 from 0 to 1'}
PADDLE = {
    'ppyoloe': ', trained with mean (0.485, 0.456, 0.406), std (0.229, ',
    'ppyoloe_plus': ', trained with no mean, no std',
}
SCALED = {'inputs': 'scale_factor (1, 2)'}
RAW = 'a (1, 3, 80, 80, 85); b (1, 3, 40, 40, 85); c (1, 3, 20, 20, 85)'
#: Families and parts of their reasons; and the network.
AMBIGUOUS = [
    ({'yolox': f'{CELL}, 80 class scores', 'yolov5': PIXELS}, 'head (1, ?, 85)', {}),
    (
        {'yolov8': f'{PIXELS}, 4 class scores', 'yolox': f'{CELL}, 3 class scores'},
        *('head (1, 8400, 8)', {}),
    ),
    (
        {
            'yolov8': f'{PIXELS}, 2 class scores',
            'yolox': f'{CELL}, 1 class score',
            'yolov5': f'{PIXELS}, objectness, 1 class score',
            'yolov10': 'x1, y1, x2, y2 in pixels, score, class',
        },
        *('head (1, ?, 6)', {}),
    ),
    (
        {
            'yolov8': '38 class scores',
            'nanodet_plus': '10 class scores, distances to the sides as 8 bins each',
        },
        *('head (1, 8500, 42)', {}),
    ),
    (
        {'yolox': '79 class scores', 'nanodet': '52 class scores, distances to the sides as 8'},
        *('output (1, 8400, 84)', {}),
    ),
    (
        {'yolov10': 'score, class (metadata of Ultralytics)', 'rtdetr': 'from 0 to 1, 2 class sc'},
        *('output0 (1, 300, 6)', TWO),
    ),
    (
        {'rtdetr': '91 class scores; cx, cy', 'detr': '90 class scores, "no object"; cx, cy'},
        *('logits (1, 300, 91); pred_boxes (1, 300, 4)', {}),
    ),
    (
        {
            'ssd': 'background, 20 class scores',
            'boxes': CORNERS['boxes'],
            'boxes_normalised': f'{CORNERS["boxes_normalised"]}; 21 class scores',
        },
        *('boxes (1, 99, 4); scores (1, 99, 21)', {}),
    ),
    (CORNERS, 'boxes (1, 99, 4); scores (1, 99, 21)', {'class_count': 21}),
    (CORNERS, 'boxes (1, 99, 4); scores (1, 99); labels (1, 99) int64', {}),
    (CORNERS, 'boxes (1, 99, 4); confidence (1, 99)', {}),
    ({'semantic': 'score', 'depth': 'depth'}, 'out (1, 1, 640, 640)', {}),
    (
        {'yolov5_raw': 'anchors of 10x13 to 373x326', 'yolov7_raw': 'anchors of 12x16 to 459x401'},
        *(RAW, {}),
    ),
    (PADDLE, 'rows (?, 6); numbers (1) int32', SCALED),
    (PADDLE, 'numbers (?) int32; rows (?, 6)', {'class_count': 3, **SCALED}),
    (PADDLE, 'boxes (1, 8400, 4); scores (1, 80, 8400)', SCALED),
    (PADDLE, 'boxes (1, ?, 4); scores (1, 80, ?)', SCALED),
    (PADDLE, CUT, cut(**SCALED)),
    ({'classifier': '100 class scores', 'embedding': 'vector'}, 'out (1, 100)', {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(('family', 'classes', 'evidence', 'outputs', 'known'), TOLD)
def test_a_network_is_recognized(network, family, classes, evidence, outputs, known):
    seen = network(outputs, **known)
    chosen, why = choose_family(TASKS[DETECTORS[family].task], 'auto', seen)
    assert (chosen.name, why.endswith(evidence)) == (family, True), why
    assert family == 'tensor' or any(str(spec) in why for spec in seen.outputs)
    assert '\n' not in why
    assert open_head(chosen, seen).class_count == classes
    if not (chosen.words and evidence == 'no evidence but the shape'):
        strict = replace(seen, strict=True)  # It needs no answer.
        assert choose_family(TASKS[chosen.task], 'auto', strict)[0].name == family


@pytest.mark.parametrize(('evidence', 'outputs', 'known'), AMBIGUOUS)
def test_ambiguous_networks_are_refused_with_the_evidence(network, evidence, outputs, known):
    seen = network(outputs, **known)
    tasks = dict.fromkeys(DETECTORS[name].task for name in evidence)
    with pytest.raises(TensorMismatchError, match='More than one decoder') as error:
        choose_family(sum((TASKS[task] for task in tasks), ()), 'auto', seen)
    fields, *listed = error.value.cause.split('\n  ')
    assert fields == f'Seen: {seen}.'
    assert 'docs/models.md' in error.value.remedy
    assert 'The node `tensor` runs any network' in error.value.remedy
    claims = [claim.split(': ', 1) for claim in listed]
    assert sorted(family for family, _ in claims) == sorted(evidence)
    for family, why in claims:
        assert evidence[family] in why
        open_head(choose_family((DETECTORS[family],), family, seen)[0], seen)


@pytest.mark.parametrize(
    ('outputs', 'remedy'),
    [
        (
            'hm (1, 80, 160, 160); hps (1, 34, 160, 160); wh (1, 2, 160, 160); '
            'reg (1, 2, 160, 160)',
            'Set outputs to hm, wh, reg (decoder centernet). This is a guess, as no decoder ',
        ),
        (
            'dets (1, 100, 5); labels (1, 100) int64; masks (1, 100, 28, 28)',
            'Set outputs to dets, labels (decoder mmdetection).',
        ),
        (
            'class_queries_logits (1, 100, 134); masks_queries_logits (1, 100, 160, 160); '
            'transformer_decoder_last_hidden_state (1, 100, 256); '
            'pixel_decoder_last_hidden_state (1, 256, 160, 160)',
            'Set outputs to class_queries_logits, masks_queries_logits (decoder maskformer). ',
        ),
    ],
)
def test_the_error_names_the_outputs_that_are_decoded(network, outputs, remedy):
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family(decoder.ALL_FAMILIES, 'auto', network(outputs))
    assert error.value.remedy.startswith(remedy)


BOXES_AND_SCORES = 'boxes (1, 99, 4); scores (1, 99, 21)'


@pytest.mark.parametrize(
    ('outputs', 'known', 'about_labels'),
    [
        ('head (1, 8400, 8)', {}, '(`labels`) may decide'),
        (BOXES_AND_SCORES, {}, '(`labels`) may decide'),
        (BOXES_AND_SCORES, {'class_count': 21}, '21 named classes cannot decide'),
        ('boxes (1, 99, 4); confidence (1, 99)', {}, None),
        ('rows (?, 6); numbers (1) int32', SCALED, None),
    ],
)
def test_the_error_says_whether_labels_decide(network, outputs, known, about_labels):
    with pytest.raises(TensorMismatchError, match='More than one decoder') as error:
        choose_family(decoder.DETECTORS, 'auto', network(outputs, **known))
    remedy = error.value.remedy
    assert about_labels in remedy if about_labels else 'classes' not in remedy


@pytest.mark.parametrize(
    ('channels', 'points'),
    [
        (16, 'keypoints, score'),  # YOLOv5-face
        (21, 'score, 5 keypoints'),  # YOLOv7-face
        (57, 'score, 17 keypoints'),  # YOLOv7-pose
    ],
)
@pytest.mark.parametrize('known', [{}, {'class_count': 1}])
def test_a_possible_landmark_head_is_not_recognized_as_classes(network, channels, points, known):
    seen = network(f'output (1, 25200, {channels})', **known)
    with pytest.raises(TensorMismatchError, match='looks like a keypoint network') as error:
        choose_family(decoder.DETECTORS, 'auto', seen)
    assert f'in pixels, objectness, {points}: ' in error.value.cause
    assert error.value.remedy.startswith('Run the node `pose`. If it is a detection network, ')
    assert known or 'set `decoder` to yolov5 ' in error.value.remedy
    family, _ = choose_family(decoder.POSES, 'auto', seen)
    assert open_head(family, seen).class_count == 1


BOTH = (*decoder.DETECTORS, *decoder.ORIENTED)
PERSON = {'hw': (256, 192), 'class_count': 1}
QUERIES = 'dets (1, 100, 4); labels (1, 100, 91); masks (1, 100, 78, 78)'


@pytest.mark.parametrize(
    ('families', 'outputs', 'known', 'family'),
    [
        (BOTH, 'output0 (1, 84, 8400)', {}, 'yolov8'),
        (BOTH, 'output0 (1, 84, 8400)', {'class_count': 80}, 'yolov8'),
        (BOTH, 'output0 (1, 84, 8400)', {'class_count': 79}, 'yolov8_obb'),
        # Of seven scores, which are no boxes.
        (decoder.CLASSIFIERS, 'out (1, 7)', {}, 'classifier'),
        (decoder.CLASSIFIERS, 'out (?, 7)', {'class_count': 7}, 'classifier'),
        (decoder.ALL_FAMILIES, 'heatmaps (?, 17, ?, ?)', PERSON, 'heatmap_pose'),
        (decoder.ALL_FAMILIES, 'out (1, 17, 64, 48)', PERSON, 'heatmap_pose'),
        # Among all, the family that reads more outputs.
        (decoder.ALL_FAMILIES, QUERIES, {'hw': (312, 312)}, 'rfdetr_seg'),
        (decoder.DETECTORS, QUERIES, {'hw': (312, 312)}, 'rfdetr'),
    ],
)
def test_the_family_depends_on_the_task_and_the_names(network, families, outputs, known, family):
    assert choose_family(families, 'auto', network(outputs, **known))[0].name == family


def test_columns_of_several_families_and_additional_outputs_of_a_classifier_are_refused(network):
    with pytest.raises(TensorMismatchError, match='More than one decoder'):
        choose_family(BOTH, 'auto', network('output0 (1, 20, 8400)'))
    seen = network('out (1, 9); features (1, 9, 7, 7)', task='classify')
    with pytest.raises(TensorMismatchError, match='No decoder recognizes'):
        choose_family(decoder.CLASSIFIERS, 'auto', seen)
    with pytest.raises(TensorMismatchError, match='class scores as the only output'):
        open_head(DETECTORS['yolov8_cls'], seen)


def test_the_columns_of_people_are_keypoints_and_boxes_of_mmdeploy_no_queries(network):
    seen = network('output0 (1, 56, 8400)')
    with pytest.raises(TensorMismatchError, match='looks like a keypoint network') as error:
        choose_family(BOTH, 'auto', seen)
    assert '17 keypoints as in published networks' in error.value.cause
    assert 'set `decoder` to yolov8 (docs/models.md)' in error.value.remedy
    assert choose_family((*BOTH, *decoder.POSES), 'auto', seen)[0].name == 'yolov8_pose'
    seen = network('dets (1, 100, 5); labels (1, 100) int64; masks (1, 100, 64, 64)')
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family(decoder.SEGMENTERS, 'auto', seen)
    assert 'maskformer' not in error.value.remedy
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family(decoder.DETECTORS, 'auto', seen)
    assert 'Set outputs to dets, labels (decoder mmdetection)' in error.value.remedy


@pytest.mark.parametrize(
    ('outputs', 'task', 'advice'),
    [
        ('output (?, 7)', 'detect', 'YOLOv7 exported with --max-wh'),
        ('output (?, 7)', 'classify', 'YOLOv7 exported with --max-wh'),
        ('output (100, 7)', 'detect', 'YOLOv7 exported with --max-wh'),
        ('graph2_flat_predictions (?, 7)', 'detect', 'YOLO-NAS with NMS inside'),
        (
            'c0 (1, 80, 80, 80); c1 (1, 80, 40, 40); c2 (1, 80, 20, 20); '
            'r0 (1, 4, 80, 80); r1 (1, 4, 40, 40); r2 (1, 4, 20, 20)',
            'detect',
            'such as RTMDet',
        ),
        (
            'a (1, 255, 80, 80); b (1, 255, 40, 40); c (1, 255, 20, 20)',
            'detect',
            'export it with decoded boxes',
        ),
        (
            'c (1, 20, 20, 85); a (1, 80, 80, 85); b (1, 40, 40, 85)',
            'segment',
            'export it with decoded boxes',
        ),
        ('dets (1, ?, 5); keypoints (1, ?, 17, 3)', 'pose', 'use RTMPose on the regions'),
    ],
)
def test_the_error_says_how_to_export_a_known_network(network, outputs, task, advice):
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family(TASKS[task], 'auto', network(outputs))
    assert advice in error.value.remedy and 'Set outputs' not in error.value.remedy


@pytest.mark.parametrize('shape', ['68, 18', '197, 768', '257, 384'])
def test_features_are_no_keypoints(network, shape):
    with pytest.raises(TensorMismatchError, match='No decoder recognizes'):
        choose_family(decoder.ALL_FAMILIES, 'auto', network(f'last_hidden_state (1, {shape})'))


@pytest.mark.parametrize(
    ('name', 'known'),
    [('yolov5', {}), ('auto', {'class_count': 11}), ('auto', {'class_count': 11, 'stride': '32'})],
)
def test_decoder_option_or_class_names_resolve_ambiguity(network, name, known):
    seen = network('output (1, 25200, 16)', **known)
    family, _ = choose_family(decoder.DETECTORS, name, seen)
    assert (family.name, open_head(family, seen).class_count) == ('yolov5', 11)


def test_every_family_recognizes_a_network_and_the_docs_say_how_many_are_recognized():
    told = {family for family, *_ in TOLD} | {
        family for claims, *_ in AMBIGUOUS for family in claims
    }
    assert {name for name, family in DETECTORS.items() if family.layouts} == (
        told - {'tensor'} | {'multi_label'}
    )
    numbers = f'{len(TOLD)} are\nrecognized, and {len(AMBIGUOUS)} fit several families.'
    assert numbers in MODELS


@pytest.mark.parametrize(
    ('family', 'evidence', 'outputs', 'known'),
    [
        ('yolov8', '81 named classes', 'output (1, 8400, 85)', {'class_count': 81}),
        ('yolox', '79 named classes', 'output0 (1, 8400, 84)', {'class_count': 79}),
        ('nanodet', '3 named classes', 'output0 (1, 8400, 35)', {'class_count': 3}),
        ('yolov8', 'named output0', 'output0 (1, 8400, 85)', {}),
        ('yolox', 'named output', 'output (1, 8400, 8)', {}),
        ('yolov5', 'named outputs', 'outputs (1, 8400, 84)', {}),
        ('yolov8', '80 classes of COCO', 'head (1, 8400, 84)', {}),
        ('yolox', '80 classes of COCO', 'head (1, 8400, 85)', {}),
        ('nanodet', '80 classes of COCO', 'output (1, 8400, 112)', {}),
    ],
)
def test_the_strongest_evidence_decides_between_equal_shapes(
    network, family, evidence, outputs, known
):
    chosen, why = choose_family(decoder.DETECTORS, 'auto', network(outputs, **known))
    assert (chosen.name, evidence in why) == (family, True)


@pytest.mark.parametrize(
    ('outputs', 'count', 'family'),
    [
        ('out (1, 21, 640, 640)', 19, 'semantic'),
        ('boxes (1, 8400, 4); scores (1, 8400, 21)', 19, 'boxes'),
        ('out (1, 9)', 10, 'classifier'),
        ('output0 (1, 84, 8400)', 20, 'yolov8'),
        ('output (1, 25200, 85)', 2, 'yolov5'),
        ('output (1, 8400, 83)', 1, 'yolox'),
        ('output (1, 2125, 112)', 3, 'nanodet_plus'),
        ('cov (1, 3, 40, 40); bbox (1, 12, 40, 40)', 20, 'detectnet_v2'),
    ],
)
def test_names_of_another_number_of_classes_are_a_refusal(network, outputs, count, family):
    hw = (320, 320) if '2125' in outputs else (640, 640)
    named = f'with {count} named class{"es" * (count > 1)}[.]'
    with pytest.raises(TensorMismatchError, match=named) as error:
        choose_family(
            TASKS[DETECTORS[family].task], 'auto', network(outputs, hw=hw, class_count=count)
        )
    assert f' {family}: ' in error.value.cause.partition('Without the names, it may be')[2]
    assert 'one name per class' in error.value.remedy


@pytest.mark.slow
@pytest.mark.parametrize(
    ('task', 'outputs', 'known'),
    [
        ('detect', 'output0 (1, 25200, 85)', COCO),
        ('detect', 'output (1, 25201, 85)', {}),
        ('detect', 'output (1, 25200, 5)', {}),
        ('detect', 'output (1, 3549, 8)', {}),
        ('detect', 'output (1, 8501, 112)', {}),
        ('detect', 'rows (?, 6); numbers (1) int32', {}),
        ('detect', 'boxes (1, 8400, 4); scores (1, 80, 8400)', {}),
        ('detect', bins((8, 16, 32, 64), 80, 416), {}),
        ('detect', bins((8, 16, 32, 64), 80, 640), {'class_count': 3}),
        ('detect', 'output0 (1, 84, 8400)', {**COCO, 'end2end': 'True'}),
        ('detect', 'logits (1, 300, 80); pred_boxes (1, 300, 4)', {'class_count': 4}),
        ('detect', 'logits (1, 300, 80); pred_boxes (1, 300, 6)', {}),
        ('detect', 'dets (1, 100, 5); labels (1, 100)', {}),
        ('segment', 'output0 (1, 25200, 117); output1 (1, 32, 160, 160)', {'class_count': 81}),
        ('pose', 'output (1, 25200, 85)', {}),
        ('pose', 'output (1, 25200, 16)', {'class_count': 11}),
        ('detect', 'boxes (1, 99, 4)', {}),
        ('detect', 'boxes (1, 99, 4); scores (1, 98, 21)', {}),
        ('detect', 'boxes (1, 99, 4); scores (1, 99, 21)', {'class_count': 7}),
        ('detect', 'boxes (1, 99, 4); scores (1, 99, 21); masks (1, 99, 28, 28)', {}),
        ('detect', 'boxes (2, 99, 4); scores (2, 99, 21)', {}),
        ('detect', 'num (1) int32; boxes (1, 99, 4); scores (1, 99)', {}),
        ('detect', 'chosen (?, 3) int64; boxes (1, 99, 4)', {}),
        ('detect', 'cov (1, 3, 34, 60); bbox (1, 12, 34, 60)', {'hw': (640, 640)}),
        ('detect', 'cov (1, 3, 40, 40); bbox (1, 12, 20, 20)', {}),
        ('detect', 'cov (1, 3, 40, 40); bbox (1, 11, 40, 40)', {}),
        ('segment', 'output0 (1, 84, 8400)', {}),
        ('segment', 'output0 (1, 116, 8400); output1 (1, 32, 160, 90)', {}),
        ('segment', 'output0 (1, 116, 8400); output1 (1, 32, 160, 160)', {'class_count': 81}),
        ('segment', 'output0 (1, 36, 8400); output1 (1, 32, 160, 160)', {}),
        ('segment', 'out (1, 21, 640, 480)', {}),
        ('segment', 'out (1, 21, 640, 640)', {'class_count': 3}),
        ('segment', 'depth (1, 1, 640, 640)', {}),
        ('segment', 'a (1, 100, 20); b (1, 99, 160, 160)', {}),
        ('segment', 'a (1, 100, 20); b (1, 100, 160, 90)', {}),
        ('segment', 'a (1, 100, 20); b (1, 100, 160, 160)', {'class_count': 20}),
        ('segment', 'dets (1, 9, 4); labels (1, 9, 91); masks (1, 8, 160, 160)', {}),
        ('segment', 'dets (1, 9, 4); labels (1, 9, 91); masks (1, 9, 160, 90)', {}),
        ('segment', 'out (2, 21, 640, 640)', {}),
        ('segment', SEG, {'task': 'detect'}),
        ('segment', 'heatmaps (1, 21, 64, 64)', {'hw': (256, 256)}),
        ('segment', 'heatmaps (?, 17, ?, ?)', {'hw': (256, 192)}),
        ('segment', 'output (1, 17, 64, 48)', {'hw': (256, 192)}),
        ('pose', 'output0 (1, 55, 8400)', {}),
        ('pose', 'output0 (1, 56, 8400)', {'task': 'detect'}),
        ('pose', 'output0 (1, 56, 8401)', {}),
        ('pose', 'out (1, 21, 64, 64)', {'hw': (256, 256)}),
        ('pose', 'out (1, 17, 64, 64)', {}),
        ('pose', 'out (?, 17, ?, ?)', {'hw': (256, 192)}),
        ('pose', 'heatmaps (1, 17, ?, 64)', {'hw': (256, 192)}),
        ('pose', 'out (1, 17, 64, 48)', {'hw': (256, 192), 'class_count': 17}),
        ('pose', 'x (1, 17, 384); y (1, 17, 513)', {'hw': (256, 192)}),
        ('pose', 'x (1, 17, 384); y (1, 16, 512)', {'hw': (256, 192)}),
        ('pose', 'x (1, 17, 96); y (1, 17, 128)', {'hw': (256, 192)}),
        ('pose', 'x (1, 17, 384)', {'hw': (256, 192)}),
        ('pose', 'x (1, 17, 384); y (1, 17, 300)', {'hw': (256, 192)}),
        ('pose', 'heatmaps (1, 17, 64)', {'hw': (256, 192)}),
        ('pose', 'heatmaps (1, 17, 64, 48) int64', {'hw': (256, 192)}),
        ('pose', 'a (1, 63); b (1, 2)', {'hw': (224, 224)}),
        ('pose', 'a (1, 63); b (1, 63)', {'hw': (224, 224)}),
        ('pose', 'a (1, 63); b (1, 1); c (1, 1); d (1, 1)', {'hw': (224, 224)}),
        ('pose', 'a (1, 60); b (1, 1)', {'hw': (224, 224)}),
        ('pose', 'pred_logits (1, 7, 4); pred_curves (1, 7, 8)', {'hw': (360, 640)}),
        ('pose', 'pred_logits (1, 7, 2); pred_curves (1, 5, 8)', {'hw': (360, 640)}),
        ('pose', 'out (1, 7, 2); curves (1, 7, 8)', {'hw': (360, 640)}),
        ('pose', 'out (1, 101, 55, 4)', {'hw': (288, 800)}),
        ('pose', 'a (1, 200, 72, 4); b (1, 2, 72, 4)', {'hw': (320, 1600)}),
        (
            'pose',
            'a (1, 200, 72, 4); b (1, 2, 72, 4); c (1, 100, 41, 4); d (1, 2, 41, 4)',
            {'hw': (320, 1600)},
        ),
        ('obb', 'output0 (1, 5, 8400)', {}),
        ('obb', 'output0 (1, 20, 8400)', {'task': 'detect'}),
        ('obb', 'output0 (1, 20, 8401)', {}),
        ('classify', 'out (1, 9)', {'class_count': 10}),
        ('classify', 'out (1, 9) int64', {}),
        ('classify', 'out (1, 9, 9)', {}),
        ('depth', 'out (1, 2, 640, 640)', {}),
        ('depth', 'out (1, 640, 640) int32', {}),
        ('depth', 'near_depth (1, 640, 640); far_depth (1, 640, 640)', {}),
        ('embed', 'a (1, 9); b (1, 9)', {}),
        ('embed', 'scores (1, 99); boxes (1, 99, 4)', {}),
    ],
)
def test_other_networks_are_not_recognized(network, task, outputs, known):
    seen = network(outputs, **known)
    with pytest.raises(TensorMismatchError, match=r'No decoder recognizes|This (looks like|is) a'):
        choose_family(TASKS[task], 'auto', seen)


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(12))
def test_any_description_gets_a_decoder_or_an_error(seed):
    rng = random.Random(seed)
    names = ('output0', 'boxes', 'scores', 'logits', 'dets', 'labels', 'depth', 'pool', 'x', '')
    sizes = (-1, 0, 1, 1, 2, 4, 5, 6, 7, 17, 56, 80, 84, 85, 160, 300, 400, 1600, 6400, 8400)
    outputs = tuple(
        TensorSpec(
            rng.choice(names) + str(index),
            tuple(rng.choices(sizes, k=rng.randrange(5))),
            rng.choice(('float32', 'float32', 'float16', 'int64', 'bool')),
            'output',
        )
        for index in range(rng.choice((0, 1, 1, 2, 3, 4, 9)))
    )
    metadata = rng.choice(({}, {'task': 'pose', 'kpt_shape': '[None]'}, {'stride': '32'}))
    seen = NetworkDescription((), outputs, metadata, rng.choice(((640, 640), (1, 1))), None)
    for families in TASKS.values():
        with suppress(TensorMismatchError):
            family, _ = choose_family(families, 'auto', seen)
            open_head(family, seen)


def test_the_docs_list_the_families_that_the_gpu_decodes_and_the_others_with_a_reason(network):
    networks = [
        *((family, outputs, known) for family, _, _, outputs, known in TOLD if family != 'tensor'),
        *((family, outputs, known) for claims, outputs, known in AMBIGUOUS for family in claims),
    ]
    decoded = set()
    for family, outputs, known in networks:
        seen = network(outputs, **known)
        head = SimpleNamespace(head=open_head(DETECTORS[family], seen))
        shapes = {  # Of one image.
            spec.name: (*map(abs, spec.shape[:1]), *spec.shape[1:]) for spec in seen.outputs
        }
        if all(min(shape, default=1) > 0 for shape in shapes.values()) and gpu_decoder(
            head, seen.outputs, shapes, seen.input_hw
        ):
            decoded.add(family)
    section = MODELS.split('## Decoding time')[1].split('\n## ')[0]
    on_gpu, on_cpu = (set(re.findall(r'`(\w+)`', part)) for part in section.split('The other fam'))
    assert on_gpu == decoded
    assert on_cpu == {*DETECTORS} - decoded - {'tensor'}
