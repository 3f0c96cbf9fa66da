import numpy as np

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((200, 200), (200, 200), 'stretch')


def rows(*boxes, count=8, dtype=np.float32) -> np.ndarray:
    """Each (x1, y1, x2, y2, score, class); the rest of `count` is empty."""
    output = np.zeros((1, count, 6), dtype)
    output[0, : len(boxes)] = np.reshape(boxes, (-1, 6))
    return output


def decode(output, letterbox=WHOLE, *, score_threshold=0.25, max_detections=100):
    return open_as('yolov10', 'output0 (1, ?, 6)')(
        {'output0': output},
        letterbox,
        Thresholds(score=score_threshold, iou=0.45, max_detections=max_detections),
    )


def test_boxes_come_back_in_image_pixels_best_first():
    letterbox = Letterbox.fit((1280, 960), (640, 640), 'letterbox')
    found = decode(rows((40, 115, 60, 125, 0.5, 79), (0, 80, 64, 112, 0.75, 0)), letterbox)
    assert found.xyxy.tolist() == [[0, 0, 128, 64], [80, 70, 120, 90]]
    assert found.labels.tolist() == [0, 79]
    assert found.labels.dtype == np.int32
    assert found.scores.tolist() == [0.75, 0.5]


def test_rtdetr_of_ultralytics_gives_centers_of_0_to_1():
    letterbox = Letterbox.fit((400, 300), (100, 200), 'stretch')
    metadata = {'task': 'detect', 'head': 'RTDETRDecoder'}
    found = open_as('rtdetr', 'output0 (1, ?, 6)', **metadata)(
        {'output0': rows((0.5, 0.5, 0.25, 0.5, 0.75, 3))},
        letterbox,
        Thresholds(score=0.25, iou=0.45, max_detections=9),
    )
    assert (found.xyxy.tolist(), found.labels.tolist()) == ([[150, 75, 250, 225]], [3])


def test_overlapping_boxes_of_an_end_to_end_network_stay():
    found = decode(rows((10, 10, 30, 30, 0.9, 1), (10, 10, 30, 30, 0.8, 1)))
    assert len(found) == 2


def test_thresholds_apply():
    some = rows((10, 10, 30, 30, 0.5, 1), (40, 40, 60, 60, 0.25, 1), (70, 70, 90, 90, 0.2, 1))
    assert decode(some).scores.tolist() == [0.5, 0.25]
    assert decode(some, max_detections=1).scores.tolist() == [0.5]
