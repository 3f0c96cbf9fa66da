from hypothesis import given
from hypothesis import strategies as st
import numpy as np

from support.properties import repeatable
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import RESIZES, Letterbox
from trt_ros.vision.masks import cells_of, threshold_masks


def assert_same_but_at_the_threshold(mask, values, threshold):
    assert mask.shape == values.shape and mask.dtype == bool
    unsure = np.abs(values - threshold) < 1e-5 * max(1, np.abs(values).max(initial=0))
    assert np.array_equal(mask | unsure, (values > threshold) | unsure)


@repeatable
@given(
    image_wh=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    grid_hw=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    resize=st.sampled_from(RESIZES),
    seed=st.integers(0, 99),
)
def test_threshold_applies_to_interpolated_values(image_wh, grid_hw, resize, seed):
    rng = np.random.default_rng(seed)
    rows, cols = taps(Letterbox.fit(image_wh, (48, 48), resize), grid_hw)
    whole = rng.normal(size=grid_hw).astype(np.float32)
    (x1, x2), (y1, y2) = (
        sorted(rng.choice(size + 1, 2, replace=False).tolist()) for size in image_wh
    )
    boxes = [(0, 0, *image_wh), (x1, y1, x2, y2)]
    planes = [whole[cells_of(rows, cols, box)] for box in boxes]
    values = bilinear(whole, rows, cols)
    for mask, (x1, y1, x2, y2) in zip(threshold_masks(planes, 0.25, rows, cols, boxes), boxes):
        assert_same_but_at_the_threshold(mask, values[y1:y2, x1:x2], 0.25)


def test_the_threshold_may_be_passed_far_outside_of_the_image_but_not_by_nan():
    # Some 330 pixels would lie between two cells; the image has 23, in the middle.
    rows, cols = taps(Letterbox.fit((314, 23), (57, 11), 'letterbox'), (4, 6))
    plane = np.array([[0.0] * 6, [-0.01] * 6, [1.0] * 6, [0.0] * 6], np.float32)
    box = (0, 0, 314, 23)
    for values in (plane, -plane):
        (mask,) = threshold_masks([values[cells_of(rows, cols, box)]], 0.0, rows, cols, [box])
        assert_same_but_at_the_threshold(mask, bilinear(values, rows, cols), 0.0)
    rows, cols = taps(Letterbox.fit((4, 4), (4, 4), 'stretch'), (2, 2))
    with np.errstate(invalid='ignore'):
        (mask,) = threshold_masks(
            [np.full((2, 2), np.nan, np.float32)], 0.5, rows, cols, [(0, 0, 4, 4)]
        )
    assert not mask.any()


def test_more_planes_than_are_computed_at_once_keep_their_order():
    rows, cols = taps(Letterbox.fit((16, 16), (16, 16), 'stretch'), (4, 4))
    boxes = [(index % 8, index % 5, 10, 12) for index in range(40)]
    planes = [
        np.full((4, 4), index % 3 - 1.0, np.float32)[cells_of(rows, cols, box)]
        for index, box in enumerate(boxes)
    ]
    masks = threshold_masks(planes, 0.5, rows, cols, boxes)
    assert [mask.shape for mask in masks] == [(y2 - y1, x2 - x1) for x1, y1, x2, y2 in boxes]
    assert [bool(mask.any()) for mask in masks] == [index % 3 == 2 for index in range(40)]
    assert all(mask.all() == mask.any() for mask in masks)
