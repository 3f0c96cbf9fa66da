"""One object in the outputs of each family of boxes and keypoints, placed as its exporter does."""

import math

import numpy as np
import pytest

from support.descriptions import head as open_as
from support.descriptions import specs
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (64, 96)  # Cells: 8 x 12 of stride 8, 4 x 6 of 16, 2 x 3 of 32.
ANCHORS = 96 + 24 + 6
CELL_16 = 96 + 6 * 2 + 3  # Row 2 and column 3 of stride 16.
FIVE = np.array([[0, 0], [1, 0], [0.5, 0.5], [0, 1], [1, 1]])  # Of faces, in strides or priors.
HALF, HIGH = math.log(0.5), math.log(3)  # The sigmoid of HIGH is 0.75.
POSE = {'task': 'pose', 'kpt_shape': '[2, 3]'}
PERSON = np.stack([np.arange(17) / 16, np.arange(17) / 32, np.arange(17) / 16], axis=1)


def read(network, box, score=0.75, label=0, points=None, *, fill=None, **known):
    """Return family, outputs and what is put where; what is read; what else is known."""
    return network, (box, score, label, points), fill or {}, known


def row(family, values, *, count=9, at=4, name='output0'):
    """One output of rows, one of which has values."""
    return family, f'{name} (1, {count}, {len(values)})', [(name, at, values)]


def column(family, values):
    """One output of columns, as YOLOv8 has it."""
    shape = f'(1, {len(values)}, {ANCHORS})'
    return family, f'output0 {shape}', [('output0', np.s_[:, 4], values)]


def planes(family, **values):
    """Outputs of planes of 16 x 24 cells, with values in the cell of row 7 and column 11."""
    outputs = '; '.join(f'{name} (1, {len(each)}, 16, 24)' for name, each in values.items())
    return family, outputs, [(name, np.s_[:, 7, 11], each) for name, each in values.items()]


def strides(family, per_cell, **values):
    """Outputs of each stride, with values in the last anchor of row 2 and column 3 of 16."""
    outputs = '; '.join(
        f'{name}_{stride} (1, {64 // stride * (96 // stride) * per_cell}, {len(each)})'
        for name, each in values.items()
        for stride in (8, 16, 32)
    )
    at = per_cell * (6 * 2 + 4) - 1
    return family, outputs, [(f'{name}_16', at, each) for name, each in values.items()]


def bins(*distances):
    """Return logits of 8 bins per side, whose means are the distances to the sides."""
    logits = np.full((4, 8), -100.0)
    for side, distance in zip(logits, distances):
        share, low = math.modf(distance)
        side[int(low)] = math.log(1 - share)
        side[int(low) + 1] = math.log(share) if share else -100
    return logits.ravel()


def queries(family, *logits, **more):
    """Logits of three classes and a box of 24 to 72 and 8 to 24 for one of six queries."""
    placed = [('logits', 4, logits), ('pred_boxes', 4, [0.5, 0.25, 0.5, 0.25])]
    network = (family, 'logits (1, 6, 3); pred_boxes (1, 6, 4)', placed)
    return read(network, [24, 8, 72, 24], label=1, **more)


def boxes(family, box, *scores):
    """Nine boxes with scores of three classes."""
    placed = [('boxes', 4, box), ('scores', 4, scores)]
    return family, 'boxes (1, 9, 4); scores (1, 9, 3)', placed


def chosen(family, corners):
    """The fifth of nine boxes is chosen for the second class."""
    placed = [('chosen', 0, [0, 1, 4]), ('boxes', 4, corners), ('scores', (1, 4), 0.75)]
    return family, 'chosen (1, 3) int64; boxes (1, 9, 4); scores (1, 2, 9)', placed


def anchors(family, count, at, values, center, **known):
    """The last of six anchors of a cell, after two per cell of the first stride: in pixels."""
    (x, y), points = center, np.arange(values).reshape(-1, 2)
    placed = [('boxes', at, [4, -3, 20, 30, *range(values)]), ('scores', at, HIGH)]
    return read(
        (family, f'boxes (1, {count}, {values + 4}); scores (1, {count}, 1)', placed),
        *([x + 4 - 10, y - 3 - 15, x + 4 + 10, y - 3 + 15], 0.75, 0, points + np.array(center)),
        **{'fill': {'scores': -9}, **known},
    )


#: Boxes are x1, y1, x2, y2 in pixels of the input, as are keypoints.
OBJECTS = {
    'yolov8': read(column('yolov8', [40, 20, 20, 10, 0, 0.75, 0.5]), [30, 15, 50, 25], 0.75, 1),
    'yolov8, rows, equal classes': read(
        row('yolov8', [40, 20, 20, 10, 0, 0.75, 0.75], count=ANCHORS), [30, 15, 50, 25], 0.75, 1
    ),
    'yolov10': read(row('yolov10', [10, 20, 30, 40, 0.75, 2]), [10, 20, 30, 40], 0.75, 2),
    'yolov5': read(
        row('yolov5', [40, 20, 20, 10, 0.75, 0, 0.5, 0.25], count=378, name='output'),
        *([30, 15, 50, 25], 0.375, 1),
    ),
    'yolov5 of one class': read(
        row('yolov5', [40, 20, 20, 10, 0.75, 0.5], count=378, name='output'),
        *([30, 15, 50, 25], 0.375),
        stride='32',
    ),
    'yolov7 of one class, whose score is not trained': read(
        row('yolov5', [40, 20, 20, 10, 0.75, 0.5], count=378, name='output'), [30, 15, 50, 25]
    ),
    'yolov6, whose objectness is 1': read(
        row('yolov5', [40, 20, 20, 10, 1, 0.75], count=ANCHORS, name='outputs'), [30, 15, 50, 25]
    ),
    'yolox': read(
        row(
            *('yolox', [0.5, 0.25, HALF, -HALF, 0.75, 0, 0.25, 0.5]),
            **{'count': ANCHORS, 'at': CELL_16, 'name': 'output'},
        ),
        *([56 - 4, 36 - 16, 56 + 4, 36 + 16], 0.375, 2),
    ),
    'yolov5_raw': read(
        (
            'yolov5_raw',
            'a (1, 3, 8, 12, 8); b (1, 3, 4, 6, 8); c (1, 3, 2, 3, 8)',
            # Sigmoids 0.75, 0.25: moved by 1 and 0 cells; 0.5, 0.75: 1 and 1.5^2 of the prior.
            [('b', (0, 2, 3), [HIGH, -HIGH, 0, HIGH, HIGH, -9, HIGH, -9])],
        ),
        *([64 - 15, 0, 64 + 15, 64], 0.5625, 1),
        fill=dict.fromkeys('abc', -20),
    ),
    'yolov7_raw, whose only class has no score': read(
        (
            'yolov7_raw',
            'a (1, 3, 8, 12, 6); b (1, 3, 4, 6, 6); c (1, 3, 2, 3, 6)',
            [('a', (2, 4, 5), [0, 0, 0, 0, HIGH, 0])],
        ),
        [44 - 20, 36 - 14, 44 + 20, 36 + 14],
        fill=dict.fromkeys('abc', -20),
    ),
    'nanodet_plus': read(
        row(
            *('nanodet_plus', [0, 0.75, 0, *bins(1, 0.5, 2, 1.75)]),
            **{'count': ANCHORS + 2, 'at': CELL_16, 'name': 'output'},
        ),
        *([48 - 16, 32 - 8, 48 + 32, 32 + 28], 0.75, 1),
        class_count=3,
    ),
    'nanodet': read(
        row(
            *('nanodet', [0, 0.75, 0, *bins(1, 0.5, 2, 1.25)]),
            **{'count': ANCHORS, 'at': CELL_16, 'name': 'output'},
        ),
        *([56 - 16, 40 - 8, 56 + 32, 40 + 20], 0.75, 1),
        class_count=3,
    ),
    'rtdetr': queries('rtdetr', -50, HIGH, -50, fill={'logits': -50}),
    'detr, whose last logit is no object': queries(
        *('detr', 0, math.log(6), math.log(5)), score=0.5, fill={'logits': [-50, -50, 50]}
    ),
    'rtdetr of scores and boxes in one output': read(
        row('rtdetr', [0.5, 0.25, 0.5, 0.25, 0, 0.75, 0.2]), [24, 8, 72, 24], 0.75, 1
    ),
    'rtdetr of ultralytics': read(
        row('rtdetr', [0.5, 0.25, 0.5, 0.25, 0.75, 3]),
        *([24, 8, 72, 24], 0.75, 3),
        **{'task': 'detect', 'head': 'RTDETRDecoder'},
    ),
    'boxes': read(boxes('boxes', [10, 20, 30, 40], 0.2, 0, 0.75), [10, 20, 30, 40], 0.75, 2),
    'boxes_normalised': read(
        boxes('boxes_normalised', [0.25, 0.25, 0.5, 0.75], 0, 0.75, 0.2), [24, 16, 48, 48], 0.75, 1
    ),
    'ssd, whose first class is background': read(
        boxes('ssd', [0.25, 0.25, 0.5, 0.75], 0.8, 0, 0.75), [24, 16, 48, 48], 0.75, 1
    ),
    'torchvision, without a batch': read(
        (
            'boxes',
            'boxes (9, 4); labels (9) int64; scores (9)',
            [('boxes', 4, [10, 20, 30, 40]), ('labels', 4, 2), ('scores', 4, 0.75)],
        ),
        *([10, 20, 30, 40], 0.75, 2),
    ),
    'mmdetection': read(
        (
            'mmdetection',
            'dets (1, 9, 5); labels (1, 9) int64',
            [('dets', 4, [10, 20, 30, 40, 0.75]), ('labels', 4, 7)],
        ),
        *([10, 20, 30, 40], 0.75, 7),
    ),
    'tensorflow, whose boxes begin with y and classes with 1': read(
        (
            'tensorflow',
            'detection_boxes (1, 9, 4); detection_classes (1, 9); detection_scores (1, 9)',
            [
                ('detection_boxes', 4, [0.25, 0.25, 0.75, 0.5]),
                ('detection_classes', 4, 3),
                ('detection_scores', 4, 0.75),
            ],
        ),
        *([24, 16, 48, 48], 0.75, 2),
    ),
    'onnx_nms, of any two opposite corners': read(
        chosen('onnx_nms', [30, 20, 10, 40]), [10, 20, 30, 40], 0.75, 1
    ),
    'yolov3, whose corners begin with y': read(
        chosen('yolov3', [20, 10, 40, 30]), [10, 20, 30, 40], 0.75, 1
    ),
    'detectnet_v2': read(
        (
            'detectnet_v2',
            'output_cov (1, 3, 4, 6); output_bbox (1, 12, 4, 6)',
            [
                ('output_cov', (1, 2, 3), 0.75),
                ('output_bbox', np.s_[:, 2, 3], 99),
                ('output_bbox', np.s_[4:8, 2, 3], np.array([5, 6, 7, 8]) / 35),
            ],
        ),
        *([48.5 - 5, 32.5 - 6, 48.5 + 7, 32.5 + 8], 0.75, 1),
    ),
    'centernet': read(
        planes('centernet', hm=[-9, HIGH, -9], wh=[4, 2], reg=[0.25, 0.75]),
        *([45 - 8, 31 - 4, 45 + 8, 31 + 4], 0.75, 1),
        fill={'hm': -9},
    ),
    'centernet of probabilities, without offsets': read(
        planes('centernet', hm=[0, 0, 0.75], wh=[4, 2]), [46 - 8, 30 - 4, 46 + 8, 30 + 4], 0.75, 2
    ),
    'yolov8_pose': read(
        column('yolov8_pose', [40, 20, 20, 10, 0.75, 40, 25, 0.5, -5, 7, 0.25]),
        *([30, 15, 50, 25], 0.75, 0, [[40, 25, 0.5], [-5, 7, 0.25]]),
        **POSE,
    ),
    'yolov8_pose without visibilities': read(
        column('yolov8_pose', [40, 20, 20, 10, 0.75, 40, 25, -5, 7]),
        *([30, 15, 50, 25], 0.75, 0, [[40, 25, 1], [-5, 7, 1]]),
        **{**POSE, 'kpt_shape': '[2, 2]'},
    ),
    'yolov8_pose, end to end': read(
        row('yolov8_pose', [30, 15, 50, 25, 0.75, 0, 40, 25, 0.5, 1, 7, 0.25]),
        *([30, 15, 50, 25], 0.75, 0, [[40, 25, 0.5], [1, 7, 0.25]]),
        **{**POSE, 'end2end': 'True'},
    ),
    'yolov5_face, whose class score is the last value': read(
        row(
            *('yolov5_face', [40, 20, 20, 10, 0.75, *(9 * FIVE).ravel(), 0.5]),
            **{'count': 378, 'name': 'out'},
        ),
        *([30, 15, 50, 25], 0.375, 0, 9 * FIVE),
    ),
    'yolov7_pose': read(
        row(
            *('yolov7_pose', [40, 20, 20, 10, 0.75, 0.5, *(PERSON * [9, 8, 1]).ravel()]),
            **{'count': 378, 'name': 'out'},
        ),
        *([30, 15, 50, 25], 0.375, 0, PERSON * [9, 8, 1]),
    ),
    'scrfd': read(
        strides('scrfd', 2, score=[0.75], bbox=[0.5, 0.25, 0.75, 1], kps=FIVE.ravel()),
        *([48 - 8, 32 - 4, 48 + 12, 32 + 16], 0.75, 0, [48, 32] + 16 * FIVE),
    ),
    'yunet': read(
        strides('yunet', 1, cls=[0.75], obj=[0.75], bbox=[0.5, 0.25, 0, HALF], kps=FIVE.ravel()),
        *([56 - 8, 36 - 4, 56 + 8, 36 + 4], 0.75, 0, [48, 32] + 16 * FIVE),
    ),
    'retinaface': read(
        (
            'retinaface',
            'loc (1, 252, 4); conf (1, 252, 2); landms (1, 252, 10)',
            # The second prior of a cell of stride 8: 32 pixels.
            [
                ('loc', 2 * (12 * 4 + 5) + 1, [0, 1, 5 * HALF, 10 * HALF]),
                ('conf', 2 * (12 * 4 + 5) + 1, [0.25, 0.75]),
                ('landms', 2 * (12 * 4 + 5) + 1, FIVE.ravel()),
            ],
        ),
        *([44 - 8, 39.2 - 4, 44 + 8, 39.2 + 4], 0.75, 0, [44, 36] + 3.2 * FIVE),
    ),
    'centerface, of y before x and landmarks in the box': read(
        planes(
            'centerface',
            **{'537': [0.75], '538': [1.5, 1], '539': [0.25, -0.5], '540': FIVE[:, ::-1].ravel()},
        ),
        *([44 - 2 * math.e, 31 - 2 * math.e**1.5, 44 + 2 * math.e, 31 + 2 * math.e**1.5], 0.75, 0),
        [44, 31] + 4 * np.exp([1, 1.5]) * (FIVE - 0.5),
    ),
    'mediapipe_palm': anchors('mediapipe_palm', 336, 192 + 6 * 15 + 5, 14, (56, 40)),
    'blazeface': anchors('blazeface', 896, 512 + 6 * (8 * 4 + 2) + 5, 12, (40, 72), hw=(128, 128)),
    'blazeface of the back camera': anchors(
        *('blazeface', 896, 512 + 6 * (8 * 4 + 2) + 5, 12, (80, 144)), hw=(256, 256)
    ),
    'movenet of several people': read(
        row(
            *('movenet', [*PERSON[:, [1, 0, 2]].ravel(), 0.25, 0.25, 0.75, 0.5, 0.75]),
            **{'count': 6, 'at': 2},
        ),
        *([24, 16, 48, 48], 0.75, 0, PERSON * [96, 64, 1]),
    ),
    'movenet of one person, whose box is the image': read(
        ('movenet', 'output_0 (1, 1, 17, 3)', [('output_0', 0, PERSON[:, [1, 0, 2]])]),
        *([0, 0, 96, 64], 0.5, 0, PERSON * [96, 64, 1]),
    ),
}


@pytest.mark.parametrize('name', OBJECTS)
def test_an_object_is_found_at_its_place(name):
    (family, described, placed), (box, score, label, points), fill, known = OBJECTS[name]
    outputs = {each.name: np.zeros(each.shape, each.dtype) for each in specs(described)}
    for output, values in fill.items():
        outputs[output][:] = values
    for output, at, values in placed:
        array = outputs[output]
        (array[0] if array.shape[0] == 1 and output != 'chosen' else array)[at] = values
    before = {key: values.copy() for key, values in outputs.items()}
    hw = known.setdefault('hw', HW)
    letterbox = Letterbox.fit((2 * hw[1], 2 * hw[0]), hw, 'stretch')
    found = open_as(family, described, **known)(outputs, letterbox, Thresholds(score=0.3))
    assert all(np.array_equal(outputs[key], before[key]) for key in outputs)
    if points is not None:
        points = np.hstack([points, np.ones((len(points), 1))])[:, :3]
        np.testing.assert_allclose(found.keypoints, [points * [2, 2, 1]], atol=1e-3)
        assert (found.regions is not None) == (family == 'mediapipe_palm')
        found = found.detections
    assert (found.labels.tolist(), found.labels.dtype) == ([label], np.int32)
    assert found.scores == pytest.approx([score], abs=1e-5)
    np.testing.assert_allclose(found.xyxy, 2 * np.array([box]), atol=1e-3)
