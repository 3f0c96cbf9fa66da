import numpy as np
import pytest

from support.descriptions import network
from trt_ros.decode.choice import open_head
from trt_ros.families.detr import RFDETR_SEG
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

GRID = 8
WHOLE = Letterbox.fit((16, 16), (16, 16), 'stretch')


def outputs(*queries, classes=3, count=6, dtype=np.float32):
    """Each ({class: logit}, x1, y1, x2, y2): a mask of one rectangle of cells, and its box."""
    labels, dets = np.full((1, count, classes), -50.0), np.zeros((1, count, 4))
    masks = np.full((1, count, GRID, GRID), -20.0)
    for index, (scores, x1, y1, x2, y2) in enumerate(queries):
        for label, value in scores.items():
            labels[0, index, label] = value
        dets[0, index] = np.array([x1 + x2, y1 + y2, 2 * (x2 - x1), 2 * (y2 - y1)]) / (2 * GRID)
        masks[0, index, y1:y2, x1:x2] = 20
    found = {'dets': dets, 'labels': labels, 'masks': masks}
    return {name: values.astype(dtype) for name, values in found.items()}


def decode(tensors, letterbox=WHOLE, score=0.25, max_detections=100):
    outputs = 'dets (1, ?, 4); labels (1, ?, 3); masks (1, ?, 8, 8)'
    head = open_head(RFDETR_SEG, network(outputs, hw=(16, 16)))
    return head(tensors, letterbox, Thresholds(score=score, max_detections=max_detections))


def painted(found):
    return found.paint(np.arange(1, len(found) + 1, dtype=np.uint8))


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
def test_objects_have_box_class_score_and_mask_in_image_pixels(dtype):
    found = decode(outputs(({1: 1.0}, 0, 0, 4, 2), ({2: 3.0}, 4, 4, 8, 8), dtype=dtype))
    assert found.detections.labels.tolist() == [2, 1]
    assert found.detections.scores.tolist() == pytest.approx([0.9526, 0.7311], abs=1e-4)
    assert found.detections.xyxy.tolist() == [[8, 8, 16, 16], [0, 0, 8, 4]]
    image = painted(found)
    assert image[8:, 8:].all() and (image[8:, 8:] == 1).all()
    assert (image[:4, :8] == 2).all()
    assert np.count_nonzero(image) == 64 + 32


def test_masks_are_the_resized_logits_above_0_wherever_the_box_is():
    rng = np.random.default_rng(0)
    tensors = outputs(*[({0: 2.0}, 2, 2, 4, 4)] * 6)
    tensors['masks'] = rng.normal(size=(1, 6, GRID, GRID)).astype(np.float32)
    letterbox = Letterbox.fit((37, 21), (16, 16), 'stretch')
    found = decode(tensors, letterbox)
    assert len(found) == 6
    rows, cols = taps(letterbox, (GRID, GRID))
    for index, plane in enumerate(tensors['masks'][0]):
        alone = found.take(np.array([index])).paint(np.ones(1, np.uint8))
        assert np.array_equal(alone, bilinear(plane, rows, cols) > 0)


def test_one_query_of_two_classes_has_its_mask_twice_and_one_without_a_mask_is_kept():
    found = decode(outputs(({0: 1.0, 2: 2.0}, 0, 0, 2, 2)))
    assert found.detections.labels.tolist() == [2, 0]
    assert [np.count_nonzero(mask) for mask in found.masks] == [16, 16]
    tensors = outputs(({0: 1.0}, 0, 0, 2, 2), ({0: 2.0}, 4, 4, 6, 6))
    tensors['masks'][0, 1] = [[-1.0], *[[np.nan]] * (GRID - 1)]
    found = decode(tensors)
    assert found.detections.scores.tolist() == pytest.approx([0.8808, 0.7311], abs=1e-4)
    assert painted(found)[:4, :4].all()
    assert np.count_nonzero(painted(found)) == 16


def test_the_last_logit_is_no_class_beside_named_classes():
    seen = network(
        'dets (1, 6, 4); labels (1, 6, 4); masks (1, 6, 8, 8)', hw=(16, 16), class_count=3
    )
    head = open_head(RFDETR_SEG, seen)
    found = head(outputs(({3: 5.0, 1: 1.0}, 0, 0, 2, 2), classes=4), WHOLE, Thresholds())
    assert (head.class_count, found.detections.labels.tolist()) == (3, [1])
