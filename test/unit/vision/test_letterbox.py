from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from support.properties import repeatable
from trt_ros.errors import ParameterError
from trt_ros.families.registry import ALL_FAMILIES
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import INTEGERS, RESIZES, Letterbox, Preprocess

SIZES = st.tuples(st.integers(1, 4000), st.integers(1, 4000))
INPUTS = st.tuples(st.integers(1, 1280), st.integers(1, 1280))


def uniform(value, width, height) -> Frame:
    return Frame.from_pixels(np.full((height, width, 3), value, np.uint8), 'rgb8')


# Geometry


WIDE = (1280, 960), (640, 640)


@pytest.mark.parametrize(
    ('image_wh', 'input_hw', 'resize', 'scale_xy', 'pad_xy', 'inner_wh'),
    [
        (*WIDE, 'letterbox', (0.5, 0.5), (0, 80), (640, 480)),
        (*WIDE, 'letterbox_topleft', (0.5, 0.5), (0, 0), (640, 480)),
        (*WIDE, 'stretch', (0.5, 640 / 960), (0, 0), (640, 640)),
        (*WIDE, 'center_crop', (853 / 1280, 640 / 960), (-106, 0), (853, 640)),
        (*WIDE, 'bottom_crop', (0.5, 640 / 960), (0, 0), (640, 640)),
        # 138.528 rows; 277 are free, the odd one goes below.
        ((1000, 333), (416, 416), 'letterbox', (0.416, 139 / 333), (0, 138), (416, 139)),
        # 138.112 columns.
        ((332, 1000), (416, 416), 'letterbox', (138 / 332, 0.416), (139, 0), (138, 416)),
        ((1000, 900), (100, 200), 'center_crop', (0.2, 0.2), (0, -40), (200, 180)),
    ],
)
def test_an_image_is_scaled_to_whole_pixels_and_padded_or_cropped(
    image_wh, input_hw, resize, scale_xy, pad_xy, inner_wh
):
    letterbox = Letterbox.fit(image_wh, input_hw, resize)
    assert letterbox.scale_xy == scale_xy
    assert letterbox.pad_xy == pad_xy
    assert letterbox.inner_wh == inner_wh


@pytest.mark.parametrize(
    ('image_wh', 'input_hw', 'inner_wh'),
    [
        ((1000, 333), (416, 416), (416, 138)),  # 138.528
        ((810, 1080), (640, 640), (480, 640)),
        ((1280, 853), (640, 640), (640, 426)),  # 426.5
        ((427, 640), (480, 640), (320, 480)),  # 320.25
        ((1440, 1080), (416, 416), (415, 311)),  # 1440 * (416 / 1440) is below 416 in float64.
    ],
)
def test_the_letterbox_of_yolox_truncates(image_wh, input_hw, inner_wh):
    letterbox = Letterbox.fit(image_wh, input_hw, 'letterbox_topleft')
    assert letterbox.inner_wh == inner_wh  # int(side * ratio), as in its `preproc`.
    assert letterbox.scale_xy == (inner_wh[0] / image_wh[0], inner_wh[1] / image_wh[1])


@pytest.mark.parametrize(
    ('family', 'resize', 'inner_wh'),
    [
        ('yolov8', 'letterbox', (640, 427)),
        ('yolov5', 'letterbox', (640, 427)),
        ('yolov3', 'letterbox', (640, 426)),
        ('movenet', 'letterbox', (640, 426)),
        ('mediapipe_palm', 'letterbox', (640, 426)),
        ('mmdetection', 'letterbox_topleft', (640, 427)),
        ('yolox', 'letterbox_topleft', (640, 426)),
        ('scrfd', 'letterbox_topleft', (640, 426)),
        ('retinaface', 'letterbox_topleft', (640, 426)),
        ('yunet', 'letterbox_topleft', (640, 426)),
    ],
)
def test_each_family_rounds_as_the_code_of_its_authors(family, resize, inner_wh):
    values = next(each.preprocess for each in ALL_FAMILIES if each.name == family)
    preprocess = Preprocess((640, 640), **values)
    assert preprocess.resize == resize
    assert preprocess.letterbox((1281, 854)).inner_wh == inner_wh  # 426.67


# What torchvision's resize and center_crop make of these sizes.
@pytest.mark.parametrize(
    ('image_wh', 'inner_wh', 'pad_xy'),
    [
        ((500, 375), (341, 256), (-58, -16)),
        ((375, 500), (256, 341), (-16, -58)),
        ((1920, 1080), (455, 256), (-116, -16)),
        ((100, 100), (256, 256), (-16, -16)),
        ((1, 3), (256, 768), (-16, -272)),
    ],
)
def test_a_center_crop_is_that_of_torchvision(image_wh, inner_wh, pad_xy):
    letterbox = Letterbox.fit(image_wh, (224, 224), 'center_crop', crop_fraction=224 / 256)
    assert letterbox.inner_wh == inner_wh
    assert letterbox.pad_xy == pad_xy
    assert (
        Preprocess((224, 224), 'center_crop', crop_fraction=0.875).letterbox(image_wh) == letterbox
    )


def test_boxes_come_back_in_image_pixels_and_clipped_as_a_copy():
    boxes = np.array([[10, 90, 30, 130], [-5, 0, 700, 640]], np.float32)
    before = boxes.copy()
    found = Letterbox.fit((1280, 960), (640, 640), 'letterbox').to_image(boxes)
    assert found.tolist() == [[20, 20, 60, 100], [0, 0, 1280, 960]]
    assert np.array_equal(boxes, before)


def to_input(letterbox, xyxy):
    return xyxy * np.tile(letterbox.scale_xy, 2) + np.tile(letterbox.pad_xy, 2)


@repeatable
@given(image_wh=SIZES, input_hw=INPUTS, resize=st.sampled_from(RESIZES))
def test_boxes_survive_round_trip(image_wh, input_hw, resize):
    letterbox = Letterbox.fit(image_wh, input_hw, resize)
    corners = np.random.default_rng(0).uniform(0, 1, (8, 2, 2))
    boxes = (np.sort(corners, axis=1) * image_wh).reshape(8, 4).astype(np.float32)
    back = letterbox.to_image(to_input(letterbox, boxes))
    # A hundredth of an input pixel, or of an image pixel where that is larger.
    np.testing.assert_allclose(back, boxes, atol=0.01 * max(1, *1 / np.array(letterbox.scale_xy)))


@repeatable
@given(
    image_wh=SIZES,
    input_hw=INPUTS,
    resize=st.sampled_from([each for each in RESIZES if not each.endswith('crop')]),
)
def test_the_image_lies_inside_the_input(image_wh, input_hw, resize):
    letterbox = Letterbox.fit(image_wh, input_hw, resize)
    (left, top), (width, height) = letterbox.pad_xy, letterbox.inner_wh
    assert width >= 1 and height >= 1 and left >= 0 and top >= 0
    assert left + width <= input_hw[1] and top + height <= input_hw[0]
    short = resize == 'letterbox_topleft'  # It rounds down, also what is just below a pixel.
    assert width >= input_hw[1] - short or height >= input_hw[0] - short
    whole = to_input(letterbox, np.array([0, 0, *image_wh]))
    np.testing.assert_allclose(whole, [left, top, left + width, top + height], atol=1e-3)


# Pixels to input


def test_values_are_scaled_then_normalized_in_the_networks_order_and_padding_likewise():
    frame = Frame.from_pixels(np.full((2, 2, 3), (10, 20, 30), np.uint8), 'rgb8')
    preprocess = Preprocess((2, 2), scale=0.1, mean=(0.5, 1.0, 2.0), std=(0.5, 0.25, 2.0))
    tensor, _ = preprocess(frame)
    assert tensor.shape == (1, 3, 2, 2)
    assert tensor.dtype == np.float32
    np.testing.assert_allclose(tensor[0, :, 0, 0], [1.0, 4.0, 0.5], rtol=1e-6)
    as_bgr = Preprocess((2, 2), channel_order='bgr', scale=1.0, mean=(1.0, 0.0, 0.0))
    assert as_bgr(frame)[0][0, :, 0, 0].tolist() == [29, 20, 10]
    preprocess = Preprocess((4, 4), pad_value=100, scale=0.1, mean=(1.0, 2.0, 3.0))
    tensor, letterbox = preprocess(uniform(50, 4, 2))
    assert letterbox.pad_xy == (0, 1)
    np.testing.assert_allclose(tensor[0, :, :, 0].T, [[9, 8, 7], [4, 3, 2], [4, 3, 2], [9, 8, 7]])


def test_a_center_crop_shows_the_middle():
    pixels = np.repeat(np.arange(8, dtype=np.uint8)[None, :, None], 4, axis=0).repeat(3, axis=2)
    frame = Frame.from_pixels(pixels, 'rgb8')
    tensor, letterbox = Preprocess((4, 4), 'center_crop', scale=1.0)(frame)
    assert tensor[0, 0].tolist() == [[2, 3, 4, 5]] * 4
    assert letterbox.to_image(np.array([[0, 0, 4, 4]])).tolist() == [[2, 0, 6, 4]]
    # Twice the size, of which columns 6 to 9: x = 2.75, 3.25, 3.75, 4.25.
    tensor, letterbox = Preprocess((4, 4), 'center_crop', scale=1.0, crop_fraction=0.5)(frame)
    assert tensor[0, 0].tolist() == [[2.75, 3.25, 3.75, 4.25]] * 4
    assert letterbox.to_image(np.array([[0, 0, 4, 4]])).tolist() == [[3, 1, 5, 3]]


@pytest.mark.parametrize('resize', RESIZES)
@pytest.mark.parametrize('dtype', ['float32', 'float16', 'uint8'])
def test_layouts_hold_the_same_values_and_are_contiguous(resize, dtype):
    pixels = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)
    frame = Frame.from_pixels(pixels, 'bgr8')
    planar = Preprocess((32, 48), resize, dtype=dtype, scale=1.0)
    first, _ = planar(frame)
    last, _ = replace(planar, layout='nhwc')(frame)
    assert first.shape == (1, 3, 32, 48) and last.shape == (1, 32, 48, 3)
    assert first.flags.c_contiguous and last.flags.c_contiguous
    assert first.dtype == last.dtype == dtype
    assert np.array_equal(first.transpose(0, 2, 3, 1), last)


def test_float16_is_float32_rounded_and_bfloat16_left_to_the_gpu():
    pixels = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)
    frame = Frame.from_pixels(pixels)
    wide, _ = Preprocess((32, 48))(frame)
    half, _ = Preprocess((32, 48), dtype='float16')(frame)
    assert np.array_equal(half, wide.astype(np.float16))
    preprocess = Preprocess((4, 4), dtype='bfloat16')
    with pytest.raises(ParameterError, match='dtype bfloat16 on the CPU'):
        preprocess(uniform(7, 4, 4))


@pytest.mark.parametrize('dtype', INTEGERS)
def test_integers_are_rounded_to_even_and_clipped(dtype):
    pixels = np.array([[[1, 3, 5], [200, 100, 0]]], np.uint8)
    frame = Frame.from_pixels(pixels, 'rgb8')
    halves, _ = Preprocess((1, 2), scale=0.5, dtype=dtype)(frame)
    assert halves[0, :, 0].T.tolist() == [[0, 2, 2], [100, 50, 0]]
    doubles, _ = Preprocess((1, 2), scale=2.0, mean=(4.0, 4.0, 4.0), dtype=dtype)(frame)
    assert doubles[0, :, 0].T.tolist() == [[0, 2, 6], [255, 196, 0]]


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'resize': 'crop'}, "resize is 'crop'"),
        ({'channel_order': 'rbg'}, "channel_order is 'rbg'"),
        ({'layout': 'chw'}, "layout is 'chw'"),
        ({'dtype': 'int8'}, "dtype is 'int8'"),
        ({'pad_value': 256}, 'pad_value is 256'),
        ({'pad_value': -1}, 'pad_value is -1'),
        ({'mean': (0.0, 0.0)}, 'mean has 2 values'),
        ({'channels': 1, 'mean': (0.0, 0.0, 0.0)}, 'mean has 3 values, .* takes 1 channel'),
        ({'channels': 2}, 'channels is 2'),
        ({'std': (1.0, 1.0, 1.0, 1.0)}, 'std has 4 values'),
        ({'std': (1.0, 0.0, 1.0)}, 'std contains 0'),
        ({'input_hw': (0, 640)}, 'expected at least 1'),
        ({'crop_fraction': 0.0}, 'crop_fraction is 0.0'),
        ({'crop_fraction': 1.1}, 'crop_fraction is 1.1'),
    ],
)
def test_invalid_values_are_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        Preprocess(**{'input_hw': (640, 640), **changes})


def test_an_unknown_resize_names_those_there_are():
    with pytest.raises(ParameterError, match='letterbox_topleft, stretch, center_crop, bottom'):
        Letterbox.fit((4, 4), (4, 4), 'crop')
