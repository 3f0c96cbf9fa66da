"""Nodes of one process that pass images by reference."""

from pathlib import Path
import threading

import cv2
import numpy as np
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from support.dds import RELIABLE, Camera, Inbox
from support.waiting import wait_until
from trt_ros.container.loading import INTRA_PROCESS, construct
from trt_ros.nodes.detector import DetectorNode
from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.cdr import read_image
from trt_ros.ros.dds.cdr_detections import read_detections
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.runtime.future import Future
from trt_ros.runtime.pipeline import Pipeline

MODEL = Path(__file__).parents[3] / 'trt_ros/demo/shapes.onnx'


@pytest.fixture
def spin(contexts):
    """Construct nodes as the container does, and spin them until the end of the test."""
    executor = SingleThreadedExecutor(context=contexts[0])
    ending, nodes = threading.Event(), []

    def spin_on():
        while not ending.is_set():
            executor.spin_once(0.01)

    thread = threading.Thread(target=spin_on)

    def start(cls, *remaps, **parameters):
        nodes.append(
            construct(
                cls,
                {
                    INTRA_PROCESS: True,
                    'context': contexts[0],
                    'cli_args': [
                        '--ros-args',
                        '-r',
                        '__ns:=/by_reference',
                        *(part for each in remaps for part in ('-r', each)),
                    ],
                    'parameter_overrides': [
                        Parameter(name, value=value) for name, value in parameters.items()
                    ],
                },
            )
        )
        executor.add_node(nodes[-1])
        if not thread.is_alive():
            thread.start()
        return nodes[-1]

    yield start
    ending.set()
    thread.join()
    for node in reversed(nodes):
        node.stop()
    executor.shutdown()
    for node in reversed(nodes):
        node.destroy_node()
    assert intra.count_buffers() == 0


def test_source_detector_and_overlay_use_dds_only_for_remote_subscribers(
    spin, elsewhere, wire, tmp_path
):
    from trt_ros.nodes.image_source import ImageSourceNode
    from trt_ros.nodes.overlay import OverlayNode

    picture = np.zeros((48, 64, 3), np.uint8)
    cv2.imwrite(str(tmp_path / 'picture.png'), picture)
    overlay = spin(OverlayNode, 'detections:=detector/detections')
    spin(DetectorNode, model_path=str(MODEL), autostart=True)
    spin(ImageSourceNode, source=str(tmp_path), rate_hz=20.0)

    def drawn():
        return overlay._counts.snapshot()[1]

    def is_dds_left_alone():
        sent, count = wire.count, drawn()
        wait_until(lambda: drawn() > count + 3, 'drawn images')
        return wire.count == sent

    wait_until(is_dds_left_alone, 'images and detections by reference')
    inbox = Inbox(lambda message: read_image(message).data.size)
    subscription = transport.subscribe_serialized(
        elsewhere, Image, '/by_reference/overlay/image', RELIABLE, MessageCallbacks(inbox)
    )
    assert inbox.wait(3)[:3] == [picture.size] * 3
    subscription.close()
    wait_until(is_dds_left_alone, 'images and detections by reference')


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


def test_run_of_an_image_by_reference_starts_in_the_publishers_thread(spin, contexts, elsewhere):
    detector = spin(
        LateDetector, model_path=str(MODEL), qos_reliability='reliable', autostart=True
    )
    wait_until(lambda: detector.state_label == 'active', 'the detector')
    camera = rclpy.create_node('camera', context=contexts[0], namespace='by_reference')
    camera.use_intra_process_comms = True
    found, results = Inbox(read_detections), detector.cameras[0]._publishers[0]
    subscription = transport.subscribe_serialized(
        elsewhere,
        Detection2DArray,
        results.topic_name,
        RELIABLE,
        MessageCallbacks(found),
    )
    images = Camera(camera, topic='image')
    wait_until(results.get_subscription_count, 'a subscriber')
    images.send(nbytes=64)
    assert found.wait(1)
    begun, ended = detector.threads
    assert begun is threading.current_thread() is not ended
    subscription.close()
    images.close()
    camera.destroy_node()


def test_two_cameras_of_one_detector_need_no_dds(spin, wire, tmp_path):
    from trt_ros.nodes.image_source import ImageSourceNode

    cv2.imwrite(str(tmp_path / 'picture.png'), np.zeros((48, 64, 3), np.uint8))
    detector = spin(
        DetectorNode, model_path=str(MODEL), image_topics=['left', 'right'], autostart=True
    )
    for name in ('left', 'right'):
        spin(
            ImageSourceNode,
            f'__node:={name}_camera',
            f'image:={name}',
            source=str(tmp_path),
            rate_hz=20.0,
        )
    wait_until(lambda: detector.state_label == 'active', 'the detector')

    def is_dds_left_alone():
        def done():
            return [camera.counts.snapshot()[1] for camera in detector.cameras]

        sent, before = wire.count, done()
        wait_until(lambda: min(np.subtract(done(), before)) > 3, 'detections of both')
        return wire.count == sent

    wait_until(is_dds_left_alone, 'images by reference')
