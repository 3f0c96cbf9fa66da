"""The tracker of Python programs and nodes."""

import numpy as np
import pytest

from support.objects import detections
from trt_ros.errors import ParameterError
from trt_ros.results.arrays import Depth
from trt_ros.results.boxes import Detections, OrientedBoxes
from trt_ros.results.poses import Poses
from trt_ros.tracking.tracker import Tracker


def boxes(x):
    return detections((x, 10, x + 20, 40), class_names=('cat',))


def poses(x):
    return Poses(boxes(x), np.zeros((1, 2, 3), np.float32))


def oriented(x):
    return OrientedBoxes(
        np.float32([[x, 25, 20, 30]]), np.float32([0.1]), np.float32([0.9]), np.int32([0])
    )


@pytest.mark.parametrize('method', ['ocsort', 'bytetrack'])
@pytest.mark.parametrize('of', [boxes, poses, oriented])
def test_objects_keep_their_ids_and_their_class(of, method):
    tracker = Tracker(method)
    tracked = [tracker(of(x)) for x in (10, 12, 14)]
    assert [each.ids_as_text() for each in tracked] == [[], ['1'], ['1']]
    assert all(type(each) is type(of(0)) for each in tracked)
    assert len(tracked[0]) == 0 and len(tracked[2]) == 1


def test_names_stay_with_the_objects_and_images_without_stamps_follow_at_the_rate():
    tracker = Tracker(min_hits=1)
    assert [(each.name, each.id) for each in tracker(boxes(10))] == [('cat', 1)]
    tracker = Tracker(min_hits=1)
    tracker(boxes(10))
    assert len(tracker.lost) == 0
    assert len(tracker(Detections.empty())) == 0
    assert (tracker.lost.ids_as_text(), tracker.lost.scores.tolist()) == (['1'], [0])
    for rate_hz, second_ns in ((0.5, 4_000_000_000), (30, 66_666_666)):
        tracker = Tracker(rate_hz=rate_hz, buffer_seconds=3.0)
        tracker(boxes(10))
        tracker(boxes(10))
        tracker(boxes(10), second_ns + 2_999_999_999)
        assert tracker.resets == 0
        tracker(boxes(10), second_ns + 6_100_000_000)
        assert tracker.resets == 1


def test_what_cannot_be_tracked_is_refused():
    with pytest.raises(ParameterError, match=r'does not exist.*\n.*ocsort'):
        Tracker('sort')
    for name, value in {
        'rate_hz': '15',
        'high_score': 2.0,
        'low_score': -0.1,
        'min_iou': '0.5',
        'min_similarity': np.nan,
        'buffer_seconds': -1.0,
        'min_hits': 0,
        'min_size': None,
        'across_classes': 'no',
    }.items():
        with pytest.raises(ParameterError, match=f"{name} is '?{value}'?\\..*\n.*Set it to"):
            Tracker(**{name: value})
    with pytest.raises(
        ParameterError, match=r'low_score is 0\.5, above high_score, which is 0\.25'
    ):
        Tracker(low_score=0.5)
    assert Tracker(high_score=0.05) and Tracker(high_score=0.5, low_score=0.5)
    for stamp_ns in ('1', np.nan, 1 << 70, 1.5, True):
        with pytest.raises(ParameterError, match=f"stamp_ns is '?{stamp_ns}'?\\."):
            Tracker()(boxes(10), stamp_ns)
    for options in ({'rate_hz': 0.5}, {'buffer_seconds': 0.03}):
        tracker = Tracker(**options)
        with pytest.raises(ParameterError, match=r'buffer_seconds is .* s by rate_hz'):
            tracker(boxes(10))
        assert not len(tracker(boxes(10), 0)) and len(tracker(boxes(10), 20_000_000))
    tracker = Tracker(high_score=np.array([0.5]), min_hits=1)  # One per detection.
    assert len(tracker(boxes(10), np.int64(1_500_000_000))) == 1
    with pytest.raises(ParameterError, match=r"no option 'hits'.*\n.*Did you mean 'min_hits'"):
        Tracker(hits=1)
    for found in (None, [[1, 2, 3, 4]], Depth(np.ones((2, 2), np.float32))):
        with pytest.raises(ParameterError, match=rf'tracker got a {type(found).__name__}\.'):
            Tracker()(found)
