"""The real weeds detector in the node, on real photographs."""

import json

import cv2

from support.ros_messages import as_image


def test_the_node_finds_in_real_photographs_what_is_expected(
    start_lane, weeds, assert_finds, backend
):
    lane = start_lane(
        'weeds',
        backend=backend,
        model_path=str(weeds / 'weeds_yolox_nano.onnx'),
        labels_path=str(weeds / 'labels.txt'),
    )
    expected = json.loads((weeds / 'expected.json').read_text())
    assert expected
    for name, photograph in expected.items():
        found = lane.detect(as_image(cv2.imread(str(weeds / name)), 'bgr8'))
        assert_finds(
            lane.boxes(found),
            photograph['detections'],
            min_iou=0.95 if backend == 'onnxruntime' else 0.9,
        )
    assert 'decoder yolox' in lane.node.log
    if backend != 'onnxruntime':
        lane.status('zero-copy frames', f'{len(expected)} of {len(expected)}')
