"""
JPEG images decoded on the GPU by nvImageCodec, compared with OpenCV.

Where a GPU has a hardware decoder, only chroma differs, by the rounding of its interpolation; the
CUDA decoder of the library computes the inverse transform in another precision, too.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
import os
from typing import Any

import cv2
import numpy as np
import pytest

from trt_ros.cuda.device import Gpu, Stream
from trt_ros.cuda.jpeg import JpegDecoder
from trt_ros.cuda.memory import Account, DeviceBuffer, copy_async
from trt_ros.errors import BadFrameError
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.picture_header import JpegFrame, read_jpeg_header
from trt_ros.vision.thresholds import Thresholds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.xdist_group('jpeg'),  # Opening a decoder takes seconds in each process.
    pytest.mark.usefixtures('nothing_left'),
    # Not importorskip: an import makes a GPU current.
    pytest.mark.skipif(
        not (find_spec('nvidia') and find_spec('nvidia.nvimgcodec')),
        reason='nvidia-nvimgcodec is not installed',
    ),
]

MAX_MEAN, MAX_DIFFERENCE = 0.1, 4
SAMPLINGS = {
    name: getattr(cv2, f'IMWRITE_JPEG_SAMPLING_FACTOR_{name}')
    for name in ('444', '422', '420', '440')
}
ASKED = Thresholds(score=0.5, iou=0.5, max_detections=50)
KEY = 'JPEG images decoded on the GPU'


def picture(width: int, height: int, noise: float = 0.0) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / 37), np.cos(y / 23), np.sin((x + y) / 51)], -1)
    random = noise * np.random.default_rng(1).standard_normal(waves.shape)
    return np.clip(128 + 100 * waves + random, 0, 255).astype(np.uint8)


def jpeg_of(pixels: np.ndarray, *flags: int) -> np.ndarray:
    return cv2.imencode('.jpg', pixels, [cv2.IMWRITE_JPEG_QUALITY, 90, *flags])[1]


def frame_of(jpeg: np.ndarray, decode: Callable[[], np.ndarray] | None = None) -> JpegFrame:
    header = read_jpeg_header(jpeg)
    assert header is not None and header.is_plain
    encoding = 'bgr8' if header.channels == 3 else 'mono8'
    return JpegFrame(
        header, encoding, jpeg, decode or (lambda: cv2.imdecode(jpeg, cv2.IMREAD_UNCHANGED))
    )


@pytest.fixture(scope='module')
def decoder(gpu: Gpu) -> Iterator[JpegDecoder]:
    """An open decoder: opening and closing takes long."""
    with closing(JpegDecoder(gpu.index)) as decoder:
        with gpu.context:
            assert decoder.open(jpeg_of(picture(64, 64))) == ''
        yield decoder


@pytest.fixture
def decode(gpu: Gpu, decoder: JpegDecoder) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Decode a JPEG on the GPU; return the pixels."""
    with gpu.context, closing(Stream()) as stream:

        def on_gpu(jpeg: np.ndarray) -> np.ndarray:
            frame = frame_of(jpeg)
            shape = frame.height, frame.width, frame.channels
            pixels = np.zeros(shape, np.uint8)
            with closing(DeviceBuffer(pixels.nbytes, 'test', Account())) as target:
                assert decoder.decode(jpeg, shape, target.ptr, stream.handle)
                copy_async(pixels.ctypes.data, target.ptr, pixels.nbytes, stream.handle)
                stream.synchronize()
            return pixels

        yield on_gpu


def assert_close(found: np.ndarray, jpeg: np.ndarray) -> None:
    expected = cv2.imdecode(jpeg, cv2.IMREAD_UNCHANGED).reshape(found.shape)
    difference = np.abs(found.astype(int) - expected)
    assert difference.max() <= MAX_DIFFERENCE
    assert difference.mean() <= MAX_MEAN


@pytest.mark.parametrize('noise', [0.0, 40.0], ids=['smooth', 'noisy'])
@pytest.mark.parametrize('sampling', SAMPLINGS)
@pytest.mark.parametrize('size', [(1280, 720), (641, 479), (9, 7), (1, 1)], ids=str)
def test_colors_equal_those_of_opencv(decode, size, sampling, noise):
    pixels = picture(*size, noise)
    jpeg = jpeg_of(pixels, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling])
    assert_close(decode(jpeg), jpeg)


def test_gray_restart_intervals_and_qualities_equal_those_of_opencv(decode):
    pixels = picture(640, 480, 20.0)
    for jpeg in (
        jpeg_of(pixels[..., 0]),
        jpeg_of(pixels, cv2.IMWRITE_JPEG_RST_INTERVAL, 8),
        jpeg_of(pixels, cv2.IMWRITE_JPEG_QUALITY, 5),
        jpeg_of(pixels, cv2.IMWRITE_JPEG_QUALITY, 100),
        jpeg_of(pixels, cv2.IMWRITE_JPEG_OPTIMIZE, 1),
    ):
        assert_close(decode(jpeg), jpeg)


def test_bitstream_may_be_read_only_and_anywhere(decode):
    jpeg = jpeg_of(picture(320, 240, 20.0))
    message = np.concatenate([np.zeros(33, np.uint8), jpeg])
    message.flags.writeable = False
    assert_close(decode(message[33:]), jpeg)


@pytest.fixture
def open_graph(open_graph) -> Callable[..., GpuPipeline]:
    """Open a pipeline that decodes JPEG images on the GPU."""

    def make(**options: Any) -> GpuPipeline:
        pipeline = open_graph(**options)
        assert pipeline.device.open_jpeg_decoder() == ''
        return pipeline

    return make


def assert_same(found: Any, expected: Any) -> None:
    """Compare by box: equal scores may swap."""
    assert len(found) == len(expected)
    own, other = (np.lexsort((each.xyxy[:, 0], each.labels)) for each in (found, expected))
    np.testing.assert_allclose(found.xyxy[own], expected.xyxy[other], atol=1.0)
    np.testing.assert_allclose(found.scores[own], expected.scores[other], atol=0.02)


@pytest.mark.parametrize('unified_memory', ['off', 'on'])
def test_frames_of_both_slots_equal_raw_ones(open_graph, unified_memory):
    pipeline = open_graph(frames_in_flight=2, unified_memory=unified_memory)
    jpegs = [jpeg_of(picture(*size, 20.0)) for size in ((320, 240), (1280, 720), (641, 479))]
    raw = [Frame.from_pixels(cv2.imdecode(jpeg, cv2.IMREAD_COLOR)) for jpeg in jpegs]
    expected = [pipeline.infer(frame, ASKED) for frame in raw]
    for index in (0, 1, 2, 1, 0, 2):
        pending = [
            (number, pipeline.start([frame_of(jpegs[number])], ASKED))
            for number in (index, (index + 1) % 3)
        ]
        for number, each in pending:
            assert_same(each.result()[0], expected[number])
    assert pipeline.diagnostics()[KEY] == '12 of 12'


def test_a_hundred_jpegs_allocate_nothing(open_graph, used_nbytes):
    pipeline = open_graph()
    jpegs = [jpeg_of(picture(*size, 20.0)) for size in ((320, 240), (1280, 720))]

    def run(count: int) -> None:
        for _ in range(count):
            for jpeg in jpegs:
                pipeline.infer(frame_of(jpeg), ASKED)

    run(20)
    before, used = pipeline.memory(), used_nbytes(os.getpid())
    run(100)
    assert pipeline.memory() == before
    # The library's own pool may still grow by some pieces.
    assert used_nbytes(os.getpid()) - used <= 16 << 20


def test_image_that_the_library_refuses_is_decoded_on_the_cpu(open_graph):
    pipeline = open_graph(frames_in_flight=1)
    jpeg = jpeg_of(picture(320, 240, 20.0))
    raw = Frame.from_pixels(cv2.imdecode(jpeg, cv2.IMREAD_COLOR))
    frame = frame_of(jpeg)
    frame.__dict__['bitstream'] = jpeg[:100].copy()
    assert_same(pipeline.infer(frame, ASKED), pipeline.infer(raw, ASKED))

    def fail() -> np.ndarray:
        raise BadFrameError('undecodable image', 'No picture.')

    frame = frame_of(jpeg, fail)
    frame.__dict__['bitstream'] = jpeg[:100].copy()
    with pytest.raises(BadFrameError, match='No picture'):
        pipeline.infer(frame, ASKED)
    assert_same(pipeline.infer(frame_of(jpeg), ASKED), pipeline.infer(raw, ASKED))
    assert pipeline.diagnostics()[KEY] == '1 of 3'
