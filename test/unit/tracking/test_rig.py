"""Tracks of a ring of cameras in one frame, from rendered depth images."""

from functools import cache

import numpy as np
import pytest

from support.rig_scenes import CAMERA, CAMERAS, WALKERS, detect, look, pose
from trt_ros.results.boxes import Detections
from trt_ros.tracking.tracker import METHODS
from trt_ros.vision.boxes_3d import DepthScene, box_corners, enclosing_boxes
from trt_ros.vision.upright_boxes import quaternion_of


@cache
def locate(camera, seconds, walkers):
    """Measure what a camera sees, in the frame of the rig."""
    scene = look(camera, seconds, walkers)
    found = detect(scene, len(walkers))
    rotation, place = pose(camera)
    boxes = np.array(list(found.values())).reshape(-1, 5)
    measured = DepthScene(scene.depth(noise=0.005, seed=camera), CAMERA).measure(
        boxes, np.arange(len(boxes))
    )
    has = measured.has_depth
    centers = measured.centers[has].astype(float) @ rotation.T + place
    turns = np.tile(quaternion_of(rotation), (len(centers), 1))
    corners = box_corners(centers, measured.sizes[has].astype(float), turns)
    count = len(centers)
    enclosing = enclosing_boxes(corners, np.ones(count, bool))
    return Detections(enclosing, np.full(count, 0.9), np.zeros(count, np.int32))


def nearest(center, seconds, walkers):
    places = np.array([each.place(seconds) for each in walkers])
    distances = np.hypot(*(places - center)[:, :2].T)
    return int(distances.argmin()), float(distances.min())


@pytest.mark.slow
@pytest.mark.parametrize(('method', 'late'), [*zip(METHODS, [0.05, 0.0])])
def test_one_object_has_one_identity_all_around_the_rig(method, late):
    tracker, rng = METHODS[method](in_space=True), np.random.default_rng(3)
    owners, cameras = {}, {}
    for step in range(65):
        now = 10 + step / 5
        for camera in rng.permutation(CAMERAS):
            stamp = now - (late if camera == 2 else 0.0)
            found = locate(camera, stamp, WALKERS)
            tracks = tracker.update(found, round(stamp * 1e9), camera=int(camera))
            ids, centers, _ = tracker.centers()
            near = [nearest(each, tracker.stamp_ns * 1e-9, WALKERS) for each in centers]
            assert all(distance < 0.4 for _, distance in near)
            assert len({owner for owner, _ in near}) == len(near)  # Neither twice nor fused.
            owners.update(zip(ids.tolist(), (owner for owner, _ in near)))
            for each in tracks.ids.tolist():
                cameras.setdefault(each, set()).add(int(camera))
    assert sorted(owners.values()) == [0, 1, 2, 3]
    # Three went around once, across all borders; the other one more than half of it.
    assert sorted(len(each) for each in cameras.values())[1:] == [6, 6, 6]


def test_a_camera_does_not_end_the_tracks_of_another():
    tracker = METHODS['ocsort'](in_space=True)
    here = Detections(np.array([[1, 0, 0, 2, 1, 1.0]]), np.array([0.9]), np.zeros(1, np.int32))
    nothing = Detections(np.zeros((0, 6)), np.zeros(0), np.zeros(0, np.int32))
    for number, (found, camera) in enumerate([(here, 0), (nothing, 1), (here, 0), (nothing, 1)]):
        tracker.update(found, 10**7 * number, camera=camera)
    assert [each.tolist() for each in tracker.centers()] == [[1], [[1.5, 0.5, 0.5]], [False]]
    tracker.update(nothing, 10**8, camera=0)
    assert tracker.centers()[2].tolist() == [True]
    tracker.update(here, 10**8 - 2 * 10**9, camera=0)  # Later than the buffer: a time jump.
    assert (tracker.resets, len(tracker.centers()[0])) == (1, 0)
