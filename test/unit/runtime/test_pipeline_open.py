"""Opening of pipelines: decisions and their log lines, refusals, cancels."""

from functools import partial
import threading

import numpy as np
import pytest

from support.descriptions import specs
from support.fake_runner import IMAGE, FakeRunner, fake_detector
from trt_ros.errors import ModelError, ParameterError, TensorMismatchError
from trt_ros.families.registry import CLASSIFIERS, DEPTHS, DETECTORS
from trt_ros.progress import CancelledError
from trt_ros.runtime.backends import Backend
from trt_ros.runtime.cpu.pipeline import CpuPipeline
from trt_ros.runtime.options import LabeledOptions, PipelineOptions
from trt_ros.runtime.pipeline import Pipeline

open_detector = partial(Pipeline.open, families=DETECTORS)


def classifier(**options):
    runner = FakeRunner([{}], inputs=(IMAGE,), outputs=specs('scores (1, 10)'))
    return Pipeline.open(LabeledOptions(**options), families=CLASSIFIERS, runner=runner)


def test_classifiers_crop_the_center_by_default_and_whole_image_tasks_do_not():
    assert 'center_crop of 0.875 of the shorter side, rgb' in classifier().log_lines[2]
    assert 'center_crop of 1 of the shorter side' in classifier(crop_fraction=1.0).log_lines[2]
    assert classifier(resize='stretch').preprocess.resize == 'stretch'
    with pytest.raises(ParameterError, match='resize stretch does not crop'):
        classifier(resize='stretch', crop_fraction=0.9)
    runner = FakeRunner([{}], inputs=(IMAGE,), outputs=specs('depth (1, 1, 32, 32)'))
    with pytest.raises(ParameterError, match='would not see the whole image'):
        Pipeline.open(PipelineOptions(resize='center_crop'), families=DEPTHS, runner=runner)
    assert runner.is_closed


def test_log_lines_name_backend_decoder_and_preprocessing(color_detector):
    pipeline = open_detector(
        LabeledOptions(model_path=str(color_detector()), mean=(0.5, 0.5, 0.5), cpu_threads=1)
    )
    backend, decoder, preprocess, classes = pipeline.log_lines
    assert backend.startswith('backend onnxruntime: ONNX Runtime on the CPU')
    assert decoder.startswith('decoder yolov8: ')
    assert preprocess == (
        'input 64x64 (fixed by the network), letterbox padded with 114, rgb, nchw float32, '
        'scale 0.00392157, mean (0.5, 0.5, 0.5), std (1, 1, 1)'
    )
    assert classes == '3 class names'


def test_phases_are_reported_in_order(color_detector):
    told = []
    open_detector(LabeledOptions(model_path=str(color_detector())), on_progress=told.append)
    # The child process that checks the model reports its phases again and again, if it is slow.
    phases = dict.fromkeys(progress.phase for progress in told)
    assert [phase for phase in phases if phase != 'running the model once'] == [
        'loading the model',
        'choosing the decoder',
        'warming up',
        'ready',
    ]
    assert told[-1].percent == 100.0
    elapsed = [progress.elapsed_seconds for progress in told]
    assert elapsed == sorted(elapsed)


@pytest.mark.parametrize(
    ('image', 'options', 'message'),
    [
        ('(4, 3, 64, 64)', {}, 'has a batch size of 4, which the outputs do not have'),
        ('(1, 3, 64)', {}, '(?s)is not a batch of images.*node `tensor`.*images=tensor:'),
        ('(1, 5, 64, 64)', {}, '(?s)no dimension of 1, 3 or 4 channels.*node `tensor`'),
        ('(1, 3, 64, 64) int64', {}, 'unsupported image dtype int64'),
        ('(1, 3, 64, 64) uint8', {'mean': (1.0,) * 3, 'scale': 0.5}, 'mean and scale cannot'),
        ('', {'input_size': (32, 32)}, 'takes only 64 by 64'),
        ('', {'decoder': 'yolox'}, 'not those of yolox'),
        ('', {'decoder': 'ssd'}, 'not those of ssd'),
        ('', {'decoder': 'yolo'}, "Decoder 'yolo' does not exist"),
        ('', {'labels': ('one', 'two')}, '2 named classes'),
        (
            '',
            {'decoder': 'yolov8', 'labels': tuple('abcd')},
            'names 4 classes, but the network has 3',
        ),
        ('', {'labels_path': '/nowhere/labels.txt'}, 'Cannot read the class names'),
    ],
)
def test_rejects_images_and_options_that_do_not_fit(image, options, message):
    runner = fake_detector(inputs=specs(f'images {image or "(1, 3, 64, 64)"}', 'input'))
    with pytest.raises((ParameterError, TensorMismatchError), match=message):
        open_detector(LabeledOptions(**options), runner=runner)
    assert runner.is_closed


def test_a_missing_model_and_what_is_no_event_name_their_parameter():
    with pytest.raises(ParameterError, match='Set model_path'):
        open_detector(LabeledOptions())
    runner = fake_detector()
    with pytest.raises(ParameterError, match=r'cancelled is 5\.\n.*a threading\.Event'):
        Pipeline.open('any.onnx', cancelled=5, runner=runner)
    assert runner.is_closed


def test_unsupported_size_fails_at_open_not_at_first_frame(color_detector):
    # Its head has the anchors of 64 × 64 whatever it gets, and it is told of another size.
    model = color_detector(shape=(), metadata={})
    with pytest.raises((ModelError, TensorMismatchError)):
        open_detector(LabeledOptions(model_path=str(model), input_size=(96, 96), decoder='yolox'))


def test_cancel_during_open_stops_before_next_phase(color_detector):
    cancelled = threading.Event()
    told = []

    def on_progress(progress):
        told.append(progress.phase)
        cancelled.set()

    options = LabeledOptions(model_path=str(color_detector()))
    with pytest.raises(CancelledError, match='before choosing the decoder'):
        open_detector(options, on_progress=on_progress, cancelled=cancelled)
    assert told == ['loading the model']


def test_an_opened_network_is_warmed_up_on_a_frame_of_its_own_size_and_closed_on_failure(
    use_backend,
):
    head_of_another_network = {'output0': np.zeros((1, 9, 84), np.float32)}
    runner = fake_detector(head_of_another_network)
    backend = Backend('fake', 'Fake', lambda: '', lambda *_: runner, CpuPipeline)
    use_backend(backend)
    with pytest.raises(TensorMismatchError):
        open_detector(LabeledOptions(model_path='any.onnx', decoder='yolov8'))
    assert (runner.call_count, runner.is_closed) == (3, True)  # The trial run has two pictures.


def test_reported_backend_runs_the_network(use_backend):
    """An engine has a library of its own, whichever TensorRT was chosen."""
    chosen = Backend('tensorrt', 'TensorRT', lambda: '', lambda *_: fake_detector(), CpuPipeline)
    use_backend(chosen)
    opened = open_detector(LabeledOptions(model_path='any.engine'))
    assert opened.backend == 'fake'
    opened.close()
