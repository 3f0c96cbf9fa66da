"""The classifier node, over a network that ONNX Runtime really runs."""

import numpy as np
import pytest
from vision_msgs.msg import Classification, LabelInfo

from support.ros_messages import GREEN, LATCHED, RED, classes_of, half_and_half


def test_the_classifier_ranks_what_the_image_shows(start, peer, models):
    node, ask = start(
        'classifier',
        'classify',
        models['classifier'],
        labels=['red', 'green', 'blue'],
        mean=[0.0, 0.0, 0.0],
        std=[1.0, 1.0, 1.0],
    )
    results = peer.inbox(Classification, '/classify/classification')
    found = ask(half_and_half((255, 51, 0), (255, 51, 0)), results)
    odds = np.exp([1.0, 0.2, 0.0])
    assert [each.class_id for each in found.results] == ['red', 'green', 'blue']
    assert [each.score for each in found.results] == pytest.approx(
        (odds / odds.sum()).tolist(), abs=1e-5
    )
    assert node.set(score_threshold=0.25, class_id_format='index') == ''
    found = ask(half_and_half((0, 0, 255), (0, 0, 255)), results)
    assert [each.class_id for each in found.results] == ['2']
    assert node.set(score_threshold=0.0, max_classes=2) == ''
    assert len(ask(half_and_half(RED, GREEN), results).results) == 2
    info = peer.inbox(LabelInfo, '/classify/label_info', LATCHED).wait_for()
    assert classes_of(info) == [(0, 'red'), (1, 'green'), (2, 'blue')]
