"""Packets of videos decoded on the GPU, compared with the CPU, into the memory of the network."""

from contextlib import closing

import numpy as np
import pytest

pytest.importorskip('av')

import av

from support.videos import Encoded, encode, moving_disc
from trt_ros.cuda.device import Stream
from trt_ros.cuda.memory import Account, DeviceBuffer, copy_async
from trt_ros.runtime.gpu.sources import VideoSource
from trt_ros.video import DAMAGED, LOST, Cuda, VideoDecoder, why_not_on_gpu
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('video')]

CODECS = ('h264', 'h265', 'av1')
WH = (640, 360)
ASKED = Thresholds(score=0.5, iou=0.5, max_detections=50)


@pytest.fixture(scope='module')
def streams():
    return {codec: encode(codec, moving_disc(12, WH)) for codec in CODECS}


@pytest.fixture
def cuda(gpu):
    """The GPU, if it decodes videos."""
    cuda = Cuda(gpu.index, gpu.context)
    reason = why_not_on_gpu(cuda)
    if reason:
        pytest.skip(reason)
    return cuda


def frames_of(decoder, codec, packets):
    return [
        frame
        for number, data in packets
        for _, frame in decoder.decode(codec, data, number, number)
    ]


@pytest.mark.parametrize('codec', CODECS)
def test_pictures_on_the_gpu_equal_those_of_the_cpu(gpu, cuda, streams, codec):
    expected = frames_of(VideoDecoder(), codec, streams[codec])
    found = frames_of(VideoDecoder(cuda=cuda), codec, streams[codec])
    assert len(found) == 12
    assert all(frame.is_on_gpu == (codec != 'av1') for frame in found)
    with gpu.context, closing(Stream()) as stream:
        for frame, other in zip(found, expected):
            if codec == 'av1':
                assert np.array_equal(frame.data, other.data)
                continue
            source = VideoSource(frame)
            pixels = np.zeros(source.nbytes, np.uint8)
            with closing(DeviceBuffer(source.nbytes, 'test', Account())) as target:
                source.send(target.ptr, stream.handle)
                copy_async(pixels.ctypes.data, target.ptr, pixels.nbytes, stream.handle)
                stream.synchronize()
            assert np.array_equal(pixels, other.data)
            assert np.array_equal(frame.data, other.data)  # Downloaded.


@pytest.mark.parametrize('codec', ['h264', 'h265'])
def test_a_loss_damage_and_another_size_are_as_on_the_cpu(cuda, streams, codec):
    packets = [
        *streams[codec][:7],
        *streams[codec][8:],
        *encode(codec, moving_disc(6, (320, 180))),
    ]
    packets[2] = Encoded(2, np.full(40, 7, np.uint8))

    def outcomes(decoder):
        found = []
        for number, data in packets:
            try:
                found += [frame.wh for _, frame in decoder.decode(codec, data, number, number)]
            except Exception as error:
                found.append(error.kind)
        return found

    found = outcomes(VideoDecoder(cuda=cuda))
    assert found == outcomes(VideoDecoder())
    assert {DAMAGED, LOST, WH, (320, 180)} <= {*found}


def without_chroma_location(picture):
    """Return a copy that, as PyAV's pictures from GPU memory, has no location of its colors."""
    copy = av.VideoFrame(picture.width, picture.height, picture.format.name)
    for plane, source in zip(copy.planes, picture.planes):
        plane.update(bytes(source))
    copy.colorspace, copy.color_range = picture.colorspace, picture.color_range
    return copy


@pytest.mark.parametrize(
    ('codec', 'pix_fmt', 'in_gpu_memory', 'options'),
    [
        ('h264', 'yuv420p', 'nv12', {'x264-params': 'colormatrix=bt709'}),
        ('h265', 'yuv420p10le', 'p010le', {}),
        ('h265', 'yuv444p', 'yuv444p', {}),
    ],
    ids=['BT.709', '10 bits', '4:4:4'],
)
def test_a_video_that_nv12_cannot_hold_is_converted_on_the_cpu(
    cuda, codec, pix_fmt, in_gpu_memory, options
):
    packets = encode(codec, moving_disc(2, WH), pix_fmt=pix_fmt, **options)
    [frame, _] = frames_of(VideoDecoder(cuda=cuda), codec, packets)
    assert (frame.is_on_gpu, frame.encoding) == (False, 'bgr8')
    [other, _] = frames_of(VideoDecoder(), codec, packets)
    source = other.picture
    if in_gpu_memory != pix_fmt:  # FFmpeg interpolates their colors differently.
        source = without_chroma_location(source.reformat(format=in_gpu_memory, threads=1))
    expected = source.to_ndarray(format='bgr24').reshape(-1)
    assert np.abs(frame.data.astype(int) - expected).max() <= 1


@pytest.mark.parametrize('unified_memory', ['off', 'on'])
def test_results_equal_those_of_pictures_decoded_on_the_cpu(
    cuda, open_graph, streams, unified_memory
):
    pipeline = open_graph(frames_in_flight=2, unified_memory=unified_memory)
    decoder = VideoDecoder(cuda=cuda)
    for frame, other in zip(
        frames_of(decoder, 'h264', streams['h264']),
        frames_of(VideoDecoder(), 'h264', streams['h264']),
    ):
        assert frame.is_on_gpu and not other.is_on_gpu
        found, expected = (pipeline.infer(each, ASKED) for each in (frame, other))
        assert np.array_equal(found.xyxy, expected.xyxy)
        assert np.array_equal(found.scores, expected.scores)
    # Later packets overwrite no picture that is still read.
    frames = frames_of(decoder, 'h264', streams['h264'])
    expected = [
        pipeline.infer(Frame.from_pixels(each.data.reshape(-1, WH[0]), 'nv12'), ASKED)
        for each in frames
    ]
    found = [each.result()[0] for frame in frames for each in [pipeline.start([frame], ASKED)]]
    for one, other in zip(found, expected):
        assert np.array_equal(one.xyxy, other.xyxy)
    decoder.close()
