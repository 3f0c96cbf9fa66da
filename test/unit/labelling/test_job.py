"""Labelling of one recording after another with one pipeline."""

from contextlib import closing
import errno
from types import SimpleNamespace

import pytest

from trt_ros.errors import ParameterError
from trt_ros.labelling.job import label_recording
from trt_ros.labelling.task import LabelTask, as_trt_ros_error
from trt_ros.recording import Recording
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

SLOTS = 2


def full_disk(*_):
    raise ParameterError('The video cannot be written.')


def test_frames_in_flight_are_finished_after_an_error(options, drives, tmp_path, monkeypatch):
    with Pipeline.open(options) as pipeline, closing(Recording(drives / 'drive_1')) as recording:
        start, in_flight = pipeline.submit, []

        def submit(*args):
            assert len(in_flight) < SLOTS, 'results of submitted frames were never read'
            in_flight.append(args)
            return start(*args).map(read)

        def read(result):
            in_flight.pop()
            return result

        def label(name, *sinks):
            return label_recording(
                recording,
                pipeline,
                LabelTask(recording.path, tmp_path / name, (), DEFAULT_THRESHOLDS),
                recording.images(),
                frames_in_flight=SLOTS,
                sinks=sinks,
            )

        monkeypatch.setattr(pipeline, 'submit', submit)
        with pytest.raises(ParameterError, match='The video cannot be written'):
            label('first.mcap', SimpleNamespace(write=full_disk))
        assert label('second.mcap').frames == 10


def test_a_full_disk_of_one_recording_is_told_without_a_traceback(tmp_path):
    error = as_trt_ros_error(OSError(errno.ENOSPC, 'No space', 'a.mcap'), tmp_path)
    assert error.problem == 'a.mcap cannot be read or written.' and error.cause == 'No space'
    assert 'Report this error' in as_trt_ros_error(ValueError('a bug'), tmp_path).remedy
