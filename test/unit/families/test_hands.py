"""Hand landmarks of MediaPipe, and the regions of its palm detection."""

import math

import numpy as np
import pytest

from support.objects import detections
from trt_ros.decode.choice import open_head
from trt_ros.families.faces import hand_regions
from trt_ros.families.keypoints import MEDIAPIPE_HAND
from trt_ros.results.poses import BONES, HAND, NAMES, Poses
from trt_ros.vision.letterbox import Letterbox

HW = (224, 224)
OUTPUTS = 'Identity (1, 63); Identity_1 (1, 1); Identity_2 (1, 1); Identity_3 (1, 63)'
TWICE = Letterbox.fit((448, 448), HW, 'stretch')


def outputs(score=0.75, handedness=0.25):
    landmarks = np.arange(63).reshape(1, 63)
    return {
        'Identity': landmarks.astype(np.float32),
        'Identity_1': np.full((1, 1), score, np.float32),
        'Identity_2': np.full((1, 1), handedness, np.float32),
        'Identity_3': np.zeros((1, 63), np.float32),
    }


def decode(network, tensors, names=OUTPUTS):
    return open_head(MEDIAPIPE_HAND, network(names, hw=HW))(tensors, TWICE)


@pytest.mark.parametrize('score', [0.75, 0.0])
def test_landmarks_are_input_pixels_as_visible_as_the_hand(network, score):
    found = decode(network, outputs(score=score))
    assert found.keypoints[0].tolist() == [[6 * i, 6 * i + 2, score] for i in range(21)]
    assert found.detections.xyxy.tolist() == [[0, 0, 448, 448]]
    assert found.detections.scores.tolist() == [score]


@pytest.mark.parametrize(('handedness', 'name'), [(0.0, 'left'), (0.49, 'left'), (0.5, 'right')])
def test_handedness_is_the_class(network, handedness, name):
    head = open_head(MEDIAPIPE_HAND, network(OUTPUTS, hw=HW))
    (label,) = head(outputs(handedness=handedness), TWICE).detections.labels
    assert (head.own_class_names[label], head.class_count) == (name, 2)


def test_regions_are_taken_with_their_palms_and_without_handedness_there_is_one_class(network):
    head = open_head(MEDIAPIPE_HAND, network('a (1, 63); b (1, 1)', hw=(256, 256)))
    assert (head.class_count, head.own_class_names) == (1, ('hand',))
    found = palms(0.0, 1.0, 2.0)
    some = Poses(found.detections, found.keypoints, hand_regions(found)).take(np.array([2, 0]))
    assert some.regions.theta.tolist() == hand_regions(found).theta[[2, 0]].tolist()


def test_values_that_are_not_finite_are_not_visible(network):
    tensors = outputs()
    tensors['Identity'][0, 3:5] = np.nan, np.inf
    found = decode(network, tensors)
    assert found.keypoints[0, 1].tolist() == [0, 0, 0]
    assert np.count_nonzero(found.keypoints[..., 2]) == 20
    assert not decode(network, outputs(score=np.nan)).keypoints[..., 2].any()


def test_every_joint_of_a_hand_is_on_a_bone():
    assert NAMES[21] == HAND
    assert len(set(HAND)) == 21
    assert {joint for bone in BONES for joint in bone} == set(range(21))
    tips = [index for index, name in enumerate(HAND) if name.endswith('tip')]
    ends = [joint for bone in BONES for joint in bone]
    assert [ends.count(tip) for tip in tips] == [1] * 5


# Regions.

#: An upright palm, 40 wide and 50 high: wrist, bases of index, middle, ring finger and pinky,
#: two points of the thumb.
PALM = np.array([[0, 0], [-20, -50], [-5, -50], [10, -48], [20, -40], [-18, -10], [-20, -30]])


def palms(*turned):
    """Palms around (100, 200), turned clockwise by angles."""
    cos, sin = np.cos(turned), np.sin(turned)
    turns = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)
    points = np.einsum('nij,kj->nki', turns, PALM).astype(np.float32) + np.array([100, 200])
    keypoints = np.concatenate([points, np.ones((len(turned), 7, 1))], axis=-1, dtype=np.float32)
    scores = np.linspace(0.9, 0.5, len(turned))
    boxes = detections(*[(0, 0, 0, 0)] * len(turned), score=scores)
    return Poses(boxes, keypoints)


def test_the_region_is_three_times_the_palm_and_moved_to_the_fingers():
    (region,) = hand_regions(palms(math.atan2(5, 50))).cxcywh  # Wrist to middle finger: upright.
    assert hand_regions(palms(math.atan2(5, 50))).theta.tolist() == pytest.approx([0], abs=1e-6)
    turned = palms(math.atan2(5, 50)).keypoints[0, :, :2]
    low, high = turned.min(axis=0), turned.max(axis=0)
    size = high - low
    center = (low + high) / 2 - [0, 0.4 * size[1]]
    assert region.tolist() == pytest.approx([*center, *[3 * size.max()] * 2], abs=1e-4)


def test_regions_turn_with_the_palm():
    angles = [0.0, 0.7, math.pi / 2, math.pi, -2.0]
    found = hand_regions(palms(*angles))
    upright = found.theta[0]
    assert np.cos(found.theta - upright - angles).tolist() == pytest.approx([1] * 5)
    offset = found.cxcywh[0, :2] - [100, 200]
    for angle, box in zip(angles, found.cxcywh):
        cos, sin = math.cos(angle), math.sin(angle)
        expected = [
            100 + cos * offset[0] - sin * offset[1],
            200 + sin * offset[0] + cos * offset[1],
        ]
        assert box[:2].tolist() == pytest.approx(expected, abs=1e-3)
        assert box[2:].tolist() == pytest.approx(found.cxcywh[0, 2:].tolist(), rel=1e-5)
    assert found.scores.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5])
