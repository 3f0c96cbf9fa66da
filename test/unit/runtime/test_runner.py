"""Defaults of the base classes: a backend without a GPU overrides little."""

import numpy as np
import pytest

from support.fake_runner import HEAD, IMAGE, fake_detector, model_of_image
from trt_ros.decode.choice import choose_decoder
from trt_ros.errors import ClosedError
from trt_ros.families.family import NetworkDescription
from trt_ros.results.boxes import Detections
from trt_ros.runtime.future import Future
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess


class Brightness(Pipeline[Detections]):
    """One box per frame, scored by its mean pixel."""

    def start(self, frames, thresholds, tensors=None):
        found = [
            Detections(np.zeros((1, 4)), np.array([frame.data.mean()]), np.zeros(1, int))
            for frame in frames
        ]
        return Future(lambda: found)

    def _close(self):
        pass


@pytest.fixture
def brightness():
    decoder = choose_decoder('yolov8', NetworkDescription((IMAGE,), (HEAD,), {}, (64, 64)))
    network = fake_detector()
    return Brightness(network, model_of_image(network, Preprocess((64, 64)), decoder))


def test_a_pipeline_needs_start_and_close_alone(brightness):
    memory = np.zeros(16, np.uint8)
    frames = [Frame.from_pixels(np.full((2, 2, 3), value, np.uint8)) for value in (1, 2)]
    assert brightness.submit(frames[0]).result().scores == [1.0]
    assert brightness.infer(frames[1]).scores == [2.0]
    assert [each.scores for each in brightness(frames)] == [1.0, 2.0]
    brightness.warm_up()
    brightness.reset_state()
    brightness.device.register(memory)
    brightness.device.unregister(memory)
    brightness.device.on_fault(lambda _: None)
    assert 'does not run on a GPU' in brightness.device.open_jpeg_decoder()
    assert (brightness.diagnostics(), brightness.log_lines, brightness.max_batch) == (
        {'frames with non-finite values': '0', 'impossible results': ''},
        (),
        1,
    )


def test_every_verb_of_a_closed_pipeline_is_an_error(brightness):
    brightness.close()
    frame = Frame.from_pixels(np.zeros((2, 2, 3), np.uint8))
    for verb in (brightness, brightness.infer, brightness.submit):
        with pytest.raises(ClosedError, match='The pipeline is closed'):
            verb(frame)
    with pytest.raises(ClosedError, match='The pipeline is closed'):
        brightness([])


def test_a_pipeline_that_another_thread_closes_during_a_run_stays_closed(brightness, monkeypatch):
    frame = Frame.from_pixels(np.zeros((2, 2, 3), np.uint8))
    resolve = brightness.resolve_classes

    def close(thresholds):
        brightness.close()
        return resolve(thresholds)

    monkeypatch.setattr(brightness, 'resolve_classes', close)
    brightness.infer(frame)
    with pytest.raises(ClosedError, match='The pipeline is closed'):
        brightness.infer(frame)
