"""The way of a frame, one step after the other."""

from dataclasses import replace

import numpy as np
import pytest

from support.descriptions import specs
from support.fake_runner import HEAD, IMAGE, FakeRunner, fake_detector, model_of_image
from trt_ros.decode.choice import choose_decoder
from trt_ros.errors import ScoreRangeError, TensorMismatchError
from trt_ros.families.family import NetworkDescription
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.cpu.pipeline import CpuPipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

ASKED = Thresholds(score=0.1, iou=0.5, max_detections=9)
IMAGES = specs('images (?, 3, 64, 64)', 'input')
YOLOV8 = choose_decoder('yolov8', NetworkDescription((IMAGE,), (HEAD,), {}, (64, 64)))


def step_by_step(runner, batch=1, decoder=None, **preprocessing):
    """Open a runner with its own decoder, or another one."""
    described = NetworkDescription(runner.inputs, runner.outputs, runner.metadata, (64, 64))
    decoder = decoder or choose_decoder('auto', described)
    preprocess = Preprocess((64, 64), **preprocessing)
    return CpuPipeline(runner, model_of_image(runner, preprocess, decoder), batch)


def gray(value, wh=(128, 128)):
    return Frame.from_pixels(np.full((wh[1], wh[0], 3), value, np.uint8))


def find_brightness(tensors):
    """Answer as a YOLOv8 would: for each image one box, scored by the brightness."""
    images = tensors['images']
    head = np.zeros((len(images), 7, 84), np.float32)
    head[:, :4, 0] = 32, 32, 16, 16
    head[:, 4, 0] = images.mean(axis=(1, 2, 3))
    return {'output0': head}


def brightness_finder(size, batch, find=find_brightness):
    """Take `size` images in a run (-1: any number); return that and the sizes of its runs."""
    seen = []

    def answer(tensors):
        seen.append(len(tensors['images']))
        return find(tensors)

    inputs, outputs = ([replace(each, shape=(size, *each.shape[1:]))] for each in (IMAGE, HEAD))
    runner = FakeRunner(answer, inputs=inputs, outputs=outputs)
    return step_by_step(runner, batch, YOLOV8), seen


def scores(results):
    return [np.round(result.scores * 255).tolist() for result in results]


def test_warming_up_runs_once_on_gray_of_the_networks_size_and_close_closes_the_runner():
    seen = []

    def answer(tensors):
        seen.append(np.unique(tensors['images']).tolist())
        return {'output0': np.zeros((1, 7, 84), np.float32)}

    runner = FakeRunner(answer, inputs=[IMAGE], outputs=[HEAD])
    frames = step_by_step(runner, scale=1.0)
    frames.warm_up()
    assert seen == [[114.0]]
    frames.close()
    frames.close()
    assert runner.is_closed


def test_warming_up_fails_where_scores_are_logits_or_outputs_have_no_batch():
    frames = step_by_step(fake_detector({'output0': np.full((1, 7, 84), -5, np.float32)}))
    with pytest.raises(ScoreRangeError, match='a score of -5, outside 0 to 1'):
        frames.warm_up()

    def answer(tensors):
        return {'output0': find_brightness(tensors)['output0'][:1]}

    frames = step_by_step(FakeRunner(answer, inputs=IMAGES, outputs=[HEAD]), 2, YOLOV8)
    with pytest.raises(
        TensorMismatchError, match=r'output0 has the shape \(1, 7, 84\) for a batch of 2'
    ):
        frames.infer_all([gray(0)] * 2, ASKED)
    frames.warm_up()
    assert frames.max_batch == 1
    assert scores(frames.infer_all([gray(40), gray(50)], ASKED)) == [[40], [50]]


@pytest.mark.parametrize('batch', [1, 3])
def test_warm_up_chooses_threads_at_full_batch(batch):
    frames, _ = brightness_finder(-1, batch)
    settled = []
    frames.runner.tune_threads = lambda tensors: (
        settled.append(tensors['images'].shape) or ('2 threads',)
    )
    frames.warm_up()
    assert settled == [(batch, 3, 64, 64)]
    assert frames.log_lines[-1] == '2 threads'


@pytest.mark.parametrize('size', [-1, 1, 4])
def test_no_frames_give_no_results_and_run_nothing(size):
    frames, seen = brightness_finder(size, 4)
    assert frames.infer_all([], ASKED) == []
    assert seen == []


@pytest.mark.parametrize(
    ('size', 'batch', 'runs', 'told'),
    [
        (-1, 3, [3, 2], 'batch size: up to 3 images per run'),
        (-1, 8, [5], 'batch size: up to 8 images per run'),
        (4, 3, [4, 4], 'fixed batch size 4: smaller batches are padded'),
        (1, 3, [1] * 5, 'batch size 1: the network accepts one image per run'),
    ],
)
def test_each_frame_of_a_batch_gets_its_own_result_in_its_own_pixels(size, batch, runs, told):
    frames, seen = brightness_finder(size, batch)
    sizes = [(64, 64), (128, 128)] * 3
    found = frames.infer_all(
        [gray(value, wh) for value, wh in zip((50, 100, 150, 200, 250), sizes)], ASKED
    )
    assert seen == runs
    assert scores(found) == [[50], [100], [150], [200], [250]]
    boxes = [result.xyxy.tolist() for result in found[:2]]
    assert boxes == [[[24, 24, 40, 40]], [[48, 48, 80, 80]]]
    assert frames.log_lines == (told,)


def test_only_the_images_of_a_batch_with_non_finite_values_count():
    def find(tensors):
        outputs = find_brightness(tensors)
        outputs['output0'][1, 5] = np.nan
        return outputs

    frames, _ = brightness_finder(-1, 3, find)
    frames.infer_all([gray(50)] * 3, ASKED)
    assert frames.nonfinite.count == 1


def test_warm_up_detects_batch_dynamic_in_name_only(color_detector):
    path = color_detector(batch='batch', is_baked=True)
    runner = OnnxRuntimeRunner.open(path, threads=1)
    frames = step_by_step(runner, 2)
    frames.warm_up()
    (told,) = frames.log_lines
    assert told.startswith(f'batch size 1: ONNX Runtime could not run {path}')
    assert len(frames.infer_all([gray(90), gray(80)], ASKED)) == 2
    frames.close()


def test_family_without_batched_output_runs_images_singly():
    outputs = specs('selected (?, 3) int64; boxes (?, 2, 4); scores (?, 2, 2)')

    def answer(tensors):
        count = len(tensors['images'])
        return {
            'selected': np.array([[0, 1, 1]]),
            'boxes': np.full((count, 2, 4), [0, 0, 9, 9], np.float32),
            'scores': np.full((count, 2, 2), 0.5, np.float32),
        }

    frames = step_by_step(FakeRunner(answer, inputs=IMAGES, outputs=outputs), 2)
    assert frames.log_lines == (
        'batch size 1: only the image input of the network has a batch dimension',
    )
    found = frames.infer_all([gray(0)] * 2, ASKED)
    assert [result.labels.tolist() for result in found] == [[1], [1]]
