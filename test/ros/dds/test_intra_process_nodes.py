"""Nodes of one process that pass images by reference."""

import threading

import cv2
import numpy as np
import pytest
from vision_msgs.msg import Detection2DArray

from support.dds import Inbox
from support.waiting import wait_until
from trt_ros.demo import MODEL
from trt_ros.nodes.detector import DetectorNode
from trt_ros.nodes.image_source import ImageSourceNode
from trt_ros.nodes.overlay import OverlayNode
from trt_ros.ros.dds.cdr import read_image
from trt_ros.ros.dds.cdr_detections import read_detections
from trt_ros.runtime.future import Future
from trt_ros.runtime.pipeline import Pipeline


@pytest.fixture
def pictures(tmp_path):
    cv2.imwrite(str(tmp_path / 'picture.png'), np.zeros((48, 64, 3), np.uint8))
    return {'source': str(tmp_path), 'rate_hz': 20.0}


def leaves_dds_alone(wire, counts):
    """Return whether nothing goes through DDS while each of the counters grows by a few."""
    sent, before = wire.count, [each.snapshot()[1] for each in counts]
    wait_until(
        lambda: all(each.snapshot()[1] > count + 3 for each, count in zip(counts, before)),
        'results',
    )
    return wire.count == sent


def test_source_detector_and_overlay_use_dds_only_for_remote_subscribers(
    start, elsewhere, wire, pictures, subscribe
):
    start(OverlayNode, 'detections:=detector/detections')  # It draws while it has a subscriber.
    counts = [start(DetectorNode, model_path=str(MODEL), autostart=True)._counts]
    start(ImageSourceNode, **pictures)
    wait_until(lambda: leaves_dds_alone(wire, counts), 'images and detections by reference')
    inbox = Inbox(lambda message: read_image(message).data.size)
    subscription = subscribe(elsewhere, inbox, topic='overlay/image')
    assert inbox.wait(3)[:3] == [48 * 64 * 3] * 3
    subscription.close()
    wait_until(lambda: leaves_dds_alone(wire, counts), 'images and detections by reference')


class LateDetector(DetectorNode):
    """A detector whose runs end later, as on a GPU; `threads` start and end them."""

    def __init__(self, **kwargs):
        super().__init__(open_pipeline=self.open_late, **kwargs)
        self.threads = []

    def open_late(self, *args, **kwargs):
        pipeline = Pipeline.open(*args, families=self.families, **kwargs)
        start = pipeline.start

        def begin(*run):
            self.threads.append(threading.current_thread())
            return Future(lambda: end(run))

        def end(run):
            self.threads.append(threading.current_thread())
            return start(*run).result()

        pipeline.start, pipeline.is_asynchronous = begin, True
        return pipeline


def test_run_of_an_image_by_reference_starts_in_the_publishers_thread(
    start, camera, elsewhere, subscribe
):
    given = {'model_path': str(MODEL), 'qos_reliability': 'reliable', 'autostart': True}
    detector, found = start(LateDetector, 'image:=images', **given), Inbox(read_detections)
    wait_until(lambda: detector.state_label == 'active', 'the detector')
    (results,) = detector.cameras[0]._publishers[:1]
    subscribe(elsewhere, found, topic=results.topic_name, kind=Detection2DArray)
    wait_until(results.get_subscription_count, 'a subscriber')
    camera.send(nbytes=64)
    assert found.wait(1)
    begun, ended = detector.threads
    assert begun is threading.current_thread() is not ended


def test_two_cameras_of_one_detector_need_no_dds(start, wire, pictures):
    topics = ['left', 'right']
    detector = start(DetectorNode, model_path=str(MODEL), image_topics=topics, autostart=True)
    for name in topics:
        start(ImageSourceNode, f'__node:={name}_camera', f'image:={name}', **pictures)
    wait_until(lambda: detector.state_label == 'active', 'the detector')
    counts = [camera.counts for camera in detector.cameras]
    wait_until(lambda: leaves_dds_alone(wire, counts), 'images by reference')
