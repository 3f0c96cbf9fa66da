"""Images and tensors in GPU memory of other libraries, on a CUDA of our own."""

from contextlib import closing

import numpy as np
import pytest

from support.device_arrays import OnGpu
from support.host_context import ASKED, image_bytes
from trt_ros.cuda.device import open_gpu
from trt_ros.device_array import DeviceArray
from trt_ros.errors import BadFrameError
from trt_ros.vision.device_frame import DeviceFrame
from trt_ros.vision.frame import Frame


@pytest.fixture
def noise():
    return np.random.default_rng(1).integers(0, 256, (120, 160, 3), np.uint8)


@pytest.fixture
def on_gpu(cuda):
    """Copy an array to a fake GPU."""
    made = []

    def on_gpu(array, gpu=0, **others):
        made.append(OnGpu(array, open_gpu(gpu), **others))
        return made[-1]

    yield on_gpu
    for each in made:
        each.close()


@pytest.mark.parametrize('unified_memory', ['off', 'on'])
def test_pixels_are_copied_to_where_the_graph_reads_them(
    open_graph, cuda, on_gpu, noise, unified_memory
):
    pipeline = open_graph(frames_in_flight=1, unified_memory=unified_memory)
    pixels = on_gpu(noise)
    for given in (
        pixels,
        [pixels],
        DeviceFrame(pixels, 'rgb8'),
        {'images': pixels},
        {'images': [pixels]},
    ):
        pipeline(given, ASKED)
        assert image_bytes(pipeline, cuda)[: noise.size] == noise.tobytes()
        other = Frame.from_pixels(255 - noise)  # Has another graph.
        pipeline.infer(other, ASKED)
        assert image_bytes(pipeline, cuda)[: noise.size] == other.data.tobytes()
    if unified_memory == 'on':  # No page-locked memory but for the image of the host.
        assert pipeline.diagnostics()['zero-copy frames'] == '0 of 10'


def test_padded_rows_keep_their_step(open_graph, cuda, on_gpu, noise):
    crop = noise[10:100, :60]
    frame = DeviceFrame(on_gpu(crop))
    assert (frame.wh, frame.step, frame.nbytes) == ((60, 90), 480, 89 * 480 + 180)
    pipeline = open_graph(frames_in_flight=1)
    pipeline.infer(frame, ASKED)
    whole = noise[10:100].tobytes()
    assert image_bytes(pipeline, cuda)[: frame.nbytes] == whole[: frame.nbytes]


def test_memory_that_cannot_be_read_is_refused_and_the_next_image_is_processed(
    open_graph, cuda, on_gpu, noise
):
    pipeline = open_graph(frames_in_flight=2)
    freed, good = on_gpu(noise), on_gpu(noise)
    other = on_gpu(noise, gpu=1)
    short = on_gpu(noise, shape=(1 << 20, 1 << 20, 3))
    before_it = on_gpu(noise)
    interface = before_it.__cuda_array_interface__
    interface['data'] = (interface['data'][0] - 8, False)
    at_host = on_gpu(noise, data=(noise.ctypes.data, True))
    for _ in range(2):
        pipeline(Frame.from_pixels(noise), ASKED)
    freed.close()  # Nothing is allocated any more, which could take its place.
    before = pipeline.memory()
    for _ in range(3):  # More than there are slots.
        for refused, kind in (
            (freed, 'no GPU memory'),
            (other, 'other GPU'),
            (short, 'no GPU memory'),
            (before_it, 'no GPU memory'),
            (at_host, 'no GPU memory'),
        ):
            with pytest.raises(BadFrameError) as error:
                pipeline(refused, ASKED)
            assert error.value.kind == kind
    assert pipeline.memory() == before
    with pytest.raises(BadFrameError, match='on GPU 1, but the network on GPU 0'):
        pipeline(other, ASKED)
    pipeline(good, ASKED)
    assert image_bytes(pipeline, cuda)[: noise.size] == noise.tobytes()
    assert cuda.current is None


class WithDlpack(OnGpu):
    """An array of a library that makes a stream wait for its own one."""

    def __dlpack__(self, stream):
        self.waiting.append((stream, self.cuda.current))


@pytest.mark.parametrize('share', [0.0, 0.5])
def test_the_copy_waits_for_the_library(open_graph, cuda, on_gpu, noise, share, monkeypatch):
    pipeline = open_graph(frames_in_flight=1, gpu_share=share)
    stream = pipeline.slots.all[0].stream.handle
    recorded, waits = [], []
    monkeypatch.setattr(
        type(cuda),
        '_do_cudaEventRecord',
        lambda self, event, on: recorded.append((on, self.current)) or (),
    )
    monkeypatch.setattr(
        type(cuda),
        '_do_cudaStreamWaitEvent',
        lambda self, waiting, event, flags: waits.append(waiting) or (),
        raising=False,
    )

    def streams_of(array):
        recorded.clear()
        waits.clear()
        pipeline(array, ASKED)
        return [each for each in recorded if each[0] != stream], waits

    assert streams_of(on_gpu(noise)) == ([], [])
    assert streams_of(on_gpu(noise, stream=7)) == ([(7, 0)], [stream])  # Of the whole GPU.
    old = on_gpu(noise)
    del old.__cuda_array_interface__['stream']
    assert streams_of(old) == ([(1, 0)], [stream])  # The default stream.
    dlpack = WithDlpack(noise, pipeline.gpu, stream=7)
    dlpack.waiting, dlpack.cuda = [], cuda
    with closing(dlpack):
        assert streams_of(dlpack) == ([], [])
    assert dlpack.waiting == [(stream, 0)]


@pytest.mark.parametrize(
    ('pixels', 'encoding', 'message'),
    [
        (np.zeros((3, 120, 160), np.float32), 'bgr8', r'\(3, 120, 160\) float32 does not match'),
        (np.zeros((120, 160), np.uint8), 'bgr8', 'with 3 bytes per pixel'),
        (np.zeros(480, np.uint8), 'bgr8', r'expected \(H, W\[, C\]\)'),
        (np.zeros((9, 8, 6), np.uint8)[..., :3], 'bgr8', 'a row are not contiguous'),
        (np.zeros((9, 7), np.uint8), 'nv12', 'odd size'),
        (np.zeros((9, 8), np.uint8), 'rgb9', 'Unsupported image encoding'),
        (np.zeros((2, 2), np.uint8), 'bayer_rggb8', 'at least 3'),
    ],
)
def test_pixels_that_do_not_fit_the_encoding_are_refused(on_gpu, pixels, encoding, message):
    with pytest.raises(BadFrameError, match=message):
        DeviceFrame(on_gpu(pixels), encoding)


@pytest.mark.parametrize(
    ('shape', 'dtype', 'encoding', 'layout'),
    [
        ((120, 160, 4), 'u1', 'bgra8', (160, 120, 640, False)),
        ((180, 160), 'u1', 'nv12', (160, 120, 160, False)),
        ((120, 160), '<u2', 'mono16', (160, 120, 320, False)),
        ((120, 160), '>u2', '16UC1', (160, 120, 320, True)),
        ((120, 160), '<f4', '32FC1', (160, 120, 640, False)),
        ((1, 160), 'u1', 'mono8', (160, 1, 160, False)),
    ],
)
def test_layouts_are_those_of_arrays_on_the_host(on_gpu, shape, dtype, encoding, layout):
    pixels = np.zeros(shape, dtype)
    for frame in (DeviceFrame(on_gpu(pixels), encoding), Frame.from_pixels(pixels, encoding)):
        assert (*frame.wh, frame.step, frame.is_bigendian) == layout


def test_strides_of_one_element_do_not_matter(on_gpu):
    strides = (7, 3, 1)
    frame = DeviceFrame(on_gpu(np.zeros((1, 5, 3), np.uint8), strides=strides))
    assert (frame.wh, frame.step) == ((5, 1), 15)
    assert DeviceArray(on_gpu(np.zeros((4, 1), '<f4'), strides=(4, 99))).is_contiguous()
    assert not DeviceArray(on_gpu(np.zeros((4, 2), '<f4'), strides=(16, 4))).is_contiguous()


def test_the_cpu_refuses_them_with_the_remedy(on_gpu):
    frame = DeviceFrame(on_gpu(np.zeros((120, 160, 3), np.uint8)))
    for read in (lambda: frame.data, frame.with_lens(None).rectified().plane):
        with pytest.raises(BadFrameError, match='but is read on the CPU') as error:
            read()
        assert 'tensor.cpu().numpy()' in error.value.remedy
