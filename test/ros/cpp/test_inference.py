"""Networks on images by pointer in the stock containers of rclcpp_components, also on a GPU."""

import signal
import time

from demo.scene import held_out
import numpy as np
import pytest

from support.cpp_containers import KINDS, MODEL, detections, load_camera, load_detector
from support.waiting import DEADLINE_SECONDS
from trt_ros import Pipeline

pytestmark = pytest.mark.cpp


@pytest.fixture(scope='module')
def picture(tmp_path_factory):
    """The pixels of a picture, and a file of them for the camera."""
    pixels = next(held_out(1))[0]
    path = tmp_path_factory.mktemp('pictures') / 'scene.bgr'
    path.write_bytes(pixels.tobytes())
    return pixels, str(path)


def load_both(container, backend, picture, **camera):
    """Load camera and detector; return the detector's id."""
    load_camera(container, picture=picture[1], **camera)
    return load_detector(container, parameters=[('backend', backend)]).unique_id


def centers(message):
    """Return the boxes of a Detection2DArray as sorted rows of class, center and size."""
    boxes = ((each.bbox, each.results[0].hypothesis.class_id) for each in message.detections)
    return sorted(
        (name, box.center.position.x, box.center.position.y, box.size_x, box.size_y)
        for box, name in boxes
    )


@pytest.mark.parametrize('kind', KINDS)
def test_detections_are_those_of_the_python_api(start, backend, picture, kind):
    container = start(kind)
    load_both(container, backend, picture)
    found = centers(detections(container, '/detector/detections').wait_for())
    container.says(f'backend {backend}')
    with Pipeline.open(MODEL, backend='onnxruntime') as pipeline:
        expected = pipeline(picture[0])
        names = [pipeline.class_names[label] for label in expected.labels]
    xyxy = expected.xyxy
    rows = sorted(
        (name, *(box[:2] + box[2:]) / 2, *(box[2:] - box[:2])) for name, box in zip(names, xyxy)
    )
    assert [row[0] for row in found] == [row[0] for row in rows] != []
    pixels = [np.array([row[1:] for row in each], float) for each in (found, rows)]
    np.testing.assert_allclose(*pixels, atol=2.0)  # FP16 on the GPU.


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM], ids=['SIGINT', 'SIGTERM'])
@pytest.mark.parametrize('kind', KINDS)
def test_a_signal_ends_the_container_while_a_network_runs(start, backend, picture, kind, number):
    container = start(kind)
    load_both(container, backend, picture, rate_hz=100.0)
    detections(container, '/detector/detections').wait_for()
    begin = time.monotonic()
    container.process.send_signal(number)
    assert container.process.wait(DEADLINE_SECONDS) == 0, container.node.log
    if backend != 'onnxruntime':  # On a machine without other load.
        assert time.monotonic() - begin < 5.0


def test_the_detector_is_loaded_and_unloaded_while_images_flow(start, backend, picture):
    container = start()
    loaded = load_both(container, backend, picture, rate_hz=100.0)
    for _ in range(3):
        inbox = detections(container, '/detector/detections')
        inbox.wait_for()
        container.peer.close_inbox(inbox)
        assert container.unload(loaded).success
        loaded = load_detector(container, parameters=[('backend', backend)]).unique_id
    detections(container, '/detector/detections').wait_for()
