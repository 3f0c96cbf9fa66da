"""The film of a walk."""

import cv2
import numpy as np
import pytest

pytest.importorskip('mujoco')

from demo.robot.film import INSET_WH, SIZE_WH, Film, Scene, write_film
from demo.robot.simulation import Simulation
from demo.robot.world import draw_layout

from trt_ros.media import read_images


@pytest.fixture(scope='module')
def pictures():
    layout = draw_layout(1, 'ball')
    film, simulation = Film(layout, 'ball'), Simulation(layout)
    found = []
    for x in (0.0, 0.3):
        simulation.data.qpos[0] = x
        seen = np.full((192, 256, 3), (0, 200, 0), np.uint8)
        found.append(film.render(Scene(simulation.data.qpos.copy(), seen, f'{x} m')))
    return found


def test_it_shows_the_robot_and_what_it_sees(pictures):
    assert pictures[0].shape == (SIZE_WH[1], SIZE_WH[0], 3)
    assert (pictures[0] == (0, 200, 0)).all(axis=2).sum() > 0.9 * np.prod(INSET_WH)
    body = (pictures[0].astype(int) @ (-1, 0, 1) > 100).sum()  # The robot's back is yellow.
    assert body > 50
    assert (pictures[0] != pictures[1]).mean() > 0.1


@pytest.mark.skipif(not hasattr(cv2, 'imwriteanimation'), reason='OpenCV before 4.11')
def test_it_is_an_animated_image(pictures, tmp_path):
    path = write_film(tmp_path, pictures)
    assert path.read_bytes()[8:12] == b'WEBP'
    animation = cv2.imreadanimation(str(path))[1]
    assert len(animation.frames) == len(pictures)


def test_with_an_older_opencv_it_is_a_video(pictures, tmp_path, monkeypatch):
    monkeypatch.delattr(cv2, 'imwriteanimation', raising=False)
    path = write_film(tmp_path, pictures)
    assert path.suffix == '.mp4'
    assert [image.shape for image in read_images(path)] == [p.shape for p in pictures]
