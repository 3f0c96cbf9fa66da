"""Recognition of the decoder by outputs and metadata."""

from __future__ import annotations

from pathlib import Path
import re

import pytest

from support.recognized_networks import COCO, CUT, SEG, TOLD, TWO, bins, cut
from trt_ros.errors import TensorMismatchError
from trt_ros.families import registry as decoder
from trt_ros.families.output_layouts import CLASS_OFFSETS, SCORES_FIRST, anchor_rows
from trt_ros.families.recognition import RULES, recognize
from trt_ros.families.registry import choose_family

TABLE = {
    'detect': decoder.DETECTORS,
    'segment': decoder.SEGMENTERS,
    'pose': decoder.POSES,
    'obb': decoder.ORIENTED,
    'classify': decoder.CLASSIFIERS,
    'depth': decoder.DEPTHS,
    'embed': decoder.EMBEDDINGS,
    'tensor': decoder.TENSORS,
}

DETECTORS = {family.name: family for families in TABLE.values() for family in families}

# Families and the ends of their why, in the order they are named; and the network.
AMBIGUOUS = [
    (
        {
            'yolox': 'grids of strides 8, 16 and 32 with objectness: '
            '85 is 5 and the 80 classes of COCO',
            'yolov5': 'with objectness: 85 is 5 and the 80 classes of COCO',
        },
        'head (1, ?, 85)',
        {},
    ),
    (
        {
            'yolov8': 'without objectness: boxes with objectness look the same',
            'yolox': '8400 cells of strides 8, 16 and 32 with objectness: boxes '
            'without objectness look the same',
        },
        'head (1, 8400, 8)',
        {},
    ),
    (
        {
            'yolov8': 'boxes with objectness look the same',
            'yolox': 'grids of strides 8, 16 and 32 with objectness: boxes '
            'without objectness look the same',
            'yolov5': 'with objectness: boxes without it look the same',
            'yolov10': 'score, class: raw boxes look the same',
        },
        'head (1, ?, 6)',
        {},
    ),
    (
        {
            'yolov8': 'boxes with objectness look the same',
            'nanodet_plus': '8 bins per side at strides 8, 16, 32 and 64',
        },
        'head (1, 8500, 42)',
        {},
    ),
    (
        {'yolov10': '300 rows are no grid', 'rtdetr': "one row per query: Ultralytics' metadata"},
        'output0 (1, 300, 6)',
        TWO,
    ),
    (
        {
            'rtdetr': 'one score per class: the last logit may or may not be "no object"',
            'detr': '"no object": the last logit may or may not be "no object"',
        },
        'logits (1, 300, 91); pred_boxes (1, 300, 4)',
        {},
    ),
    (
        {
            'ssd': 'may begin with background',
            'boxes': 'may be in input pixels',
            'boxes_normalised': 'may be 0 to 1 of the input',
        },
        'boxes (1, 99, 4); scores (1, 99, 21)',
        {},
    ),
    (
        {'boxes': 'may be in input pixels', 'boxes_normalised': 'may be 0 to 1 of the input'},
        'boxes (1, 99, 4); scores (1, 99, 21)',
        {'class_count': 21},
    ),
    (
        {'boxes': 'may be in input pixels', 'boxes_normalised': 'may be 0 to 1 of the input'},
        'boxes (1, 99, 4); scores (1, 99); labels (1, 99) int64',
        {},
    ),
    (
        {'boxes': 'may be in input pixels', 'boxes_normalised': 'may be 0 to 1 of the input'},
        'boxes (1, 99, 4); confidence (1, 99)',
        {},
    ),
    (
        {'semantic': 'the scores of each cell', 'depth': 'one value per cell'},
        'out (1, 1, 640, 640)',
        {},
    ),
    (
        {
            'semantic': 'the scores of each cell',
            'heatmap_pose': 'as many planes as COCO has keypoints',
        },
        'out (1, 17, 160, 160)',
        {},
    ),
    (
        {
            'yolov5_raw': 'the anchors may be of YOLOv5 or YOLOv7-tiny',
            'yolov7_raw': 'the anchors may be of YOLOv7',
        },
        'a (1, 3, 80, 80, 85); b (1, 3, 40, 40, 85); c (1, 3, 20, 20, 85)',
        {},
    ),
    *(
        (
            {
                'ppyoloe': "have ImageNet's mean and standard deviation for PP-YOLO, PP-YOLOE, "
                'PicoDet',
                'ppyoloe_plus': 'pixels are 0 to 1 for PP-YOLOE+ and RT-DETR',
            },
            outputs,
            {'inputs': 'scale_factor (1, 2)', **known},
        )
        for outputs, known in (
            ('rows (?, 6); numbers (1) int32', {}),
            ('numbers (?) int32; rows (?, 6)', {'class_count': 3}),
            ('boxes (1, 8400, 4); scores (1, 80, 8400)', {}),
            ('boxes (1, ?, 4); scores (1, 80, ?)', {}),
            (CUT, cut('ppyoloe')),
        )
    ),
    ({'classifier': 'one score per class', 'embedding': 'one vector'}, 'out (1, 1000)', {}),
]


@pytest.mark.parametrize(('family', 'classes', 'evidence', 'outputs', 'known'), TOLD)
def test_a_network_is_recognized(network, family, classes, evidence, outputs, known):
    seen = network(outputs, **known)
    chosen, why = choose_family(TABLE[DETECTORS[family].task], 'auto', seen)
    assert (chosen.name, why.endswith(evidence)) == (family, True), why
    assert family == 'tensor' or any(str(spec) in why for spec in seen.outputs)
    assert '\n' not in why
    assert chosen.open(seen).class_count == classes


@pytest.mark.parametrize(('evidence', 'outputs', 'known'), AMBIGUOUS)
def test_ambiguous_networks_are_refused_with_the_evidence(network, evidence, outputs, known):
    seen = network(outputs, **known)
    tasks = dict.fromkeys(DETECTORS[name].task for name in evidence)
    with pytest.raises(TensorMismatchError, match='More than one decoder') as error:
        choose_family(sum((TABLE[task] for task in tasks), ()), 'auto', seen)
    listed, _, fields = error.value.cause.partition('. Seen: ')
    assert fields == f'{seen}.'
    assert 'docs/models.md' in error.value.remedy
    assert 'The node `tensor` runs any network' in error.value.remedy
    claims = re.findall(r'(\w+): (.*?)(?:; (?=\w+: )|$)', listed)
    assert [family for family, _ in claims] == list(evidence)
    for family, why in claims:
        assert why.endswith(evidence[family]), why
        assert choose_family((DETECTORS[family],), family, seen)[0].open(seen)


@pytest.mark.parametrize(
    ('outputs', 'known', 'remedy'),
    [
        (
            'hm (1, 80, 160, 160); hps (1, 34, 160, 160); wh (1, 2, 160, 160); '
            'reg (1, 2, 160, 160)',
            {},
            'Set outputs to hm, wh, reg (decoder centernet) or to hps, wh, reg (decoder ',
        ),
        (
            'dets (1, 100, 5); labels (1, 100) int64; masks (1, 100, 28, 28)',
            {},
            'Set outputs to dets, labels (decoder mmdetection).',
        ),
        (
            'class_queries_logits (1, 100, 134); masks_queries_logits (1, 100, 160, 160); '
            'transformer_decoder_last_hidden_state (1, 100, 256); '
            'pixel_decoder_last_hidden_state (1, 256, 160, 160)',
            {},
            'Set outputs to class_queries_logits, masks_queries_logits (decoder maskformer). ',
        ),
    ],
)
def test_the_error_names_the_outputs_that_are_decoded(network, outputs, known, remedy):
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family(decoder.ALL_FAMILIES, 'auto', network(outputs, **known))
    assert error.value.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ('task', 'outputs', 'known', 'about_labels'),
    [
        ('detect', 'head (1, 8400, 8)', {}, '(`labels`) may decide'),
        ('detect', 'boxes (1, 99, 4); scores (1, 99, 21)', {}, '(`labels`) may decide'),
        ('detect', 'head (1, 8400, 8)', {'class_count': 7}, '7 named classes do not decide'),
        ('detect', 'boxes (1, 99, 4); confidence (1, 99)', {}, None),
        ('detect', 'rows (?, 6); numbers (1) int32', {'inputs': 'scale_factor (1, 2)'}, None),
    ],
)
def test_the_error_says_whether_labels_decide(network, task, outputs, known, about_labels):
    with pytest.raises(TensorMismatchError, match='More than one decoder') as error:
        choose_family(TABLE[task], 'auto', network(outputs, **known))
    remedy = error.value.remedy
    assert about_labels in remedy if about_labels else 'classes' not in remedy


@pytest.mark.parametrize(
    ('channels', 'name'),
    [
        (16, 'YOLOv5-face, 1 class and 5 landmarks'),
        (21, 'YOLOv7-face, 1 class and 5 landmarks'),
        (57, 'YOLOv7-pose, 1 class and 17 keypoints'),
    ],
)
@pytest.mark.parametrize('known', [{}, {'class_count': 1}])
def test_a_possible_landmark_head_is_not_recognized_as_classes(network, channels, name, known):
    seen = network(f'output (1, 25200, {channels})', **known)
    with pytest.raises(TensorMismatchError, match=f'a keypoint network: {name}') as error:
        choose_family(decoder.DETECTORS, 'auto', seen)
    assert f'yolov5: output (1, 25200, {channels})' in error.value.cause
    assert 'Run the node `pose`, or set `labels` or `decoder: yolov5`' in error.value.remedy
    family, _ = choose_family(decoder.POSES, 'auto', seen)
    assert family.open(seen).class_count == 1


def test_the_columns_of_coco_are_a_detector_in_the_node_detector(network):
    both = (*decoder.DETECTORS, *decoder.ORIENTED)
    for known in ({}, {'class_count': 80}):
        family, _ = choose_family(both, 'auto', network('output0 (1, 84, 8400)', **known))
        assert family.name == 'yolov8'
    for outputs, known in (('20, 8400', {}), ('84, 8400', {'class_count': 79})):
        with pytest.raises(TensorMismatchError, match='More than one decoder'):
            choose_family(both, 'auto', network(f'output0 (1, {outputs})', **known))


def test_the_columns_of_people_may_be_keypoints(network):
    both, seen = (*decoder.DETECTORS, *decoder.ORIENTED), network('output0 (1, 56, 8400)')
    with pytest.raises(TensorMismatchError, match='More than one decoder') as error:
        choose_family(both, 'auto', seen)
    keypoints = 'It may also be YOLOv8-pose, 1 class and 17 keypoints, which the node `pose` runs.'
    assert keypoints in error.value.remedy
    with pytest.raises(TensorMismatchError, match='More than one decoder') as error:
        choose_family((*both, *decoder.POSES), 'auto', seen)
    assert 'yolov8_pose' in error.value.cause and keypoints not in error.value.remedy


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
        choose_family(TABLE[task], 'auto', network(outputs))
    assert advice in error.value.remedy and 'Set outputs' not in error.value.remedy


def test_boxes_of_mmdeploy_are_no_queries_of_masks(network):
    seen = network('dets (1, 100, 5); labels (1, 100) int64; masks (1, 100, 64, 64)')
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family(decoder.SEGMENTERS, 'auto', seen)
    assert 'maskformer' not in error.value.remedy
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family(decoder.DETECTORS, 'auto', seen)
    assert 'Set outputs to dets, labels (decoder mmdetection)' in error.value.remedy


@pytest.mark.parametrize(
    ('outputs', 'known'), [('out (1, 7)', {}), ('out (?, 7)', {'class_count': 7})]
)
def test_seven_scores_are_still_a_classifier(network, outputs, known):
    family, _ = choose_family(decoder.CLASSIFIERS, 'auto', network(outputs, **known))
    assert family.name == 'classifier'


@pytest.mark.parametrize(
    ('task', 'outputs', 'count', 'family'),
    [
        ('segment', 'out (1, 21, 640, 640)', 19, 'semantic'),
        ('detect', 'boxes (1, 8400, 4); scores (1, 8400, 21)', 19, 'boxes'),
        ('classify', 'out (1, 9)', 10, 'classifier'),
    ],
)
def test_the_error_says_that_only_the_names_do_not_fit(network, task, outputs, count, family):
    with pytest.raises(TensorMismatchError, match=f'with {count} named classes') as error:
        choose_family(TABLE[task], 'auto', network(outputs, class_count=count))
    assert f'Without the names, it may be {family}: ' in error.value.cause
    assert 'one name per class' in error.value.remedy


@pytest.mark.parametrize('outputs', ['heatmaps (?, 17, ?, ?)', 'out (1, 17, 64, 48)'])
def test_heatmaps_of_a_named_object_are_keypoints(network, outputs):
    seen = network(outputs, hw=(256, 192), class_count=1)
    assert choose_family(decoder.ALL_FAMILIES, 'auto', seen)[0].name == 'heatmap_pose'


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
    assert (family.name, family.open(seen).class_count) == ('yolov5', 11)


def test_every_rule_is_the_only_match_of_some_network(network):
    told = [(family, outputs, known) for family, _, _, outputs, known in TOLD]
    told += [(family, *seen) for families, *seen in AMBIGUOUS for family in families]
    alone = set()
    for family, outputs, known in told:
        seen = network(outputs, **known)
        holds = [index for index, rule in enumerate(RULES) if rule.family == family and rule(seen)]
        alone.update(holds if len(holds) == 1 else ())
    left_out = [rule for index, rule in enumerate(RULES) if index not in alone]
    assert left_out == []


def test_every_family_has_a_rule():
    assert {rule.family for rule in RULES} == DETECTORS.keys()


# A row for each of `CLASS_OFFSETS`.
@pytest.mark.parametrize(
    ('row', 'before', 'evidence', 'outputs', 'known'),
    [
        (0, 4, "its metadata is Ultralytics'", 'output (1, 8400, 85)', COCO),
        (1, 4, '85 is 4 and 81 classes', 'output (1, 8400, 85)', {'class_count': 81}),
        (2, 5, '84 is 5 and 79 classes', 'output0 (1, 8400, 84)', {'class_count': 79}),
        (
            3,
            SCORES_FIRST,
            '35 is 3 classes and the bins of four sides',
            'output0 (1, 8400, 35)',
            {'class_count': 3},
        ),
        (4, 4, "its name is Ultralytics'", 'output0 (1, 8400, 85)', {}),
        (
            5,
            SCORES_FIRST,
            '112 is the 80 classes of COCO and eight bins per side',
            'output (1, 8400, 112)',
            {},
        ),
        (6, 5, "its name is YOLOX's", 'output (1, 8400, 84)', {}),
        (7, 5, "its name is YOLOv6's", 'outputs (1, 8400, 84)', {}),
        (8, 4, '84 is 4 and the 80 classes of COCO', 'head (1, 8400, 84)', {'class_count': 3}),
        (9, 5, '85 is 5 and the 80 classes of COCO', 'head (1, 8400, 85)', {}),
        (len(CLASS_OFFSETS), 0, '', 'head (1, 8400, 8)', {}),
    ],
)
def test_evidence_for_boxes_with_or_without_objectness(
    network, row, before, evidence, outputs, known
):
    seen = network(outputs, **known)
    channels = seen.only_output.shape[2]
    holds = [index for index, (_, when, _) in enumerate(CLASS_OFFSETS) if when(seen, channels)]
    assert [*holds, len(CLASS_OFFSETS)][0] == row
    assert (anchor_rows(seen).class_offset, anchor_rows(seen).evidence) == (before, evidence)


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
    assert [family.name for family in TABLE[task] if recognize(family.name, seen)] == []
    with pytest.raises(TensorMismatchError, match=r'No decoder recognizes|This (looks like|is) a'):
        choose_family(TABLE[task], 'auto', seen)


def test_additional_output_is_left_to_the_family(network):
    seen = network('out (1, 9); features (1, 9, 7, 7)', task='classify')
    family, _ = choose_family(decoder.CLASSIFIERS, 'auto', seen)
    with pytest.raises(TensorMismatchError, match='Not a classifier: expected one output'):
        family.open(seen)


def test_the_docs_have_every_family_in_the_tables_of_exports_and_of_preprocessing():
    text = (Path(__file__).parents[3] / 'docs' / 'models.md').read_text()
    tables = re.findall(r'((?:^\|.*\n)+)', text, re.MULTILINE)
    detectors, others, preprocessing = tables[0], tables[2], tables[4]  # Between: exports.
    detecting = [family.name for family in decoder.DETECTORS]
    elsewhere = [name for name in DETECTORS if name not in (*detecting, 'tensor')]
    for table, families in (
        (detectors, detecting),
        (others, elsewhere),
        (preprocessing, [*detecting, *elsewhere]),
    ):
        first_column = ' '.join(re.findall(r'^\| (`.*?) \|', table, re.MULTILINE))
        named = re.findall(r'`(\w+)`', first_column.replace('`decoder`', ''))
        assert sorted(named) == sorted(families)
