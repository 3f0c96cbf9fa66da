"""What the demo counts, and when it says that it failed."""

from demo.tally import Sighting, Tally
import numpy as np
import pytest

from trt_ros.errors import TrtRosError
from trt_ros.results.boxes import Detections

XYXY = np.array([[0, 0, 10, 10], [20, 20, 40, 40]], np.float32)
LABELS = np.array([0, 3], np.int32)
BOTH = Detections(XYXY, np.array([0.9, 0.8], np.float32), LABELS)
FIRST = Detections(XYXY[:1], BOTH.scores[:1], LABELS[:1])
PICTURE = 77


def tally(*sightings: Sighting) -> Tally:
    counted = Tally({PICTURE: (XYXY, LABELS)})
    counted.add(sightings)
    return counted


def test_no_images_and_detections_in_the_wrong_places_are_a_failure():
    with pytest.raises(TrtRosError, match=r'Nothing was detected\.\nCause: 0 images'):
        tally().summary()
    elsewhere = Detections(BOTH.xyxy + 100, BOTH.scores, BOTH.labels)
    counted = tally(Sighting(PICTURE, elsewhere, 0.02))
    assert counted.wrong == 2
    with pytest.raises(TrtRosError, match='Fewer than half'):
        counted.summary()


def test_detections_are_counted_and_compared_in_received_images():
    summary = tally(
        Sighting(PICTURE, BOTH, 0.020),
        Sighting(PICTURE, FIRST, 0.030),
        Sighting(PICTURE, BOTH, 0.900),
    ).summary()
    assert summary == (
        '3 images, 5 detections; median latency 30 ms.\n'
        '5 of 6 drawn shapes were detected; false detections: 0.'
    )
    counted = tally(Sighting(None, BOTH, 0.02), Sighting(PICTURE, BOTH, 0.02))
    assert (counted.detections, counted.drawn, counted.right, counted.wrong) == (4, 2, 2, 0)
