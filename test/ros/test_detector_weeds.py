"""The real weeds detector in the node, on real photographs."""

import json

import cv2


def test_the_node_finds_in_real_photographs_what_is_expected(
    start_node, lane_of, as_image, weeds, assert_finds, backend
):
    lane = lane_of(
        start_node(
            'weeds',
            'trt_ros.nodes.detector',
            '-r',
            'image:=/field',
            autostart=True,
            backend=backend,
            model_path=str(weeds / 'weeds_yolox_nano.onnx'),
            labels_path=str(weeds / 'labels.txt'),
            qos_reliability='reliable',
        ),
        topic='/field',
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
