"""The drawn pictures and what is said to be on them."""

from itertools import islice

from demo.scene import CLASSES, TRAINING, Canvas, MovingScene, Shape, draw_scene, held_out
import numpy as np
import pytest

WHITE = np.full((3, 3), 255, np.float32)


def shape(name: str, center_xy=(100.0, 80.0), *, radius=30.0, angle=0.3, **more) -> Shape:
    return Shape(CLASSES.index(name), center_xy, radius, angle, WHITE, **more)


def black_canvas() -> Canvas:
    return Canvas(np.zeros((160, 200, 3), np.uint8))


def painted_box(canvas: Canvas) -> list[int]:
    """The box around all pixels that are no longer black."""
    rows, columns = np.nonzero(canvas.image.any(axis=2))
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@pytest.mark.parametrize('name', CLASSES)
@pytest.mark.parametrize('angle', [0.0, 0.3, 1.2, 4.0])
@pytest.mark.parametrize('center_xy', [(100.0, 80.0), (93.37, 71.81), (130.5, 60.25)])
def test_the_box_is_that_of_the_changed_pixels(name, angle, center_xy):
    canvas = black_canvas()
    canvas.paint(shape(name, center_xy, angle=angle))
    # A corner may reach into a pixel too little to change it.
    np.testing.assert_allclose(canvas.xyxy[0], painted_box(canvas), atol=1.01)


@pytest.mark.parametrize('name', CLASSES)
@pytest.mark.parametrize('center_xy', [(12.4, 150.2), (190.0, 5.0)])
def test_the_box_of_a_shape_cut_by_the_edge_is_its_whole_box_clipped(name, center_xy):
    canvas, larger = black_canvas(), Canvas(np.zeros((260, 300, 3), np.uint8))
    canvas.paint(shape(name, center_xy))
    larger.paint(shape(name, (center_xy[0] + 50, center_xy[1] + 50)))
    whole = np.array(painted_box(larger)) - 50
    np.testing.assert_allclose(canvas.xyxy[0], whole.clip(0, [200, 160, 200, 160]), atol=1.01)


def test_a_box_has_exact_edges():
    canvas = black_canvas()
    canvas.paint(shape('square', (100.5, 80.25), radius=20 * 2**0.5, angle=np.pi / 4))
    np.testing.assert_allclose(canvas.xyxy, [[80.5, 60.25, 120.5, 100.25]], atol=1e-4)
    # A pixel half covered is half as bright.
    assert canvas.image[80, 79:82, 0].tolist() == [0, pytest.approx(127, abs=2), 255]


def test_a_shape_that_would_hide_another_is_not_tried():
    canvas = Canvas(np.zeros((160, 200, 3), np.uint8))
    canvas.try_paint(shape('circle', (80.0, 80.0)))
    canvas.try_paint(shape('star', (85.0, 80.0)))
    canvas.try_paint(shape('cross', (-15.0, 80.0)))
    canvas.try_paint(shape('hexagon', (150.0, 80.0)))
    assert [CLASSES[label] for label in canvas.labels] == ['circle', 'hexagon']


@pytest.mark.slow
@pytest.mark.parametrize('size_wh', [(640, 480), (333, 500)])
def test_a_drawn_picture_has_boxes_inside_it(size_wh):
    seen = set()
    for seed in range(8):
        image, xyxy, labels = draw_scene(np.random.default_rng(seed), size_wh)
        assert image.shape == (size_wh[1], size_wh[0], 3)
        assert (image.dtype, xyxy.dtype, labels.dtype) == (np.uint8, np.float32, np.int32)
        assert xyxy.shape == (len(labels), 4)
        assert (xyxy >= 0).all()
        assert (xyxy <= [*size_wh, *size_wh]).all()
        assert (xyxy[:, 2:] - xyxy[:, :2] > 10).all()
        seen |= set(labels.tolist())
    assert seen == set(range(len(CLASSES)))


def test_seeds_draw_pictures_of_their_own_as_training_and_held_out_ones():
    first, again, other = (
        draw_scene(np.random.default_rng(seed), (320, 240)) for seed in (5, 5, 6)
    )
    for one, two in zip(first, again):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(first[0], other[0])
    held = [image for image, _, _ in islice(held_out(500), 3)]
    trained = [
        draw_scene(np.random.default_rng([TRAINING, index]), (640, 480))[0] for index in range(3)
    ]
    assert not any(np.array_equal(one, two) for one in held for two in trained)


@pytest.mark.slow
def test_a_moving_scene_is_the_same_every_time_and_moves_smoothly():
    scene, again = MovingScene(9), MovingScene(9)
    before: dict[int, np.ndarray] = {}
    traveled = np.zeros(len(CLASSES))
    for index in range(0, 40):
        image, xyxy, labels = scene.frame(index)
        assert image.shape == (480, 640, 3)
        assert len(set(labels.tolist())) == len(labels) >= 4
        for box, label in zip(xyxy, labels.tolist()):
            if label in before:
                centers = [(b[:2] + b[2:]) / 2 for b in (box, before[label])]
                step = np.linalg.norm(centers[0] - centers[1])
                assert step < 8
                traveled[label] += step
        before = dict(zip(labels.tolist(), xyxy))
    assert (traveled > 10).all()
    for one, two in zip(scene.frame(17), again.frame(17)):
        np.testing.assert_array_equal(one, two)
