"""PP-YOLOE, PP-YOLO and PicoDet with decoded boxes."""

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families.nanodet import PICODET, PPYOLOE, PPYOLOE_PLUS
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (64, 128)
TWICE = Letterbox.fit((256, 128), HW, 'stretch')
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=100)
INPUTS = 'scale_factor (1, 2); im_shape (1, 2)'
FINISHED = 'multiclass_nms3_0.tmp_0 (?, 6); multiclass_nms3_0.tmp_2 (1) int32'
RAW = 'boxes (1, 5, 4); scores (1, 3, 5)'
DETECTORS = (PPYOLOE, PPYOLOE_PLUS, PICODET)


def finished(*rows, dtype=np.float32):
    return {
        'multiclass_nms3_0.tmp_0': np.array(rows, dtype).reshape(-1, 6),
        'multiclass_nms3_0.tmp_2': np.array([len(rows)], np.int32),
    }


def raw(boxes, scores, dtype=np.float32):
    outputs = {'boxes': np.zeros((1, 5, 4), dtype), 'scores': np.zeros((1, 3, 5), dtype)}
    outputs['boxes'][0, : len(boxes)] = np.reshape(boxes, (-1, 4))
    outputs['scores'][0, :, : len(boxes)] = np.array(scores).T
    return outputs


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize('family', DETECTORS, ids=lambda family: family.name)
def test_rows_are_class_score_and_corners_without_further_nms(network, family, dtype):
    outputs = finished(
        [1, 0.5, 10, 20, 30, 40],
        [-1, 0.9, 0, 0, 9, 9],
        [1, 0.75, 10, 20, 30, 40],
        [0, 0.125, 10, 20, 30, 40],
        [2, np.nan, 10, 20, 30, 40],
        [2, 0.5, 10, np.inf, 30, 40],
        dtype=dtype,
    )
    head = open_head(family, network(FINISHED, inputs=INPUTS, hw=HW))
    found = head(outputs, TWICE, THRESHOLDS)
    assert found.xyxy.tolist() == [[20, 40, 60, 80]] * 2
    assert (found.scores.tolist(), found.labels.tolist()) == ([0.75, 0.5], [1, 1])
    assert (head.class_count, head.takes_batches) == (None, False)


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize('family', DETECTORS, ids=lambda family: family.name)
def test_boxes_before_nms_have_scores_by_class(network, family, dtype):
    outputs = raw(
        [[10, 20, 30, 40], [11, 20, 30, 40], [50, 0, 60, 10], [70, 0, 90, 10]],
        [[0, 0.5, 0], [0, 0.75, 0.375], [0.25, 0, 0], [0, np.nan, 0]],
        dtype,
    )
    head = open_head(family, network(RAW, inputs=INPUTS, hw=HW))
    found = head(outputs, TWICE, THRESHOLDS)
    assert found.scores.tolist() == [0.75, 0.375, 0.25]
    assert found.labels.tolist() == [1, 2, 0]
    assert found.xyxy.tolist() == [[22, 40, 60, 80], [22, 40, 60, 80], [100, 0, 120, 20]]
    assert head.class_count == 3


@pytest.mark.parametrize('family', DETECTORS, ids=lambda family: family.name)
def test_the_image_is_fed_as_one_that_was_not_resized(network, family):
    fed = family.constant_inputs(network(FINISHED, inputs=INPUTS, hw=HW))
    assert {name: value.tolist() for name, value in fed.items()} == {
        'scale_factor': [[1, 1]],
        'im_shape': [[64, 128]],
    }
    assert {value.dtype for value in fed.values()} == {np.dtype(np.float32)}
    assert family.constant_inputs(network(FINISHED, hw=HW)) == {}
