"""The kernels of preprocessing and of copies equal the NumPy reference."""

from collections.abc import Callable
from contextlib import closing
from itertools import product

import numpy as np
import pytest

from support.frames import noise_frame
from support.memory import FETCHES, copied, copies_of_all_sizes, fetched
from support.stereo_scenes import LENSES, render
from trt_ros.cuda.copies import SMALL_COPY_NBYTES, RowsCopy, copy_all, fetch
from trt_ros.cuda.memory import DeviceBuffer, PinnedBuffer, fill_async
from trt_ros.errors import BadFrameError
from trt_ros.vision.frame import ENCODINGS, Frame
from trt_ros.vision.letterbox import RESIZES, Preprocess

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 1')]


def random_frame(encoding: str, width: int, height: int, *, pad: int = 5, big=False) -> Frame:
    """Noise, in rows with something between them."""
    if encoding in ('yuv422', 'uyvy', 'yuv422_yuy2', 'yuyv', 'nv12', 'nv21'):
        width, height = width // 2 * 2, height // 2 * 2
    return noise_frame(encoding, width, height, padding=pad, is_bigendian=big)


def assert_equal_within_a_pixel_value(got, want, preprocess: Preprocess) -> None:
    if preprocess.dtype == 'bfloat16':
        got = (got.astype(np.uint32) << 16).view(np.float32)
    span = 255 * preprocess.scale / min(preprocess.std)
    # Half floats have 11 bits, bfloat16 8: their rounding comes on top.
    largest = float(np.abs(want.astype(np.float64)).max())
    rounding = {'bfloat16': 2.0**-8, 'float16': 2.0**-11}.get(preprocess.dtype, 0.0)
    tolerance = (1.0 if preprocess.dtype == 'uint8' else span / 255) + largest * rounding
    assert got.shape == want.shape
    assert np.abs(got.astype(np.float64) - want.astype(np.float64)).max() <= tolerance


@pytest.fixture
def check(preprocess_on_gpu) -> Callable[[Frame, Preprocess], None]:
    """Compare what the kernel makes of a frame with the reference."""

    def check(frame: Frame, preprocess: Preprocess) -> None:
        want, _ = preprocess(frame)
        assert_equal_within_a_pixel_value(preprocess_on_gpu(frame, preprocess), want, preprocess)

    return check


@pytest.mark.parametrize('encoding', ENCODINGS)
@pytest.mark.parametrize('resize', RESIZES)
def test_every_encoding_resize_dtype_and_layout_equals_numpy(encoding, resize, preprocess_on_gpu):
    sizes = [(117, 75), (33, 201)]
    for (width, height), dtype, layout in product(
        sizes, ('float32', 'float16', 'bfloat16', 'uint8'), ('nchw', 'nhwc')
    ):
        frame = random_frame(encoding, width, height)
        scaling = (
            dict(scale=1.0)
            if dtype == 'uint8'
            else dict(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
        )
        preprocess = Preprocess((64, 96), resize=resize, dtype=dtype, layout=layout, **scaling)
        reference = Preprocess(
            (64, 96),
            resize=resize,
            layout=layout,
            **scaling,
            dtype='float32' if dtype == 'bfloat16' else dtype,
        )
        want, _ = reference(frame)
        assert_equal_within_a_pixel_value(preprocess_on_gpu(frame, preprocess), want, preprocess)


@pytest.mark.parametrize('antialias', [False, True])
@pytest.mark.parametrize('size', [(640, 480), (75, 117), (64, 64), (30, 20)])
@pytest.mark.parametrize('crop_fraction', [1.0, 0.875, 0.3])
@pytest.mark.parametrize('resize', ['center_crop', 'bottom_crop'])
def test_a_crop_equals_numpy(resize, crop_fraction, size, antialias, check):
    for encoding in ('bgr8', 'nv12', 'bayer_rggb8', 'mono16'):
        frame = random_frame(encoding, *size)
        preprocess = Preprocess((64, 96), resize, crop_fraction=crop_fraction, antialias=antialias)
        check(frame, preprocess)


@pytest.mark.parametrize('order', ['rgb', 'bgr'])
@pytest.mark.parametrize('size', [(3, 3), (4, 3), (639, 481), (1921, 1081)])
def test_odd_and_tiny_sizes_equal_numpy(size, order, check):
    for encoding in ('rgb8', 'bgra8', 'bayer_gbrg8', 'mono16'):
        frame = random_frame(encoding, *size)
        preprocess = Preprocess((65, 97), channel_order=order, pad_value=7)
        check(frame, preprocess)


def test_big_endian_gray_takes_the_other_byte(check):
    frame = random_frame('mono16', 50, 40, big=True)
    check(frame, Preprocess((32, 32)))


@pytest.mark.parametrize('size', [(1000, 700), (300, 70), (65, 64), (40, 1000)])
@pytest.mark.parametrize('resize', RESIZES)
def test_antialias_averages_what_a_pixel_covers(size, resize, check):
    for encoding in ('bgr8', 'nv12', 'bayer_rggb8'):
        frame = random_frame(encoding, *size)
        preprocess = Preprocess((64, 96), resize=resize, antialias=True)
        check(frame, preprocess)


def test_a_last_row_that_ends_with_its_last_pixel_is_read_no_further(check):
    whole = random_frame('rgb8', 31, 17, pad=100)
    frame = Frame(whole.data[: whole.nbytes], 31, 17, whole.step, 'rgb8')
    check(frame, Preprocess((32, 48)))


@pytest.mark.parametrize('lens', LENSES.values(), ids=LENSES)
def test_a_rectified_image_equals_opencv(lens, preprocess_on_gpu):
    frame = Frame.from_pixels(render(False)[0]).with_lens(lens)
    for size, antialias in (((96, 160), False), ((64, 96), False), ((32, 40), True)):
        preprocess = Preprocess(size, scale=1.0, antialias=antialias)
        want, _ = preprocess(frame.rectified())
        # The weights of OpenCV are multiples of 1/32, its result is rounded.
        errors = np.abs(preprocess_on_gpu(frame, preprocess) - want)
        assert errors.max() < 10
        assert errors.mean() < 1


DEPTHS = {'mono16': 'uint16', '16UC1': 'uint16', '32FC1': 'float32'}


def random_values(encoding: str, width: int, height: int) -> Frame:
    values = np.random.default_rng(width).integers(0, 60000, (height, width))
    if encoding == '32FC1':
        values = values / 7000
        values[:3, :5] = np.nan, np.inf, -np.inf, 0, -1
    return Frame.from_pixels(values.astype(DEPTHS[encoding]), encoding)


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    """
    Compare to within 0.1 gray levels, and 1/32768 of the range of large values.

    The latter is the rounding of a float32 coordinate in 256 to 511, in noise: neighbors differ
    by the whole range.
    """
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=max(2e-3, np.ptp(want) * 2.0**-15))


@pytest.mark.parametrize('antialias', [False, True])
@pytest.mark.parametrize('layout', ['nchw', 'nhwc'])
@pytest.mark.parametrize('resize', RESIZES)
def test_one_channel_equals_numpy(resize, layout, antialias, preprocess_on_gpu):
    preprocess = Preprocess(
        (64, 96), resize, mean=(0.4,), std=(0.2,), layout=layout, antialias=antialias, channels=1
    )
    for width, height in ((117, 75), (301, 403)):
        for frame in (
            *(random_frame(encoding, width, height) for encoding in ENCODINGS),
            *(random_values(encoding, width, height) for encoding in DEPTHS),
        ):
            assert_close(preprocess_on_gpu(frame, preprocess), preprocess(frame)[0])


@pytest.mark.parametrize('layout', ['nchw', 'nhwc'])
@pytest.mark.parametrize('resize', RESIZES)
def test_four_channels_equal_numpy(resize, layout, preprocess_on_gpu):
    preprocess = Preprocess(
        (64, 96),
        resize,
        mean=(0.4, 0.5, 0.6, 2),
        std=(0.2, 0.3, 0.4, 3),
        layout=layout,
        channels=4,
    )
    for encoding in ('rgb8', 'bgra8', 'rgba8', 'nv12', 'mono8'):
        frame = random_frame(encoding, 117, 75)
        if encoding in ('rgba8', 'bgra8'):
            assert_close(preprocess_on_gpu(frame, preprocess), preprocess(frame)[0])
        else:
            with pytest.raises(BadFrameError, match=f'{encoding} has no fourth channel'):
                preprocess_on_gpu(frame, preprocess)
        for second in (
            random_values('16UC1', 301, 203),
            random_values('32FC1', 64, 48),
            random_frame('mono8', 117, 75),
        ):
            assert_close(
                preprocess_on_gpu(frame, preprocess, second), preprocess(frame, second)[0]
            )


def test_copies_to_the_gpu_and_back_write_their_bytes_alone(bench):
    copies, nbytes = copies_of_all_sizes(SMALL_COPY_NBYTES)
    with (
        bench.gpu.context,
        closing(PinnedBuffer(nbytes, 'test', bench.account)) as source,
        closing(PinnedBuffer(nbytes, 'test', bench.account)) as target,
        closing(DeviceBuffer(nbytes, 'test', bench.account)) as there,
    ):
        source.view[:] = np.random.default_rng(1).integers(1, 256, nbytes)
        target.view[:] = 0
        stream = bench.stream.handle
        fill_async(there.ptr, 0, nbytes, stream)
        for to, at in ((there.ptr, source.device_ptr), (target.device_ptr, there.ptr)):
            copy_all(bench.preprocess, [(to + i, at + j, n) for i, j, n in copies], stream)
            copies = [(i, i, n) for i, _, n in copies]
        bench.stream.synchronize()
        want = copied(copies_of_all_sizes(SMALL_COPY_NBYTES)[0], source.view)
        assert target.view.tobytes() == want.tobytes()


@pytest.mark.parametrize(('start', 'to', 'blocks'), FETCHES.values(), ids=FETCHES)
def test_an_image_is_fetched_from_where_its_address_says(bench, start, to, blocks):
    with (
        bench.gpu.context,
        closing(PinnedBuffer(1 << 18, 'test', bench.account)) as image,
        closing(PinnedBuffer(8, 'test', bench.account)) as word,
        closing(PinnedBuffer(1 << 17, 'test', bench.account)) as target,
    ):
        image.view[:] = np.random.default_rng(1).integers(1, 256, image.nbytes)
        word.view.view(np.uint64)[0] = image.device_ptr + start
        stream, there = bench.stream.handle, target.device_ptr + to
        want = fetched(image.view[start:], blocks)
        for enqueue in (
            lambda: fetch(bench.preprocess, there, word.device_ptr, blocks, stream),
            lambda: RowsCopy.of(there, blocks).enqueue(image.ptr + start, stream),
        ):
            target.view[:] = 0
            enqueue()
            bench.stream.synchronize()
            assert target.view[to : to + want.size].tobytes() == want.tobytes()
            assert not target.view[:to].any() and not target.view[to + want.size :].any()
