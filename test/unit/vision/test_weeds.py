"""A real network on real photographs, from pixels to boxes."""

import json

import cv2
import onnxruntime
import pytest

from trt_ros.decode.choice import choose_decoder
from trt_ros.families.family import NetworkDescription
from trt_ros.results.labels import class_names, name_of
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds


@pytest.fixture(scope='module')
def session(weeds):
    return onnxruntime.InferenceSession(
        str(weeds / 'weeds_yolox_nano.onnx'), providers=['CPUExecutionProvider']
    )


@pytest.fixture(scope='module')
def decoder(session):
    specs = [
        tuple(TensorSpec(value.name, tuple(value.shape), 'float32', mode) for value in values)
        for mode, values in (('input', session.get_inputs()), ('output', session.get_outputs()))
    ]
    metadata = session.get_modelmeta().custom_metadata_map
    return choose_decoder('auto', NetworkDescription(*specs, metadata, (416, 416)))


def test_the_decoder_and_its_preprocessing_are_recognized(decoder):
    assert (decoder.name, decoder.class_count) == ('yolox', 3)
    assert decoder.preprocess['resize'] == 'letterbox_topleft'
    assert decoder.preprocess['channel_order'] == 'bgr'


@pytest.mark.parametrize('photo', [f'field_{number}.jpg' for number in range(1, 6)])
def test_the_weeds_of_a_photograph_are_found(photo, weeds, session, decoder, assert_finds):
    preprocess = Preprocess((416, 416), **decoder.preprocess)
    names = class_names((), str(weeds / 'labels.txt'), {}, decoder.class_count)
    expected = json.loads((weeds / 'expected.json').read_text())[photo]

    tensor, letterbox = preprocess(Frame.from_pixels(cv2.imread(str(weeds / photo))))
    outputs = {'output': session.run(None, {'images': tensor})[0]}
    found = decoder(outputs, letterbox, Thresholds(score=0.5, iou=0.45, max_detections=300))

    assert_finds(
        [
            (name_of(names, label), score, xyxy)
            for label, score, xyxy in zip(found.labels, found.scores, found.xyxy)
        ],
        expected['detections'],
    )
