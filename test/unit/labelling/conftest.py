"""Recordings to label, and the command that labels them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
import sys

import numpy as np
import pytest

COUNTS = (300, 10, 20, 300)


@pytest.fixture
def drives(tmp_path) -> Path:
    """Return a folder of recordings, with COUNTS images each."""
    pytest.importorskip('rosbags')
    from support.recordings import raw_image, write_recording

    folder = tmp_path / 'drives'
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
    pytest.importorskip('onnxruntime')
    model = color_detector()

    def command(output: Path, *more: str) -> list[str]:
        return [
            *(sys.executable, '-m', 'trt_ros', 'label', str(drives), '--output', str(output)),
            *('--model', str(model), '--backend', 'onnxruntime', *more),
        ]

    return command


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Return a function that reads all results."""
    return lambda folder: {path.name: path.read_bytes() for path in folder.glob('*.mcap')}
