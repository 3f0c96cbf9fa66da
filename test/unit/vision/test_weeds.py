"""A real network on real photographs, from pixels to boxes."""

import json

import pytest

from trt_ros import Pipeline


@pytest.fixture(scope='module')
def pipeline(weeds):
    options = {'backend': 'onnxruntime', 'labels_path': str(weeds / 'labels.txt')}
    with Pipeline.open(weeds / 'weeds_yolox_nano.onnx', **options) as opened:
        yield opened


def test_the_decoder_and_its_preprocessing_are_recognized(pipeline):
    decoder = pipeline.decoder
    assert (decoder.name, decoder.class_count) == ('yolox', 3)
    assert decoder.preprocess['resize'] == 'letterbox_topleft'
    assert decoder.preprocess['channel_order'] == 'bgr'


@pytest.mark.parametrize('photo', [f'field_{number}.jpg' for number in range(1, 6)])
def test_the_weeds_of_a_photograph_are_found(photo, weeds, pipeline, assert_finds):
    expected = json.loads((weeds / 'expected.json').read_text())[photo]
    found = pipeline(weeds / photo, score=0.5, iou=0.45, max_detections=300)
    assert_finds([(each.name, each.score, each.xyxy) for each in found], expected['detections'])
