"""From image to boxes, on real models and on the fake."""

from functools import partial

import numpy as np
import pytest

from support.descriptions import specs
from support.fake_runner import IMAGE, FakeRunner
from trt_ros.errors import TensorMismatchError
from trt_ros.families.registry import DEPTHS, DETECTORS
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.options import LabeledOptions, PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

open_detector = partial(Pipeline.open, families=DETECTORS)

THRESHOLDS = Thresholds(score=0.3, iou=0.5, max_detections=10)


def open_runner(runner, families=DETECTORS, **options):
    return Pipeline.open(LabeledOptions(**options), families=families, runner=runner)


def picture(rgb, wh=(128, 128)):
    """One color all over, as a frame."""
    return Frame.from_pixels(np.full((wh[1], wh[0], 3), rgb, np.uint8), 'rgb8')


def found(detections):
    return [
        (xyxy.tolist(), int(label), round(float(score), 2))
        for xyxy, label, score in zip(detections.xyxy, detections.labels, detections.scores)
    ]


@pytest.mark.parametrize('dtype', [np.float32, np.float16, np.uint8])
@pytest.mark.parametrize('layout', ['nchw', 'nhwc'])
@pytest.mark.parametrize('dynamic', [False, True], ids=['static', 'dynamic'])
def test_the_network_gets_the_pixels_in_its_own_layout_and_dtype(
    color_detector, dtype, layout, dynamic
):
    scale = 1 / 255 if dtype == np.uint8 else 1.0  # The uint8 network normalizes by itself.
    model = color_detector(
        dtype=dtype,
        layout=layout,
        scale=scale,
        shape=() if dynamic else (64, 64),
        batch='batch' if dynamic else 1,
    )
    size = (64, 64) if dynamic else ()
    runner = OnnxRuntimeRunner.open(model, threads=1)
    pipeline = open_runner(runner, input_size=size)
    # The scores are the means of red, green and blue.
    for rgb, label, score in (((255, 102, 0), 0, 1.0), ((0, 102, 204), 2, 0.8)):
        result = pipeline.infer(picture(rgb), THRESHOLDS)
        assert found(result) == [([32, 32, 96, 96], label, score)]
    assert pipeline.class_names == ('red', 'green', 'blue')
    pipeline.close()


@pytest.mark.parametrize(
    ('options', 'rgb', 'label', 'score'),
    [
        ({}, (204, 0, 0), 0, 0.8),
        ({'channel_order': 'bgr'}, (204, 0, 0), 2, 0.8),
        ({'scale': 1 / 510}, (204, 0, 0), 0, 0.4),
        ({'mean': (0.0, -0.5, 0.0)}, (0, 0, 0), 1, 0.5),
        ({'mean': (0.0, -0.25, 0.0), 'std': (1.0, 0.5, 1.0)}, (0, 0, 0), 1, 0.5),
        ({'channel_order': 'bgr', 'mean': (-0.5, 0.0, 0.0)}, (0, 0, 0), 0, 0.5),
    ],
)
def test_options_change_what_reaches_the_network(color_detector, options, rgb, label, score):
    pipeline = open_detector(LabeledOptions(model_path=str(color_detector()), **options))
    assert found(pipeline.infer(picture(rgb), THRESHOLDS)) == [([32, 32, 96, 96], label, score)]


@pytest.mark.parametrize(
    ('options', 'xyxy', 'score'),
    [
        ({}, [32, 0, 96, 64], 0.5),  # Half of the input is padding, with 0 here.
        ({'resize': 'letterbox_topleft'}, [32, 32, 96, 64], 0.5),
        ({'resize': 'stretch', 'pad_value': -1}, [32, 16, 96, 48], 1.0),
        ({'pad_value': 255}, [32, 0, 96, 64], 1.0),
        ({'resize': 'center_crop', 'pad_value': -1}, [48, 16, 80, 48], 1.0),
        ({'resize': 'center_crop', 'pad_value': -1, 'crop_fraction': 0.5}, [56, 24, 72, 40], 1.0),
    ],
)
def test_resize_and_padding_follow_options(color_detector, options, xyxy, score):
    options = {'pad_value': 0, **options}
    pipeline = open_detector(LabeledOptions(model_path=str(color_detector()), **options))
    wide = picture((255, 255, 255), wh=(128, 64))
    assert found(pipeline.infer(wide, THRESHOLDS)) == [(xyxy, 0, score)]


@pytest.mark.parametrize('image_first', [True, False])
def test_rtdetr_size_input_is_network_size_and_boxes_are_in_image_pixels(image_first):
    inputs = specs('images (1, 3, 64, 96); orig_target_sizes (?, 2) int64', 'input')
    outputs = specs('labels (1, 2) int64; boxes (1, 2, 4); scores (1, 2)')

    def answer(tensors):
        whole = np.tile(tensors['orig_target_sizes'], 2).astype(np.float32)
        return {
            'labels': np.array([[7, 3]]),
            'scores': np.array([[0.4, 0.9]], np.float32),
            'boxes': np.stack([whole * 0.25 * [0, 0, 1, 1], whole * 0.5 * [1, 1, 2, 2]], 1),
        }

    inputs = inputs if image_first else inputs[::-1]
    pipeline = open_runner(FakeRunner(answer, inputs=inputs, outputs=outputs))
    assert pipeline.decoder.name == 'rtdetr'
    assert pipeline.preprocess.input_hw == (64, 96)
    found_there = found(pipeline.infer(picture((9, 9, 9), wh=(1920, 1080)), THRESHOLDS))
    assert found_there == [([960, 540, 1920, 1080], 3, 0.9), ([0, 0, 480, 270], 7, 0.4)]


def test_task_without_classes_logs_no_class_names():
    depth = [{'depth': np.full((1, 1, 64, 64), 2.5, np.float32)}]
    runner = FakeRunner(depth, inputs=(IMAGE,), outputs=specs('depth (1, 1, 64, 64)'))
    pipeline = Pipeline.open(PipelineOptions(), families=DEPTHS, runner=runner)
    assert not [line for line in pipeline.log_lines if 'class' in line]
    values = pipeline.infer(picture((0, 0, 0), wh=(5, 3))).values
    assert values.tolist() == [[2.5] * 5] * 3
    with pytest.raises(TensorMismatchError, match='looks like a depth network'):
        open_runner(runner)
