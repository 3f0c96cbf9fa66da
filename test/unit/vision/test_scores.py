"""Scores outside 0 to 1, which no family publishes."""

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.errors import ScoreRangeError
from trt_ros.families import registry as decoder
from trt_ros.tensors import CUT_NMS
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range, passing
from trt_ros.vision.thresholds import Thresholds

HW = (64, 64)
WHOLE = Letterbox.fit((64, 64), HW, 'stretch')
CELLS = 84  # Of strides 8, 16 and 32.
BOX = (32, 32, 16, 16)
CORNERS = (16, 16, 48, 48)
CUT = (
    '{"operator": "NonMaxSuppression", "iou_threshold": 0.5, "per_class": 9, '
    '"score_threshold": null, "in_all": 9, "background": -1, "normalized": false}'
)


def columns(score, extras=()):
    """(1, 4 + 2 + E, 84)."""
    output = np.zeros((1, 6 + len(extras), CELLS), np.float32)
    output[0, :, 3] = *BOX, 0.1, score, *extras
    return output


def rows(count, *values):
    output = np.zeros((1, count, len(values)), np.float32)
    output[0, 3] = values
    return output


def grid(score):
    coverage, boxes = np.zeros((1, 2, 4, 4), np.float32), np.ones((1, 8, 4, 4), np.float32)
    coverage[0, 1, 2, 2] = score
    return coverage, boxes


def chosen(score):
    scores = np.zeros((1, 2, 9), np.float32)
    scores[0, 1, 3] = score
    return np.array([[0, 1, 3]], np.int64), rows(9, *CORNERS), scores


FACES_OF_YUNET = (
    'bbox_8 (1, 64, 4); bbox_16 (1, 16, 4); bbox_32 (1, 4, 4); '
    'kps_8 (1, 64, 10); kps_16 (1, 16, 10); kps_32 (1, 4, 10)'
)
FACES = (
    's8 (1, {}, 1); s16 (1, {}, 1); s32 (1, {}, 1); b8 (1, {}, 4); b16 (1, {}, 4); '
    'b32 (1, {}, 4); k8 (1, {}, 10); k16 (1, {}, 10); k32 (1, {}, 10)'
)


def faces(kinds, per_cell):
    return [rows(per_cell * n, *values) for values in kinds.values() for n in (64, 16, 4)]


def people(score):
    keypoints = (0.2, 0.2, 0.5) * 17
    return [rows(6, *keypoints, 0.2, 0.2, 0.8, 0.8, score)]


# Family: the outputs as `network` takes them, further arguments, and their values by a score.
CASES = {
    'yolov8': ('out (1, 6, 84)', {}, lambda s: [columns(s)]),
    'yolox': ('out (1, 84, 7)', {}, lambda s: [rows(84, 0, 0, 1, 1, 1, 0.1, s)]),
    'yolov5': ('out (1, 252, 7)', {}, lambda s: [rows(252, *BOX, 1, 0.1, s)]),
    'yolov10': ('out (1, 9, 6)', {}, lambda s: [rows(9, *CORNERS, s, 1)]),
    'yolov3': ('ids (?, 3) int64; boxes (1, 9, 4); scores (1, 2, 9)', {}, chosen),
    'rtdetr': (
        'labels (1, 9) int64; boxes (1, 9, 4); scores (1, 9)',
        {},
        lambda s: [np.zeros((1, 9), np.int64), rows(9, *CORNERS), np.full((1, 9), s, np.float32)],
    ),
    'efficient_nms': (
        'num (1, 1) int32; boxes (1, 9, 4); scores (1, 9); classes (1, 9) int32',
        {},
        lambda s: [
            np.full((1, 1), 4, np.int32),
            rows(9, *CORNERS),
            np.full((1, 9), s, np.float32),
            np.zeros((1, 9), np.int32),
        ],
    ),
    'ssd': (
        'boxes (1, 9, 4); scores (1, 9, 3)',
        {},
        lambda s: [rows(9, 0.2, 0.2, 0.8, 0.8), rows(9, 0.1, 0.1, s)],
    ),
    'detectnet_v2': ('cov (1, 2, 4, 4); bbox (1, 8, 4, 4)', {}, grid),
    'onnx_nms': ('ids (?, 3) int64; boxes (1, 9, 4); scores (1, 2, 9)', {}, chosen),
    'boxes': (
        'boxes (1, 9, 4); scores (1, 9, 3)',
        {},
        lambda s: [rows(9, *CORNERS), rows(9, 0.1, 0.1, s)],
    ),
    'boxes_normalised': (
        'boxes (1, 9, 4); scores (1, 9, 3)',
        {},
        lambda s: [rows(9, 0.2, 0.2, 0.8, 0.8), rows(9, 0.1, 0.1, s)],
    ),
    'mmdetection': (
        'dets (1, 9, 5); labels (1, 9) int64',
        {},
        lambda s: [rows(9, *CORNERS, s), np.zeros((1, 9), np.int64)],
    ),
    'tensorflow': (
        'detection_boxes (1, 9, 4); detection_scores (1, 9); detection_classes (1, 9)',
        {},
        lambda s: [
            rows(9, 0.2, 0.2, 0.8, 0.8),
            np.full((1, 9), s, np.float32),
            np.ones((1, 9), np.float32),
        ],
    ),
    'nanodet_plus': ('out (1, 85, 34)', {}, lambda s: [rows(85, 0.1, s, *[0] * 32)]),
    'nanodet': ('out (1, 84, 34)', {}, lambda s: [rows(84, 0.1, s, *[0] * 32)]),
    'picodet': (
        '; '.join(f'{n}_{size} (1, {n}, {size})' for size in (2, 32) for n in (64, 16, 4, 1)),
        {},
        lambda s: [
            *(rows(n, 0.1, s) for n in (64, 16, 4)),
            np.full((1, 1, 2), 0.1, np.float32),
            *(np.zeros((1, n, 32), np.float32) for n in (64, 16, 4, 1)),
        ],
    ),
    'ppyoloe': (
        'rows (?, 6); numbers (1) int32',
        {},
        lambda s: [rows(9, 1, s, *CORNERS)[0], np.full(1, 9, np.int32)],
    ),
    'ppyoloe_plus': (
        'boxes (1, 9, 4); scores (1, 2, 9)',
        {},
        lambda s: [rows(9, *CORNERS), rows(9, 0.1, s).transpose(0, 2, 1)],
    ),
    'yolov5_seg': (
        'out (1, 252, 9); masks (1, 2, 16, 16)',
        {},
        lambda s: [rows(252, *BOX, 1, 0.1, s, 0, 0), np.zeros((1, 2, 16, 16), np.float32)],
    ),
    'yolov5_face': ('out (1, 252, 16)', {}, lambda s: [rows(252, *BOX, 1, *range(10), s)]),
    'yolov7_pose': ('out (1, 252, 21)', {}, lambda s: [rows(252, *BOX, 1, s, *(1, 2, 0.5) * 5)]),
    'scrfd': (
        FACES.format(*(2 * count for count in (64, 16, 4) * 3)),
        {},
        lambda s: faces({'score': (s,), 'bbox': (0, 0, 1, 1), 'kps': range(10)}, 2),
    ),
    'yunet': (
        'cls_8 (1, 64, 1); cls_16 (1, 16, 1); cls_32 (1, 4, 1); obj_8 (1, 64, 1); '
        'obj_16 (1, 16, 1); obj_32 (1, 4, 1); ' + FACES_OF_YUNET,
        {},
        lambda s: faces({'cls': (1,), 'obj': (s,), 'bbox': (0, 0, 1, 1), 'kps': range(10)}, 1),
    ),
    'yunet_2022': (
        'loc (235, 14); conf (235, 2); iou (235, 1)',
        {},
        lambda s: [
            np.zeros((235, 14), np.float32),
            np.tile(np.array([0, s], np.float32), (235, 1)),
            np.ones((235, 1), np.float32),
        ],
    ),
    'centerface': (
        '537 (1, 1, 16, 16); 538 (1, 2, 16, 16); 539 (1, 2, 16, 16); 540 (1, 10, 16, 16)',
        {},
        lambda s: [np.full((1, n, 16, 16), s * (n == 1), np.float32) for n in (1, 2, 2, 10)],
    ),
    'fastestdet': (
        'out (1, 85, 4, 4)',
        {},
        lambda s: [
            np.tile(np.array([s, *[0] * 4, *[0.1] * 80], np.float32)[None, :, None, None], (4, 4))
        ],
    ),
    'yolo_fastest_v2': (
        'a (1, 4, 4, 95); b (1, 2, 2, 95)',
        {},
        lambda s: [
            np.tile(np.array([*[0.5] * 12, s, 0, 0, 1, *[0] * 79], np.float32), (1, n, n, 1))
            for n in (4, 2)
        ],
    ),
    'retinaface': (
        'loc (1, 168, 4); conf (1, 168, 2); landms (1, 168, 10)',
        {},
        lambda s: [rows(168, 0, 0, 0, 0), rows(168, 0.1, s), rows(168, *range(10))],
    ),
    'yolov8_seg': (
        'out (1, 8, 84); masks (1, 2, 16, 16)',
        {},
        lambda s: [columns(s, (0, 0)), np.zeros((1, 2, 16, 16), np.float32)],
    ),
    'yolov8_pose': (
        'out (1, 12, 84)',
        {'kpt_shape': '[2, 3]'},
        lambda s: [columns(s, (1, 2, 0.5, 3, 4, 1))],
    ),
    'mediapipe_hand': (
        'points (1, 63); score (1, 1)',
        {},
        lambda s: [np.zeros((1, 63), np.float32), np.full((1, 1), s, np.float32)],
    ),
    'movenet': ('out (1, 6, 56)', {}, people),
    'yolov8_obb': ('out (1, 7, 84)', {}, lambda s: [columns(s, (0.5,))]),
}
FURTHER = {  # The other ways in which some of them read their outputs.
    'yolov5 of one class': ('yolov5', 'out (1, 252, 6)', {}, lambda s: [rows(252, *BOX, s, 1)]),
    'yolov8 by rows': ('yolov8', 'out (1, 84, 6)', {}, lambda s: [rows(84, *BOX, 0.1, s)]),
    'yolox by objectness': (
        'yolox',
        'out (1, 84, 7)',
        {},
        lambda s: [rows(84, 0, 0, 1, 1, s, 0.1, 0.1)],
    ),
    'yolov5 by objectness': (
        'yolov5',
        'out (1, 252, 7)',
        {},
        lambda s: [rows(252, *BOX, s, 0.1, 0.1)],
    ),
    'rtdetr of ultralytics': (
        'rtdetr',
        'out (1, 9, 6)',
        {'task': 'detect', 'names': "['a', 'b']"},
        lambda s: [rows(9, 0.5, 0.5, 0.2, 0.2, 0.1, s)],
    ),
    'rtdetr of ultralytics, finished': (
        'rtdetr',
        'out (1, 9, 6)',
        {'task': 'detect', 'head': 'RTDETRDecoder'},
        lambda s: [rows(9, 0.5, 0.5, 0.2, 0.2, s, 1)],
    ),
    'yolov8_seg, finished': (
        'yolov8_seg',
        'out (1, 9, 8); masks (1, 2, 16, 16)',
        {},
        lambda s: [rows(9, *CORNERS, s, 1, 0, 0), np.zeros((1, 2, 16, 16), np.float32)],
    ),
    'onnx_nms, cut off': (
        'onnx_nms',
        'boxes (1, 9, 4); scores (1, 9, 3)',
        {CUT_NMS: CUT},
        lambda s: [rows(9, *CORNERS), rows(9, 0.1, 0.1, s)],
    ),
    'yolov8_pose, how visible': (
        'yolov8_pose',
        'out (1, 12, 84)',
        {'kpt_shape': '[2, 3]'},
        lambda s: [columns(0.9, (1, 2, 0.5, 3, 4, s))],
    ),
}
EVERY = {**{name: (name, *case) for name, case in CASES.items()}, **FURTHER}
#: Of these, unused places may hold any number below 0.
PADDED = {name for name in EVERY if 'finished' in name} | {
    'ppyoloe',
    'yolov10',
    'rtdetr',
    'efficient_nms',
    'mmdetection',
    'tensorflow',
}
ALL = (
    *decoder.DETECTORS,
    *decoder.SEGMENTERS,
    *decoder.POSES,
    *decoder.ORIENTED,
    *decoder.CLASSIFIERS,
    *decoder.DEPTHS,
    *decoder.TENSORS,
)
#: Sigmoid or softmax is theirs to compute, their scores are regressed and may exceed 1, or they
#: give none.
WITHOUT = {
    'heatmap_pose',
    'simcc',
    'ufld',
    'ufld_v2_culane',
    'ufld_v2_tusimple',
    'lstr',
    'yolov5_raw',
    'yolov7_raw',
    'centernet',
    'mediapipe_palm',
    'blazeface',
    'pfld',
    'pp_ocr_det',
    'detr',
    'rfdetr',
    'rfdetr_seg',
    'yolov8_cls',
    'classifier',
    'semantic',
    'yolo_semantic',
    'maskformer',
    'maskformer_panoptic',
    'depth',
    'yolo_depth',
    'moge',
    'embedding',
    'tensor',
}


def scores_found(network, case, score, *, score_threshold=0.25):
    name, outputs, metadata, values = EVERY[case]
    seen = network(outputs, hw=HW, **metadata)
    family = next(family for family in ALL if family.name == name)
    arrays = {spec.name: array for spec, array in zip(seen.outputs, values(score))}
    found = open_head(family, seen)(
        arrays, WHOLE, Thresholds(score=score_threshold, iou=0.5, max_detections=10)
    )
    return getattr(found, 'detections', found).scores


def test_every_family_with_scores_has_a_case():
    assert {family.name for family in ALL} == {*CASES, *WITHOUT}


@pytest.mark.parametrize('case', EVERY)
def test_scores_up_to_1_are_found(network, case):
    assert scores_found(network, case, 1.0).max(initial=0) > 0.05 or 'objectness' in case


@pytest.mark.parametrize('case', EVERY)
@pytest.mark.parametrize('score', [315.0, 1.01])
def test_no_family_gives_a_score_above_1(network, case, score):
    with pytest.raises(ScoreRangeError, match=f'a score of {score:g}, outside 0 to 1') as error:
        scores_found(network, case, score)
    assert 'Set `decoder`' in error.value.remedy


@pytest.mark.parametrize('case', EVERY)
def test_scores_above_1_by_rounding_become_1(network, case):
    assert scores_found(network, case, 1.0005).max(initial=0) <= 1


@pytest.mark.parametrize('case', EVERY)
def test_negative_score_is_an_error_without_unused_rows(network, case):
    """Logits are mostly below 0: so an export without sigmoid is found before it seems to work."""
    if case in PADDED:
        assert len(scores_found(network, case, -4.0, score_threshold=0.0)) < 9
    elif case in ('yolov8', 'yolov8 by rows', 'yolov8_seg', 'yolov8_obb', 'yolov8_pose'):
        assert scores_found(network, case, -4.0).size == 0  # The best class counts.
    elif case in ('yolox', 'yolov5', 'yolov5_seg'):
        scores_found(network, case, -4.0)
    else:
        with pytest.raises(ScoreRangeError, match='a score of -4, outside 0 to 1'):
            scores_found(network, case, -4.0)


@pytest.mark.parametrize('case', EVERY)
@pytest.mark.parametrize('score', [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_not_scores(network, case, score):
    found = scores_found(network, case, score, score_threshold=0.0)
    assert np.isfinite(found).all() and found.max(initial=0) <= 1


def test_logits_are_found_in_every_image(network):
    """All anchors are background, as in warming up."""
    output = np.full((1, 84, CELLS), -5.0, np.float32)
    yolov8 = next(family for family in ALL if family.name == 'yolov8')
    head = open_head(yolov8, network('out (1, 84, 84)', hw=HW, task='detect'))
    with pytest.raises(ScoreRangeError, match='a score of -5'):
        head({'out': output}, WHOLE, Thresholds(score=1.0, iou=1.0, max_detections=1))


def test_landmarks_in_place_of_classes_are_found_without_an_object(network):
    """YOLOv5-face on a gray image: objectness is low everywhere, as in warming up."""
    output = np.zeros((1, 252, 16), np.float32)
    output[..., 5:15] = 315.0
    seen = network('out (1, 252, 16)', hw=HW)
    head = open_head(next(family for family in ALL if family.name == 'yolov5'), seen)
    with pytest.raises(ScoreRangeError, match='a score of 315'):
        head({'out': output}, WHOLE, Thresholds(score=1.0, iou=1.0, max_detections=1))


@pytest.mark.parametrize('values', [[], [0, 1], [[0.25], [0.5]]])
def test_scores_in_the_range_are_not_copied(values):
    scores = np.array(values, np.float32)
    assert check_range(scores) is scores


def test_rounding_is_limited_and_what_is_not_finite_stays():
    scores = np.array([1.0005, -0.0005, 0.5, np.nan, np.inf, -np.inf], np.float32)
    before = scores.copy()
    limited = check_range(scores)
    np.testing.assert_array_equal(limited, [1, 0, 0.5, np.nan, np.inf, -np.inf])
    assert limited.dtype == np.float32
    np.testing.assert_array_equal(scores, before)


def test_unused_entries_are_limited_to_0():
    scores = np.array([-1, 1.0005, 0.5], np.float32)
    assert check_range(scores, is_padded=True).tolist() == [0, 1, 0.5]
    with pytest.raises(ScoreRangeError, match='a score of 2,'):
        check_range(np.array([-1, 2], np.float32), is_padded=True)


def test_the_worst_score_is_named_also_beside_nan():
    with pytest.raises(ScoreRangeError, match='a score of -7,'):
        check_range(np.array([[np.nan, 2], [-7, np.inf]], np.float32))


def test_unused_rows_may_hold_negative_scores():
    passes = passing(np.array([-1, 0.5, np.nan], np.float32), 0.25, is_padded=True)
    assert passes.tolist() == [False, True, False]
