"""The segmenter node, over semantic and instance segmentation networks."""

import numpy as np
import pytest
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray, LabelInfo

from support.ros_messages import GREEN, LATCHED, RED, classes_of, half_and_half, pixels_of
from trt_ros.drawing.labels import color_of


def test_segmenter_publishes_class_per_pixel(start, peer, models):
    node, ask = start('segmenter', 'semantic', models['semantic'], labels=['r', 'g', 'b'])
    masks, overlays = peer.inboxes('semantic', mask=Image, overlay=Image)
    assert '/semantic/confidence' not in dict(peer.node.get_topic_names_and_types())
    mask, overlay = ask(half_and_half(RED, GREEN), masks, overlays)
    assert mask.encoding == 'mono8'
    assert (pixels_of(mask) == half_and_half((0,) * 3, (1,) * 3)[..., 0]).all()
    for seen, color, red in zip(pixels_of(overlay)[5, 5].tolist(), color_of(0), (0, 0, 255)):
        assert seen == pytest.approx((color + red) / 2, abs=1)
    assert node.set(overlay_opacity=1.0) == ''
    _, overlay = ask(half_and_half(RED, GREEN, (33, 21)), masks, overlays)
    assert (overlay.width, overlay.height) == (33, 21)
    assert pixels_of(overlay)[20, 32].tolist() == list(color_of(1))
    info = peer.inbox(LabelInfo, '/semantic/label_info', LATCHED).wait_for()
    assert classes_of(info) == [(0, 'r'), (1, 'g'), (2, 'b')]
    assert info.threshold == 0  # No pixel is left out for its score.


def test_the_confidence_of_a_mask_is_that_of_its_class(start, peer, models):
    settings = {'mean': [0.0] * 3, 'std': [1.0] * 3, 'labels': ['r', 'g', 'b'], 'confidence': True}
    _, ask = start('segmenter', 'sure', models['semantic'], **settings)
    masks, confidences = peer.inboxes('sure', mask=Image, confidence=Image)
    # The network's scores are the colors, so that they count as probabilities.
    mask, confidence = ask(half_and_half((204, 0, 0), (0, 102, 51)), masks, confidences)
    assert (mask.encoding, confidence.encoding) == ('mono8', 'mono8')
    assert (pixels_of(mask) == half_and_half((0,) * 3, (1,) * 3)[..., 0]).all()
    seen = pixels_of(confidence).astype(int)
    assert np.abs(seen[:, :28] - 204).max() <= 1 and np.abs(seen[:, 36:] - 102).max() <= 1


def test_segmenter_separates_objects(start, peer, models):
    node, ask = start(
        'segmenter', 'instances', models['instances'], confidence=True, label_size=0.0
    )
    images = dict.fromkeys(('mask', 'instances', 'overlay', 'confidence'), Image)
    inboxes = peer.inboxes('instances', **images, detections=Detection2DArray)
    gray = np.full((64, 64, 3), 90, np.uint8)  # Twice the network's size.
    mask, number, overlay, confidence, found = ask(gray, *inboxes)
    scores = np.uint8([0, round(0.9 * 255), round(0.8 * 255)])
    assert (pixels_of(confidence) == scores[pixels_of(mask)]).all()
    assert [each.results[0].hypothesis.class_id for each in found.detections] == ['left', 'right']
    expected = np.zeros((64, 64), int)
    expected[32:48, :32], expected[32:48, 32:] = 1, 2
    for image, encoding in ((mask, 'mono8'), (number, 'mono16')):
        assert image.encoding == encoding
        # Between the cells of the prototypes, 8 pixels wide here, the edge is interpolated.
        assert (pixels_of(image)[36:] == expected[36:]).all()
        assert (pixels_of(image)[:28] == 0).all()
    assert (pixels_of(overlay)[40, 10] != 90).any()
    assert (pixels_of(overlay)[55:, 10] == 90).all()
    info = peer.inbox(LabelInfo, '/instances/label_info', LATCHED).wait_for()
    assert classes_of(info) == [(0, 'background'), (1, 'left'), (2, 'right')]
    assert info.threshold == 0.25
    assert node.set(score_threshold=0.5) == ''
    infos = peer.inbox(LabelInfo, '/instances/label_info', LATCHED)
    assert infos.wait_for(lambda info: info.threshold == 0.5).class_map
