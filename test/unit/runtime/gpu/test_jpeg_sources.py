"""JPEG images in the frame slots, with a library that decodes with OpenCV into the fake GPU."""

import ctypes
from functools import partial
import os
import sys
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from support.host_context import ASKED, image_bytes
from trt_ros.cuda.calls import driver
from trt_ros.errors import BadFrameError
from trt_ros.vision.picture_header import JpegFrame, read_jpeg_header

KEY = 'JPEG images decoded on the GPU'


class FakeCodec:
    """
    The parts of nvidia.nvimgcodec that trt_ros uses.

    :ivar refuses: whether every image is refused, as the library does.
    :ivar examples: number of images that were decoded into memory of the library.
    """

    ColorSpec = SimpleNamespace(GRAY='gray', SRGB='color')
    SampleFormat = SimpleNamespace(I_Y='I_Y', I_BGR='I_BGR')

    def __init__(self) -> None:
        self.refuses, self.streams, self.examples = False, [], 0

    def DecodeParams(self, **options):
        assert options.pop('apply_exif_orientation') is False
        return options

    def Decoder(self, **options):
        assert 'fancy_upsampling=1' in options['options']
        return self

    def CodeStream(self, bitstream):
        return bitstream

    def as_image(self, array, stream):
        return array.__cuda_array_interface__

    def decode(self, bitstream, *, params, image=None, cuda_stream=None):
        driver().cuCtxPushCurrent(100)  # The library leaves a context of GPU 0 current.
        if self.refuses:
            return None
        gray = params == {'color_spec': 'gray', 'sample_format': 'I_Y'}
        pixels = cv2.imdecode(bitstream, 0 if gray else 1)
        if image is None:
            self.examples += 1
            return pixels
        self.streams.append(cuda_stream)
        assert pixels.size == np.prod(image['shape'])
        ctypes.memmove(image['data'][0], pixels.ctypes.data, pixels.size)
        return image


@pytest.fixture
def codec(monkeypatch):
    codec = FakeCodec()
    monkeypatch.setitem(sys.modules, 'nvidia.nvimgcodec', codec)
    return codec


def jpeg_frame(pixels, decode=None):
    jpeg = cv2.imencode('.jpg', pixels)[1]
    encoding = 'bgr8' if pixels.ndim == 3 else 'mono8'

    def on_cpu():
        return cv2.imdecode(jpeg, cv2.IMREAD_UNCHANGED)

    return JpegFrame(read_jpeg_header(jpeg), encoding, jpeg, decode or on_cpu), on_cpu()


def never():
    pytest.fail('decoded on the CPU')


@pytest.fixture
def noise():
    return np.random.default_rng(1).integers(0, 256, (120, 160, 3), np.uint8)


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize('unified_memory', ['off', 'on'])
def test_pixels_are_decoded_where_the_graph_reads_them(
    open_graph, cuda, codec, noise, channels, unified_memory
):
    pipeline = open_graph(frames_in_flight=1, unified_memory=unified_memory)
    assert pipeline.device.open_jpeg_decoder() == ''
    pixels = noise if channels == 3 else noise[..., 0]
    frame, expected = jpeg_frame(pixels, never)
    for _ in range(2):
        pipeline.infer(frame, ASKED)
        assert image_bytes(pipeline, cuda)[: expected.size] == expected.tobytes()
    assert codec.streams == [pipeline.slots.all[0].stream.handle] * 2
    assert codec.examples == 1  # When opening.
    assert pipeline.diagnostics()[KEY] == '2 of 2'
    assert cuda.current is None
    with pipeline.gpu.context:
        pipeline.infer(frame, ASKED)
        assert cuda.current == pipeline.gpu.index
    assert cuda.current is None
    if unified_memory == 'off':
        assert pipeline.memory()['pinned']['slots'] == 256


def test_refused_image_is_decoded_on_the_cpu(open_graph, cuda, codec, noise):
    pipeline = open_graph(frames_in_flight=1)
    pipeline.device.open_jpeg_decoder()
    codec.refuses = True
    frame, expected = jpeg_frame(noise)
    pipeline.infer(frame, ASKED)
    assert image_bytes(pipeline, cuda)[: expected.size] == expected.tobytes()
    assert pipeline.diagnostics()[KEY] == '0 of 1'


def test_bad_image_raises_and_the_next_one_is_processed(open_graph, cuda, codec, noise):
    def fail():
        raise BadFrameError('undecodable image', 'No picture.')

    pipeline = open_graph(frames_in_flight=2)
    pipeline.device.open_jpeg_decoder()
    codec.refuses = True
    for _ in range(3):
        with pytest.raises(BadFrameError, match='No picture'):
            pipeline.infer(jpeg_frame(noise, fail)[0], ASKED)
    codec.refuses = False
    pipeline.infer(jpeg_frame(noise, never)[0], ASKED)
    assert pipeline.diagnostics()[KEY] == '1 of 4'


def test_the_images_before_a_refused_one_are_not_read_any_more(
    open_graph, make_engine, cuda, codec, picture, noise
):
    def fail():
        calls.clear()  # The GPU reads the first image.
        raise BadFrameError('undecodable image', 'No picture.')

    pipeline = open_graph(make_engine(-1), batch=2, frames_in_flight=1)
    pipeline.device.open_jpeg_decoder()
    codec.refuses = True
    raw, calls = picture(), []
    pipeline.device.register(raw.data)
    for name in ('cudaMemcpyAsync', 'cudaStreamSynchronize'):
        cuda.before[name] = partial(calls.append, name)
    with pytest.raises(BadFrameError, match='No picture'):
        pipeline.start([raw, jpeg_frame(noise, fail)[0]], ASKED)
    assert calls == ['cudaStreamSynchronize']


def test_without_the_library_the_cpu_decodes_and_the_reason_is_known(
    open_graph, cuda, monkeypatch, noise
):
    monkeypatch.setitem(sys.modules, 'nvidia.nvimgcodec', None)
    pipeline = open_graph(frames_in_flight=1)
    assert 'import of nvidia.nvimgcodec halted' in pipeline.device.open_jpeg_decoder()
    frame, expected = jpeg_frame(noise)
    pipeline.infer(frame, ASKED)
    assert image_bytes(pipeline, cuda)[: expected.size] == expected.tobytes()
    assert KEY not in pipeline.diagnostics()


NOISY = r"""
import os

# The constructors of its extensions write to the file descriptor.
os.write(2, b'Failed to load nvtiff library! Please install nvTIFF (see ..).\n')
os.write(2, b"Note: If using nvImageCodec's Python distribution, it is enough ..\n")
os.write(2, b'a line of another thread\n')
assert os.environ['PYNVIMGCODEC_VERBOSITY'] == '0'  # No lines about damaged images.


class Anything:
    def __call__(self, *_, **__):
        return self

    def __getattr__(self, name):
        return self


ColorSpec = SampleFormat = DecodeParams = Decoder = CodeStream = Anything()
"""


def test_the_library_prints_nothing_about_extensions_for_other_formats(
    open_graph, monkeypatch, capfd, tmp_path
):
    monkeypatch.delenv('PYNVIMGCODEC_VERBOSITY', raising=False)
    monkeypatch.setitem(sys.modules, 'nvidia.nvimgcodec', None)  # To restore it.
    monkeypatch.delitem(sys.modules, 'nvidia.nvimgcodec')
    (tmp_path / 'nvidia').mkdir()
    (tmp_path / 'nvidia/nvimgcodec.py').write_text(NOISY)
    monkeypatch.syspath_prepend(tmp_path)
    assert open_graph(frames_in_flight=1).device.open_jpeg_decoder() == ''
    os.write(2, b'later\n')
    assert capfd.readouterr().err == 'a line of another thread\nlater\n'


def test_raw_images_and_jpegs_alternate(open_graph, cuda, codec, picture, noise):
    pipeline = open_graph(frames_in_flight=1)
    pipeline.device.open_jpeg_decoder()
    jpeg, expected = jpeg_frame(noise, never)
    raw = picture()
    for _ in range(2):
        pipeline.infer(raw, ASKED)
        assert image_bytes(pipeline, cuda)[: raw.nbytes] == raw.data.tobytes()
        pipeline.infer(jpeg, ASKED)
        assert image_bytes(pipeline, cuda)[: expected.size] == expected.tobytes()
