"""Labelling of one recording after another with one pipeline."""

from contextlib import closing
import threading

import pytest

from trt_ros.errors import ParameterError
from trt_ros.labelling.job import label_recording
from trt_ros.labelling.task import LabelTask
from trt_ros.recording import Recording
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

SLOTS = 2


class LimitedPipeline:
    """A pipeline that refuses a frame while it has as many in flight as a GPU has slots."""

    def __init__(self, pipeline):
        self._pipeline, self._free = pipeline, threading.Semaphore(SLOTS)

    def __getattr__(self, name):
        return getattr(self._pipeline, name)

    def submit(self, *args):
        assert self._free.acquire(blocking=False), 'results of submitted frames were never read'
        return LimitedResult(self._pipeline.submit(*args), self._free)


class LimitedResult:
    """A result that gives back its slot when it is read."""

    def __init__(self, pending, free):
        self._pending, self._free = pending, free

    def result(self):
        self._free.release()
        return self._pending.result()


class FullDisk:
    """A receiver of results that cannot write them."""

    def write(self, *_):
        raise ParameterError('The video cannot be written.')


def test_frames_in_flight_are_finished_after_an_error(color_detector, drives, tmp_path):
    options = LabeledOptions(model_path=str(color_detector()), backend='onnxruntime')
    with Pipeline.open(options) as pipeline, closing(Recording(drives / 'drive_1')) as recording:

        def label(name, *sinks):
            return label_recording(
                recording,
                limited,
                LabelTask(recording.path, tmp_path / name, (), DEFAULT_THRESHOLDS),
                recording.images(),
                frames_in_flight=SLOTS,
                sinks=sinks,
            )

        limited = LimitedPipeline(pipeline)
        with pytest.raises(ParameterError, match='The video cannot be written'):
            label('first.mcap', FullDisk())
        assert label('second.mcap').frames == 10
