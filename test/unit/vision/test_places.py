"""Positions of results through preprocessing and back."""

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import RESIZES, Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZES = [
    ((641, 359), (256, 256)),
    ((301, 517), (224, 320)),
    ((200, 200), (160, 256)),
    ((97, 131), (192, 192)),
    ((1201, 401), (320, 224)),
]
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=9)
CASES = pytest.mark.parametrize(
    ('resize', 'image_wh', 'input_hw'), [(resize, *sizes) for resize in RESIZES for sizes in SIZES]
)


def pixel_centers(image_wh):
    return np.meshgrid(np.arange(image_wh[0]) + 0.5, np.arange(image_wh[1]) + 0.5)


def preprocessed(image, resize, input_hw, **options):
    """Bring (H, W) or (H, W, 3), 0 to 1, to the input: (3, h, w), 0 to 1, and how."""
    image = np.broadcast_to(image if image.ndim == 3 else image[..., None], (*image.shape[:2], 3))
    pixels = np.rint(np.ascontiguousarray(image) * 255).astype(np.uint8)
    tensor, letterbox = Preprocess(input_hw, resize, pad_value=0, **options)(
        Frame.from_pixels(pixels, 'rgb8')
    )
    return tensor[0], letterbox


def disc(image_wh, center_xy, radius):
    """Give (H, W) with how much of each pixel is inside, and how far outside its center is."""
    x, y = pixel_centers(image_wh)
    outside = np.hypot(x - center_xy[0], y - center_xy[1]) - radius
    return np.clip(0.5 - outside, 0, 1), outside


def box(image_wh, cxcywh, theta=0.0):
    x, y = pixel_centers(image_wh)
    x, y = x - cxcywh[0], y - cxcywh[1]
    along, across = x * np.cos(theta) + y * np.sin(theta), y * np.cos(theta) - x * np.sin(theta)
    return np.clip(cxcywh[2] / 2 - np.abs(along) + 0.5, 0, 1) * np.clip(
        cxcywh[3] / 2 - np.abs(across) + 0.5, 0, 1
    )


def moments(plane):
    """Measure what is bright in an input: its center and covariance, in input pixels."""
    x, y = pixel_centers(plane.shape[::-1])
    weights = plane / plane.sum()
    center = np.array([(weights * x).sum(), (weights * y).sum()])
    x, y = x - center[0], y - center[1]
    cov = np.array(
        [
            [(weights * x * x).sum(), (weights * x * y).sum()],
            [(weights * x * y).sum(), (weights * y * y).sum()],
        ]
    )
    return center, cov


def middle(image_wh):
    """Give a place beside the middle, and a length that a center crop shows around it."""
    short = min(image_wh)
    return image_wh[0] / 2 + short * 0.07, image_wh[1] / 2 - short * 0.05, short * 0.2


def cells_of(plane, stride):
    height, width = plane.shape
    return plane.reshape(height // stride, stride, width // stride, stride).mean(axis=(1, 3))


def logits(share):
    share = np.clip(share, 1e-4, 1 - 1e-4)
    return np.log(share / (1 - share)).astype(np.float32)


def head(*values):
    """Answer (1, 4 + 1 + E, 9): a box of one class, its score and the rest."""
    output = np.zeros((1, len(values), 9), np.float32)
    output[0, :, 4] = values
    return output


def a_pixel(letterbox):
    """Of the image, or of the input where that is larger."""
    return max(1.0, *(1 / scale for scale in letterbox.scale_xy))


@CASES
def test_keypoints_are_found_where_they_were_drawn(resize, image_wh, input_hw):
    x, y, size = middle(image_wh)
    points = np.array([[x, y], [x - 0.7 * size, y + 0.5 * size], [x + 0.4 * size, y - size]])
    image = np.stack([disc(image_wh, point, 0.2 * size)[0] for point in points], axis=-1)
    planes, letterbox = preprocessed(image, resize, input_hw)
    seen = [value for plane in planes for value in (*moments(plane)[0], 0.8)]
    found = open_as('yolov8_pose', 'out (1, 14, ?)')(
        {'out': head(seen[0], seen[1], 20, 20, 0.9, *seen)}, letterbox, THRESHOLDS
    )
    np.testing.assert_allclose(found.keypoints[0, :, :2], points, atol=a_pixel(letterbox) / 2)


@pytest.mark.slow
@pytest.mark.parametrize('theta', [0.4, 1.2, 2.5])
@CASES
def test_a_rotated_box_is_found_where_it_was_drawn(resize, image_wh, input_hw, theta):
    x, y, size = middle(image_wh)
    width, height = 1.3 * size, 0.5 * size
    (plane, *_), letterbox = preprocessed(
        box(image_wh, (x, y, width, height), theta), resize, input_hw
    )
    (cx, cy), cov = moments(plane)
    if resize in ('stretch', 'bottom_crop'):  # It is no box there: its side and its area are.
        side = width * np.array([np.cos(theta), np.sin(theta)]) * letterbox.scale_xy
        seen_theta, seen_width = np.arctan2(side[1], side[0]), np.hypot(*side)
        seen_height = width * height * np.prod(letterbox.scale_xy) / seen_width
    else:
        (low, high), axes = np.linalg.eigh(cov)
        seen_theta = np.arctan2(axes[1, 1], axes[0, 1])
        seen_width, seen_height = np.sqrt(12 * high), np.sqrt(12 * low)
    found = open_as('yolov8_obb', 'out (1, 6, ?)')(
        {'out': head(cx, cy, seen_width, seen_height, 0.9, seen_theta)}, letterbox, THRESHOLDS
    )
    np.testing.assert_allclose(found.cxcywh[0], [x, y, width, height], atol=a_pixel(letterbox))
    assert abs(np.sin(found.theta[0] - theta)) < 0.02


def assert_same_shape(mask, outside, letterbox, *, stride):
    """Compare but at the edge, which cells of averages show a tenth of their size off."""
    edge = 0.6 + 0.11 * stride * a_pixel(letterbox)
    assert (mask[outside < -edge]).all() and not mask[outside > edge].any()


@CASES
def test_a_mask_lies_where_it_was_drawn(resize, image_wh, input_hw):
    x, y, size = middle(image_wh)
    share, outside = disc(image_wh, (x, y), size)
    (plane, *_), letterbox = preprocessed(share, resize, input_hw, antialias=True)
    head_output = head(input_hw[1] / 2, input_hw[0] / 2, *input_hw[::-1], 0.9, 1.0)
    found = open_as('yolov8_seg', 'out (1, 6, ?); cells (1, 1, ?, ?)')(
        {'out': head_output, 'cells': logits(cells_of(plane, 4))[None, None]},
        letterbox,
        THRESHOLDS,
    )
    mask = found.paint(np.array([1], np.uint8)) == 1
    assert_same_shape(mask, outside, letterbox, stride=4)


@pytest.mark.slow
@pytest.mark.parametrize('classes', [1, 3])
@CASES
def test_a_class_lies_where_it_was_drawn(resize, image_wh, input_hw, classes):
    x, y, size = middle(image_wh)
    share, outside = disc(image_wh, (x, y), size)
    (plane, *_), letterbox = preprocessed(share, resize, input_hw, antialias=True)
    cells = cells_of(plane, 4)
    scores = cells[None] if classes == 1 else np.stack([1 - cells, cells, 0.4 * cells])
    outputs = {'out': scores[None].astype(np.float32)}
    labels = open_as('semantic', outputs, hw=input_hw)(outputs, letterbox, THRESHOLDS).labels
    assert_same_shape(labels == 1, outside, letterbox, stride=4)


@pytest.mark.slow
@pytest.mark.parametrize('stride', [1, 8])
@pytest.mark.parametrize('axis', [0, 1])
@CASES
def test_depth_is_placed_at_its_pixel(resize, image_wh, input_hw, axis, stride):
    ramp = pixel_centers(image_wh)[axis]
    (plane, *_), letterbox = preprocessed(ramp / image_wh[axis], resize, input_hw)
    outputs = {'out': (cells_of(plane, stride) * image_wh[axis])[None]}
    depth = open_as('depth', outputs, hw=input_hw)(outputs, letterbox, THRESHOLDS).values
    # Cells at the edge see padding, or nothing further: the middle is compared.
    x, y, size = middle(image_wh)
    inner = np.s_[int(y - size) : int(y + size), int(x - size) : int(x + size)]
    steps = image_wh[axis] / 255
    np.testing.assert_allclose(depth[inner], ramp[inner], atol=0.5 * steps + 0.5)
