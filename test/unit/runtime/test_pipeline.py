"""From image to boxes, on real models and on the fake."""

from __future__ import annotations

from dataclasses import replace
import threading

import numpy as np
import pytest

from support.fake_runner import FakeRunner
from trt_ros.errors import (
    BackendError,
    ClosedError,
    ModelError,
    ParameterError,
    TensorMismatchError,
    TrtRosError,
)
from trt_ros.progress import CancelledError
from trt_ros.runtime import backends as choice
from trt_ros.runtime.backends import Backend
from trt_ros.runtime.cpu.frame_runner import StepByStep
from trt_ros.runtime.options import LabelledOptions, PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.runtime.runner import FrameRunner
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.registry import CLASSIFIERS, DEPTHS
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

THRESHOLDS = Thresholds(score=0.3, iou=0.5, max_detections=10)
IMAGE = TensorSpec('images', (1, 3, 64, 64), 'float32', 'input')
HEAD = TensorSpec('output0', (1, 7, 84), 'float32', 'output')


def picture(rgb, wh=(128, 128)):
    """One colour all over, as a frame."""
    return Frame.from_pixels(np.full((wh[1], wh[0], 3), rgb, np.uint8), 'rgb8')


def head_with(*boxes):
    """Answer with these boxes: cx, cy, w, h in input pixels, class, score."""
    head = np.zeros((1, 7, 84), np.float32)
    for anchor, (*cxcywh, label, score) in enumerate(boxes):
        head[0, :4, anchor], head[0, 4 + label, anchor] = cxcywh, score
    return {'output0': head}


def fake(*answers, inputs=(IMAGE,), metadata=None):
    return FakeRunner(answers or [head_with()], inputs=inputs, outputs=(HEAD,), metadata=metadata)


def found(detections):
    return [
        (xyxy.tolist(), int(label), round(float(score), 2))
        for xyxy, label, score in zip(detections.xyxy, detections.labels, detections.scores)
    ]


# What goes in and comes out.


@pytest.mark.parametrize('antialias, expected', [(False, {0.0}), (True, {0.25})])
def test_antialias_averages_reduced_image(antialias, expected):
    seen = []

    def look(tensors):
        seen.append(tensors['images'][0, 0, 8:-8, 8:-8].round(3))
        return head_with()

    pipeline = Pipeline.open(
        LabelledOptions(antialias=antialias),
        runner=FakeRunner(look, inputs=(IMAGE,), outputs=(HEAD,)),
    )
    pixels = np.zeros((256, 256, 3), np.uint8)
    pixels[::4] = 255  # One of the four rows that become one; bilinear looks at the middle two.
    pipeline.infer(Frame.from_pixels(pixels), THRESHOLDS)
    assert set(np.unique(seen[-1]).tolist()) == {np.float32(value) for value in expected}


def test_empty_image_gives_no_boxes():
    pipeline = Pipeline.open(LabelledOptions(), runner=fake())
    assert len(pipeline.infer(picture((0, 0, 0)), THRESHOLDS)) == 0


def test_boxes_come_back_in_image_pixels_best_first():
    pipeline = Pipeline.open(
        LabelledOptions(), runner=fake(head_with((32, 32, 16, 8, 2, 0.5), (8, 24, 16, 8, 0, 0.9)))
    )
    # 128 × 64 becomes 64 × 32, with 16 rows of padding above.
    assert found(pipeline.infer(picture((0, 0, 0), wh=(128, 64)), THRESHOLDS)) == [
        ([0, 8, 32, 24], 0, 0.9),
        ([48, 24, 80, 40], 2, 0.5),
    ]


def test_thresholds_apply_per_call():
    pipeline = Pipeline.open(
        LabelledOptions(),
        runner=fake(head_with((8, 8, 8, 8, 0, 0.9), (8, 9, 8, 8, 0, 0.8), (40, 40, 8, 8, 1, 0.4))),
    )

    def scores(**changed):
        detections = pipeline.infer(picture((0, 0, 0)), replace(THRESHOLDS, **changed))
        return np.round(detections.scores, 2).tolist()

    assert scores() == pytest.approx([0.9, 0.4])
    assert scores(iou=0.9) == pytest.approx([0.9, 0.8, 0.4])
    assert scores(score=0.5) == pytest.approx([0.9])
    assert scores(max_detections=1, iou=0.9) == pytest.approx([0.9])


@pytest.mark.parametrize('dtype', [np.float32, np.float16, np.uint8])
@pytest.mark.parametrize('layout', ['nchw', 'nhwc'])
@pytest.mark.parametrize('dynamic', [False, True], ids=['static', 'dynamic'])
def test_the_network_gets_the_pixels_in_its_own_layout_and_dtype(
    colour_detector, dtype, layout, dynamic
):
    scale = 1 / 255 if dtype == np.uint8 else 1.0  # The uint8 network normalises by itself.
    model = colour_detector(
        dtype=dtype,
        layout=layout,
        scale=scale,
        shape=() if dynamic else (64, 64),
        batch='batch' if dynamic else 1,
    )
    size = (64, 64) if dynamic else ()
    pipeline = Pipeline.open(LabelledOptions(model_path=str(model), input_size=size))
    # The scores are the means of red, green and blue.
    assert found(pipeline.infer(picture((255, 102, 0)), THRESHOLDS)) == [
        ([32, 32, 96, 96], 0, 1.0)
    ]
    assert found(pipeline.infer(picture((0, 102, 204)), THRESHOLDS)) == [
        ([32, 32, 96, 96], 2, 0.8)
    ]
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
def test_options_change_what_reaches_the_network(colour_detector, options, rgb, label, score):
    pipeline = Pipeline.open(LabelledOptions(model_path=str(colour_detector()), **options))
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
def test_resize_and_padding_follow_options(colour_detector, options, xyxy, score):
    options = {'pad_value': 0, **options}
    pipeline = Pipeline.open(LabelledOptions(model_path=str(colour_detector()), **options))
    wide = picture((255, 255, 255), wh=(128, 64))
    assert found(pipeline.infer(wide, THRESHOLDS)) == [(xyxy, 0, score)]


def classifier(**options):
    scores = TensorSpec('scores', (1, 10), 'float32', 'output')
    return Pipeline.open(
        LabelledOptions(**options),
        families=CLASSIFIERS,
        runner=FakeRunner(
            [{'scores': np.zeros((1, 10), np.float32)}], inputs=(IMAGE,), outputs=(scores,)
        ),
    )


def test_classifier_crops_the_centre_by_default():
    assert 'center_crop of 0.875 of the shorter side, rgb' in classifier().log_lines[2]
    assert 'center_crop of 1 of the shorter side' in classifier(crop_fraction=1.0).log_lines[2]
    assert classifier(resize='stretch').preprocess.resize == 'stretch'
    with pytest.raises(ParameterError, match='resize stretch does not crop'):
        classifier(resize='stretch', crop_fraction=0.9)


def test_whole_image_tasks_do_not_crop():
    depth = TensorSpec('depth', (1, 1, 32, 32), 'float32', 'output')
    runner = FakeRunner([{}], inputs=(IMAGE,), outputs=(depth,))
    with pytest.raises(ParameterError, match='would not see the whole image'):
        Pipeline.open(PipelineOptions(resize='center_crop'), families=DEPTHS, runner=runner)
    assert runner.is_closed


# What is told.


def test_log_lines_name_backend_decoder_and_preprocessing(colour_detector):
    pipeline = Pipeline.open(
        LabelledOptions(model_path=str(colour_detector()), mean=(0.5, 0.5, 0.5), cpu_threads=1)
    )
    backend, decoder, preprocess, classes = pipeline.log_lines
    assert backend.startswith('backend onnxruntime: ONNX Runtime on the CPU')
    assert decoder.startswith('decoder yolov8: ')
    assert preprocess == (
        'input 64x64 (fixed by the network), letterbox padded with 114, rgb, nchw float32, '
        'scale 0.00392157, mean (0.5, 0.5, 0.5), std (1.0, 1.0, 1.0)'
    )
    assert classes == '3 class names'


def test_log_lines_report_removed_background_class(colour_detector, tmp_path):
    labels = tmp_path / 'labels.txt'
    labels.write_text('BACKGROUND\na\nb\nc\n')
    pipeline = Pipeline.open(
        LabelledOptions(model_path=str(colour_detector()), labels_path=str(labels), cpu_threads=1)
    )
    assert pipeline.class_names == ('a', 'b', 'c')
    assert pipeline.log_lines[-1] == (
        "3 class names, without 'BACKGROUND', which is not a class of the network"
    )


def test_labels_longer_than_the_networks_classes_are_refused_with_both_counts(colour_detector):
    with pytest.raises(ParameterError, match='names 4 classes, but the network has 3'):
        Pipeline.open(
            LabelledOptions(model_path=str(colour_detector()), labels=('a', 'b', 'c', 'd'))
        )


@pytest.mark.parametrize(
    ('metadata', 'input_hw', 'why'),
    [
        ({'imgsz': '[96, 64]'}, (96, 64), 'from the metadata'),
        ({'imgsz': 'big'}, (640, 640), 'by default'),
        ({'imgsz': '[0, 0]'}, (640, 640), 'by default'),
        ({}, (640, 640), 'by default'),
    ],
)
def test_a_dynamic_size_comes_from_the_metadata_or_is_640(metadata, input_hw, why):
    runner = FakeRunner(
        [{}],
        metadata=metadata,
        inputs=[TensorSpec('x', (-1, 3, -1, -1), 'float32', 'input')],
        outputs=[TensorSpec('y', (-1, 7, -1), 'float32', 'output')],
    )
    pipeline = Pipeline.open(LabelledOptions(decoder='yolov8'), runner=runner)
    assert pipeline.preprocess.input_hw == input_hw
    assert why in pipeline.log_lines[2]


def test_phases_are_reported_in_order(colour_detector):
    told = []
    Pipeline.open(LabelledOptions(model_path=str(colour_detector())), on_progress=told.append)
    assert [progress.phase for progress in told] == [
        'loading the model',
        'choosing the decoder',
        'warming up',
        'ready',
    ]
    assert told[-1].percent == 100.0
    elapsed = [progress.elapsed_seconds for progress in told]
    assert elapsed == sorted(elapsed)


# Several images at once.


def test_runs_several_images_at_once_until_closed():
    image, head = (
        TensorSpec(spec.name, (-1, *spec.shape[1:]), 'float32', spec.mode)
        for spec in (IMAGE, HEAD)
    )
    runner = FakeRunner(
        lambda tensors: {
            'output0': np.repeat(
                head_with((32, 32, 16, 16, 2, 0.9))['output0'], len(tensors['images']), axis=0
            )
        },
        inputs=(image,),
        outputs=(head,),
    )
    pipeline = Pipeline.open(LabelledOptions(), runner=runner, batch=3)
    assert pipeline.infer_all([], THRESHOLDS) == []
    assert pipeline.max_batch == 3
    assert pipeline.log_lines[-1] == 'batch size: up to 3 images per run'
    results = pipeline.infer_all([picture((0, 0, 0)), picture((0, 0, 0), (64, 64))], THRESHOLDS)
    assert [found(result) for result in results] == [
        [([48, 48, 80, 80], 2, 0.9)],
        [([24, 24, 40, 40], 2, 0.9)],
    ]
    assert runner.call_count == 1
    pipeline.close()
    with pytest.raises(ClosedError):
        pipeline.infer_all([picture((0, 0, 0))], THRESHOLDS)


def test_fixed_batch_network_is_recognised_by_outputs_per_image():
    image, head = (
        TensorSpec(spec.name, (4, *spec.shape[1:]), 'float32', spec.mode) for spec in (IMAGE, HEAD)
    )
    runner = FakeRunner(
        [{'output0': np.repeat(head_with((32, 32, 16, 16, 2, 0.9))['output0'], 4, axis=0)}],
        inputs=(image,),
        outputs=(head,),
    )
    pipeline = Pipeline.open(LabelledOptions(), runner=runner)
    assert pipeline.decoder.name == 'yolov8'
    assert found(pipeline.infer(picture((0, 0, 0)), THRESHOLDS)) == [([48, 48, 80, 80], 2, 0.9)]


# What is refused; the runner is given back each time.


@pytest.mark.parametrize(
    ('shape', 'dtype', 'message'),
    [
        ((4, 3, 64, 64), 'float32', 'has a batch size of 4, which the outputs do not have'),
        ((1, 3, 64), 'float32', 'is not a batch of images'),
        ((1, 5, 64, 64), 'float32', 'no dimension of 1, 3 or 4 channels'),
        ((1, 3, 64, 64), 'int64', 'unsupported image dtype int64'),
    ],
)
def test_rejects_input_that_is_not_an_image(shape, dtype, message):
    runner = fake(inputs=[TensorSpec('images', shape, dtype, 'input')])
    with pytest.raises(TensorMismatchError, match=message):
        Pipeline.open(LabelledOptions(), runner=runner)
    assert runner.is_closed


def test_rejects_network_of_another_task():
    runner = fake(metadata={'task': 'segment'})
    with pytest.raises(
        TensorMismatchError, match='a segmentation network; the detector runs detection networks'
    ):
        Pipeline.open(LabelledOptions(), runner=runner)
    assert runner.is_closed


def test_a_network_with_two_inputs_is_refused_and_both_are_named():
    runner = fake(inputs=[IMAGE, TensorSpec('size', (1, 2), 'int64', 'input')])
    with pytest.raises(
        TensorMismatchError, match='The network input size gets no value'
    ) as caught:
        Pipeline.open(LabelledOptions(), runner=runner)
    assert caught.value.cause == (
        'The network has 2 inputs: images (1, 3, 64, 64) float32; size (1, 2) int64.'
    )
    assert "['images=image:images/image_raw', 'size=tensor:size']" in caught.value.remedy


@pytest.mark.parametrize('image_first', [True, False])
def test_rtdetr_size_input_is_network_size_and_boxes_are_in_image_pixels(image_first):
    image = TensorSpec('images', (1, 3, 64, 96), 'float32', 'input')
    size = TensorSpec('orig_target_sizes', (-1, 2), 'int64', 'input')
    outputs = [
        TensorSpec('labels', (1, 2), 'int64', 'output'),
        TensorSpec('boxes', (1, 2, 4), 'float32', 'output'),
        TensorSpec('scores', (1, 2), 'float32', 'output'),
    ]

    def answer(tensors):
        whole = np.tile(tensors['orig_target_sizes'], 2).astype(np.float32)
        return {
            'labels': np.array([[7, 3]]),
            'scores': np.array([[0.4, 0.9]], np.float32),
            'boxes': np.stack([whole * 0.25 * [0, 0, 1, 1], whole * 0.5 * [1, 1, 2, 2]], 1),
        }

    inputs = [image, size] if image_first else [size, image]
    pipeline = Pipeline.open(
        LabelledOptions(), runner=FakeRunner(answer, inputs=inputs, outputs=outputs)
    )
    assert pipeline.decoder.name == 'rtdetr'
    assert pipeline.preprocess.input_hw == (64, 96)
    found_there = found(pipeline.infer(picture((9, 9, 9), wh=(1920, 1080)), THRESHOLDS))
    assert found_there == [([960, 540, 1920, 1080], 3, 0.9), ([0, 0, 480, 270], 7, 0.4)]


@pytest.mark.parametrize(
    ('options', 'error', 'message'),
    [
        ({'input_size': (32, 32)}, ParameterError, 'takes only 64 by 64'),
        ({'decoder': 'yolox'}, TensorMismatchError, 'Not a YOLOX head'),
        ({'decoder': 'ssd'}, TensorMismatchError, 'not boxes and scores'),
        ({'decoder': 'yolo'}, ParameterError, "Decoder 'yolo' does not exist"),
        ({'labels': ('one', 'two')}, TrtRosError, '2 classes'),
        ({'labels_path': '/nowhere/labels.txt'}, ParameterError, 'Cannot read the class names'),
    ],
)
def test_rejects_options_that_contradict_the_network(options, error, message):
    runner = fake()
    with pytest.raises(error, match=message):
        Pipeline.open(LabelledOptions(**options), runner=runner)
    assert runner.is_closed


def test_accepts_input_size_equal_to_fixed_size():
    pipeline = Pipeline.open(LabelledOptions(input_size=(64, 64)), runner=fake())
    assert pipeline.preprocess.input_hw == (64, 64)


def test_normalising_a_uint8_input_is_refused():
    runner = fake(inputs=[TensorSpec('images', (1, 3, 64, 64), 'uint8', 'input')])
    with pytest.raises(ParameterError, match='mean and scale cannot be applied'):
        Pipeline.open(LabelledOptions(mean=(1.0, 1.0, 1.0), scale=0.5), runner=runner)


def test_missing_model_names_the_parameter():
    with pytest.raises(ParameterError, match='Set model_path'):
        Pipeline.open(LabelledOptions())


def test_unsupported_size_fails_at_open_not_at_first_frame(
    colour_detector,
):
    # Its head has the anchors of 64 × 64 whatever it gets, and it is told of another size.
    model = colour_detector(shape=(), metadata={})
    with pytest.raises((ModelError, TensorMismatchError)):
        Pipeline.open(LabelledOptions(model_path=str(model), input_size=(96, 96), decoder='yolox'))


# Its life.


def test_set_event_cancels_open_and_closes_runner():
    cancelled = threading.Event()
    cancelled.set()
    runner = fake()
    with pytest.raises(CancelledError, match='Cancelled before choosing the decoder'):
        Pipeline.open(LabelledOptions(), cancelled=cancelled, runner=runner)
    assert runner.is_closed


def test_cancel_during_open_stops_before_next_phase(colour_detector):
    cancelled = threading.Event()
    told = []

    def on_progress(progress):
        told.append(progress.phase)
        cancelled.set()

    with pytest.raises(CancelledError, match='before choosing the decoder'):
        Pipeline.open(
            LabelledOptions(model_path=str(colour_detector())),
            on_progress=on_progress,
            cancelled=cancelled,
        )
    assert told == ['loading the model']


def test_an_injected_runner_is_not_warmed_up_and_is_closed_with_the_pipeline():
    runner = fake()
    pipeline = Pipeline.open(LabelledOptions(), runner=runner)
    assert runner.call_count == 0
    pipeline.close()
    pipeline.close()
    assert runner.is_closed
    with pytest.raises(ClosedError, match='The pipeline is closed'):
        pipeline.infer(picture((0, 0, 0)), THRESHOLDS)


def test_an_opened_network_is_warmed_up_on_a_frame_of_its_own_size_and_closed_on_failure(
    monkeypatch,
):
    head_of_another_network = {'output0': np.zeros((1, 9, 84), np.float32)}
    runner = fake(head_of_another_network)
    backend = Backend('fake', 'Fake', lambda: '', lambda *_: runner, StepByStep)
    monkeypatch.setattr(choice, 'choose_backend', lambda wanted: (backend, 'backend fake'))
    with pytest.raises(TensorMismatchError):
        Pipeline.open(LabelledOptions(model_path='any.onnx'))
    assert (runner.call_count, runner.is_closed) == (1, True)


def test_reported_backend_runs_the_network(monkeypatch):
    """An engine has a flavour of its own, whichever TensorRT was chosen."""
    chosen = Backend('tensorrt', 'TensorRT', lambda: '', lambda *_: fake(), StepByStep)
    monkeypatch.setattr(choice, 'choose_backend', lambda wanted: (chosen, 'backend tensorrt'))
    opened = Pipeline.open(LabelledOptions(model_path='any.engine'))
    assert opened.backend == 'fake'
    opened.close()


# Other tasks.


def test_pipeline_of_another_task_returns_its_results():
    scores = TensorSpec('scores', (1, 3), 'float32', 'output')
    pipeline = Pipeline.open(
        LabelledOptions(labels=('a', 'b', 'c')),
        families=CLASSIFIERS,
        runner=FakeRunner(
            [{'scores': np.array([[0.2, 0.7, 0.1]], np.float32)}],
            inputs=(IMAGE,),
            outputs=(scores,),
        ),
    )
    assert pipeline.infer(picture((0, 0, 0))).top(2).tolist() == [1, 0]
    assert pipeline.class_names == ('a', 'b', 'c')
    assert pipeline.preprocess.mean == (0.485, 0.456, 0.406)


def test_task_without_classes_logs_no_class_names():
    depth = TensorSpec('depth', (1, 1, *IMAGE.shape[2:]), 'float32', 'output')
    runner = FakeRunner(
        [{'depth': np.full(depth.shape, 2.5, np.float32)}], inputs=(IMAGE,), outputs=(depth,)
    )
    pipeline = Pipeline.open(PipelineOptions(), families=DEPTHS, runner=runner)
    assert not [line for line in pipeline.log_lines if 'class' in line]
    values = pipeline.infer(picture((0, 0, 0), wh=(5, 3))).values
    assert values.tolist() == [[2.5] * 5] * 3
    with pytest.raises(TensorMismatchError, match='looks like a depth network'):
        Pipeline.open(PipelineOptions(), runner=runner)


def test_memory_that_cannot_be_page_locked_warns_of_the_consequence(caplog):
    class Frames(FrameRunner):
        def register(self, memory):
            raise BackendError('The driver refused.')

        unregister = register

        def close(self):
            pass

    pipeline = Pipeline.open(PipelineOptions(decoder='yolov8'), runner=fake(head_with()))
    pipeline.close()
    pipeline.frames = Frames()
    pipeline.register(np.zeros(1))
    pipeline.unregister(np.zeros(1))
    assert caplog.messages == [
        'Could not page-lock the receive buffers: the CPU copies images from them. '
        'The driver refused.',
        'Could not unlock the receive buffers. The driver refused.',
    ]
