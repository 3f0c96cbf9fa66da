"""Images of which the GPU gets only the rows that are read."""

import ctypes
from dataclasses import replace
import shutil

import numpy as np
import pytest

from support.frames import noise_frame
from support.host_context import ASKED, image_bytes
from support.numbers_on_cpu import NumbersOnCpu
from support.stereo_scenes import LENSES
from trt_ros.runtime.gpu.preprocess import Geometry, blocks_read, preprocess_args
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

INPUT_HW = 8, 12
#: Rows per pixel, and the rows of the first pixel that are read.
ROWS = {3: [1], 4: [1, 2], 5: [2], 6: [2, 3], 27: [13]}


def rows_of(frame: Frame, period: int) -> np.ndarray:
    """Return the rows that are read, with the padding behind each."""
    whole = np.resize(frame.data, frame.step * frame.height).reshape(-1, period, frame.step)
    return whole[:, ROWS[period]].reshape(-1, frame.step)


@pytest.mark.skipif(shutil.which('g++') is None, reason='needs g++')
@pytest.mark.parametrize('period', ROWS)
@pytest.mark.parametrize(
    ('encoding', 'resize', 'channels'),
    [
        ('bgr8', 'letterbox', 3),
        ('rgba8', 'stretch', 4),
        ('mono16', 'letterbox_topleft', 1),
        ('mono8', 'center_crop', 1),
        ('yuv422', 'bottom_crop', 3),
    ],
)
def test_the_kernel_makes_the_same_of_the_rows_that_are_read(encoding, resize, channels, period):
    frame = noise_frame(encoding, 12 * period - 2 * (resize == 'letterbox'), 8 * period)
    preprocess = Preprocess(INPUT_HW, resize, channels=channels)
    geometry = Geometry.of(frame)
    blocks = blocks_read(preprocess, geometry)
    found = []
    for used, data in (
        (geometry, frame.data),
        (replace(geometry, blocks=blocks), rows_of(frame, period)),
    ):
        out = np.full(preprocess.shape, np.nan, np.float32)
        data = data.copy()
        for args in preprocess_args(preprocess, [used], [data.ctypes.data], out.ctypes.data):
            NumbersOnCpu().launch(args.kernel, (1, 1, 1), (32, 8, 1), ctypes.addressof(args))
        found.append(out)
    assert blocks is not None and np.isfinite(found[0]).all()
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize(
    ('frame', 'changes'),
    [
        (noise_frame('bgr8', 24, 16), {}),
        (noise_frame('bgr8', 36, 25), {}),
        (noise_frame('bgr8', 36, 24), {'antialias': True}),
        (noise_frame('bgr8', 36, 24).with_lens(LENSES['plumb_bob']), {}),
        (noise_frame('nv12', 36, 24), {}),
        (noise_frame('nv21', 36, 24), {}),
        (noise_frame('bayer_rggb8', 36, 24), {}),
    ],
    ids=['two rows', 'no integer', 'antialias', 'lens', 'nv12', 'nv21', 'bayer'],
)
def test_others_need_all_rows(frame, changes):
    assert blocks_read(Preprocess(INPUT_HW, **changes), Geometry.of(frame)) is None


@pytest.mark.parametrize('period', [3, 4])
@pytest.mark.parametrize('chunk_nbytes', [700, 1 << 20])
@pytest.mark.parametrize('is_registered', [False, True])
@pytest.mark.parametrize('options', [{}, {'unified_memory': 'on'}, {'frames_in_flight': 2}])
def test_the_graph_gets_the_rows_that_are_read(
    open_graph, cuda, set_constants, options, is_registered, chunk_nbytes, period
):
    set_constants(CHUNK_NBYTES=chunk_nbytes)
    pipeline = open_graph(**{'frames_in_flight': 1, **options})
    width, height = pipeline.preprocess.input_hw[::-1]
    frame = noise_frame('bgr8', width * period, height * period)
    data = np.resize(frame.data, frame.step * frame.height)
    if is_registered:
        pipeline.device.register(data)
    for shift in range(2):
        sent = replace(frame, data=data)
        data += np.uint8(shift)
        for _ in pipeline.slots.all:
            pipeline.infer(sent, ASKED)
        if is_registered and 'unified_memory' in options:
            (address,) = pipeline.slots.all[0]._last.captured.addresses.images
            assert address == data.ctypes.data
        else:
            assert image_bytes(pipeline, cuda).startswith(rows_of(sent, period).tobytes())
    if is_registered:
        pipeline.device.unregister(data)
