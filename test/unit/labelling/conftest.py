"""Recordings to label, and the command that labels them."""

from collections.abc import Callable
from pathlib import Path
import re
import sys

import numpy as np
import pytest

from support.broken_task import BrokenTask
from trt_ros.labelling.task import LabelTask
from trt_ros.runtime.options import LabeledOptions
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

COUNTS = (300, 10, 20, 300)


@pytest.fixture(scope='session')
def drives(tmp_path_factory) -> Path:
    """Return a folder of recordings, with COUNTS images each."""
    from support.recordings import raw_image, write_recording

    folder = tmp_path_factory.mktemp('recordings')
    colors = 255 * np.eye(3, dtype=np.uint8)
    for number, count in enumerate(COUNTS):
        images = [
            (
                '/camera/image_raw',
                index,
                raw_image(index, np.full((64, 64, 3), colors[(index + number) % 3])),
            )
            for index in range(count)
        ]
        write_recording(folder / f'drive_{number}', images)
    return folder


@pytest.fixture
def label(color_detector, drives) -> Callable[..., list[str]]:
    """Return the command that labels the recordings."""
    model = color_detector()

    def command(output: Path, *more: str) -> list[str]:
        return [
            *(sys.executable, '-m', 'trt_ros', 'label', str(drives), '--output', str(output)),
            *('--model', str(model), '--backend', 'onnxruntime', *more),
        ]

    return command


@pytest.fixture
def options(color_detector):
    return LabeledOptions(model_path=str(color_detector()), backend='onnxruntime')


@pytest.fixture
def tasks(drives, tmp_path) -> list[LabelTask]:
    """Return three recordings, of which the labelling of the first raises ZeroDivisionError."""
    kinds = (BrokenTask, LabelTask, LabelTask)
    return [
        kind(drives / f'drive_{number}', tmp_path / f'{number}.mcap', (), DEFAULT_THRESHOLDS)
        for number, kind in enumerate(kinds)
    ]


@pytest.fixture
def assert_two_of_three_are_labeled() -> Callable[[dict], None]:
    """Check the outcomes of `tasks` by path."""

    def check(outcomes) -> None:
        found = {path.name: outcome for path, outcome in outcomes.items()}
        error = found.pop('drive_0')
        assert re.match(r'Recording \S*drive_0 was not labeled.\nCause: Traceback', str(error))
        assert 'ZeroDivisionError: as of a bug\nRemedy: Report' in str(error)
        assert {name: each.frames for name, each in found.items()} == {
            'drive_1': COUNTS[1],
            'drive_2': COUNTS[2],
        }

    return check


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Return a function that reads all results."""
    return lambda folder: {path.name: path.read_bytes() for path in folder.glob('*.mcap')}
