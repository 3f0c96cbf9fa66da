"""The detector publishes the chosen classes, changed at run time."""

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')

from rclpy.parameter import Parameter

pytestmark = pytest.mark.ros

RED, GREEN = (255, 0, 0), (0, 255, 0)


@pytest.fixture(scope='module')
def lane(fake_detector, lane_of):
    node = fake_detector(
        'choosy', '-r', 'image:=/choosy/image', autostart=True, classes=['green', 'blue']
    )
    return lane_of(node, topic='/choosy/image')


def strings(name, *values):
    return {name: Parameter(name, Parameter.Type.STRING_ARRAY, list(values))}


def found(lane, image):
    return [(name, score) for name, score, _ in lane.boxes(lane.detect(image))]


def test_only_the_chosen_classes_are_published(lane, picture, as_image):
    assert found(lane, as_image(picture(rgb=RED), 'rgb8')) == []
    green = found(lane, as_image(picture(rgb=GREEN), 'rgb8'))
    assert [name for name, _ in green] == ['green', 'green']


def test_classes_and_their_scores_change_at_run_time(lane, picture, as_image):
    red, green = (as_image(picture(rgb=rgb), 'rgb8') for rgb in (RED, GREEN))
    assert lane.node.set(**strings('classes', '0')) == ''
    assert found(lane, red) == [('red', 0.9), ('red', 0.6)]
    assert found(lane, green) == []
    assert lane.node.set(**strings('classes')) == ''
    assert lane.node.set(**strings('class_score_thresholds', 'red:0.7', 'green:0.1')) == ''
    assert found(lane, red) == [('red', 0.9)]
    assert found(lane, green) == [('green', 0.9), ('green', 0.6)]
    assert lane.node.set(score_threshold=0.95) == ''
    assert found(lane, green) == [('green', 0.9), ('green', 0.6)]
    assert lane.node.set(max_detections=1) == ''
    assert found(lane, green) == [('green', 0.9)]


def test_an_unknown_class_is_refused_and_changes_nothing(lane, picture, as_image):
    assert lane.node.set(score_threshold=0.25, **strings('classes', 'red')) == ''
    before = found(lane, as_image(picture(rgb=RED), 'rgb8'))
    assert "unknown class 'rad'" in lane.node.set(**strings('classes', 'rad'))
    assert lane.node.get('classes') == ['red']
    assert lane.node.set(**strings('class_score_thresholds')) == ''  # Reads `classes` again.
    assert found(lane, as_image(picture(rgb=RED), 'rgb8'))[: len(before)] == before
