"""Images by pointer in a C++ container, which a fake plays."""

from pathlib import Path
import threading
import weakref

import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image

from support.container_images import FakeImages, gray, image_of
from support.dds import RELIABLE, Camera, Inbox, number_of
from support.waiting import wait_until
from trt_ros.container.loading import INTRA_PROCESS, construct
from trt_ros.ros.dds.cdr import ImageView, read_image, read_stamp
from trt_ros.ros.dds.container_images import CONTAINER_IMAGES, image_node_name, images_of
from trt_ros.ros.qos import why_lost

MODEL = Path(__file__).parents[3] / 'trt_ros/demo/shapes.onnx'


@pytest.fixture
def images(here):
    """The images of the container that the node `here` is in."""
    here.container_images = FakeImages()
    return here.container_images


def test_image_is_the_memory_of_the_container_and_read_as_any_other(images, here, subscribe):
    inbox = Inbox()
    subscribe(here, inbox)
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    images.put(image_of(pixels, 7))
    (message,) = inbox.wait(1)
    view = read_image(message)
    assert view.data.ctypes.data == pixels.ctypes.data
    assert (read_stamp(message), view.frame_id, view.encoding) == ((7, 0), 'camera', 'bgr8')
    assert (view.height, view.width, view.step) == (2, 4, 12)
    assert view.data.tolist() == list(range(24))


def test_image_keeps_its_memory_allocated(images, here, subscribe):
    inbox = Inbox()
    subscribe(here, inbox)
    memory = np.zeros((1, 1, 3), np.uint8)
    is_allocated = weakref.ref(memory)
    images.put(image_of(memory))
    del memory
    pixels = inbox.wait(1)[0].data[:1]
    inbox.messages.clear()
    assert is_allocated() is not None
    del pixels
    wait_until(lambda: is_allocated() is None, 'the memory of the image to be freed')


@pytest.mark.parametrize('is_newest_only', [True, False])
def test_newest_waiting_image_or_all_are_delivered_and_lost_ones_counted(
    images, here, subscribe, is_newest_only
):
    inbox, lost, replaced = Inbox(number_of), Inbox(lambda: None), Inbox(lambda: None)
    more = {'on_replaced': replaced} if is_newest_only else {}
    subscribe(here, inbox, QoSProfile(depth=2), on_lost=lost, **more)
    images.put(*map(gray, range(5)))
    inbox.wait(1 if is_newest_only else 2)
    assert inbox.messages == ([4] if is_newest_only else [3, 4])
    assert (len(lost.messages), len(replaced.messages)) == (3, int(is_newest_only))


def test_images_of_python_nodes_come_by_pointer_and_not_through_dds(
    wire, images, camera, here, subscribe
):
    inbox = Inbox()
    subscribe(here, inbox)
    camera.send(1, nbytes=7)
    (image,) = inbox.wait(1)
    assert isinstance(image, ImageView)
    assert (image.stamp, image.frame_id, image.encoding) == ((1, 0), 'camera', 'mono8')
    assert (image.height, image.width, image.step) == (1, 7, 7)
    assert image.data.tolist() == [1] * 7
    assert wire.count == 0


def test_publisher_by_pointer_has_the_id_the_name_and_the_qos_of_its_dds_publisher(images, here):
    from trt_ros.ros.dds import transport

    qos = QoSProfile(depth=3, reliability=ReliabilityPolicy.BEST_EFFORT)
    camera = Camera(here, qos, topic='~/mask')
    with camera.publisher.handle:
        gid = transport.usable_rcl(here).gid_of(camera.publisher.handle)
    assert images.advertised == [('/here/mask', gid, False, 3)]
    camera.close()


def test_dds_serves_the_subscribers_that_none_serves_by_pointer(
    wire, images, camera, here, elsewhere, subscribe
):
    # To DDS, each subscription by pointer is a subscriber, too; this one stands for it.
    stand_in = elsewhere.create_subscription(Image, 'images', lambda _: None, RELIABLE)
    inbox, other = Inbox(number_of), Inbox(number_of)
    subscribe(here, inbox)
    camera.meets(1)
    for number in (1, 2):  # The number of subscribers is new with the first.
        camera.send(number)
    assert (inbox.wait(2), wire.count) == ([1, 2], 1)
    subscribe(elsewhere, other)
    camera.meets(2)

    def is_served():
        camera.send()  # Its own side may not be connected yet: DDS repeats it with the next one.
        return other.messages

    wait_until(is_served, 'an image')
    assert inbox.wait(camera.sent) == list(range(1, camera.sent + 1))
    assert other.wait(camera.sent - 2) == inbox.messages[2:]
    assert wire.count == camera.sent - 1
    elsewhere.destroy_subscription(stand_in)


def test_subscription_has_the_resolved_name_and_the_qos(images, here, subscribe):
    subscribe(here, Inbox(), QoSProfile(depth=3, reliability=ReliabilityPolicy.BEST_EFFORT))
    (first,) = images.opened
    assert (first.topic, first.is_reliable) == ('/images', False)


def test_incompatible_publishers_are_reported_by_policy(images, here, subscribe):
    reports = Inbox()
    subscribe(here, Inbox(), on_incompatible=reports)
    images.opened[-1].incompatible.append(int(QoSPolicyKind.RELIABILITY))
    images.wake(images.opened[-1])
    assert reports.wait(1) == [('RELIABILITY')]


def test_closing_ends_the_thread_and_may_be_repeated(images, here, subscribe):
    before = set(threading.enumerate())
    subscription = subscribe(here, Inbox())
    (thread,) = set(threading.enumerate()) - before
    subscription.close()
    subscription.close()
    assert not thread.is_alive()
    assert images.opened[-1].is_closed


def test_subscription_that_cannot_be_opened_leaves_nothing(images, here, subscribe):
    before = set(threading.enumerate())
    images.error = RuntimeError('no images here')
    with pytest.raises(RuntimeError, match='no images here'):
        subscribe(here, Inbox())
    assert set(threading.enumerate()) <= before


def test_only_intra_process_subscriptions_to_raw_images_are_by_pointer(images, here):
    volatile, kept = RELIABLE, QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    assert images_of(here, Image, volatile) is images
    assert images_of(here, CompressedImage, volatile) is None
    assert images_of(here, Image, kept) is None
    here.use_intra_process_comms = False
    assert images_of(here, Image, volatile) is None


def test_diagnosis_uses_the_qos_of_the_subscription_by_pointer(make_node, here, camera):
    hidden = make_node(image_node_name('here'), 0, by_reference=False)
    qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    hidden.create_subscription(Image, 'images', lambda _: None, qos)
    wait_until(lambda: here.get_subscriptions_info_by_topic('images'), 'the subscription')
    wait_until(lambda: here.get_publishers_info_by_topic('images'), 'the publisher')
    assert 'this node requests best_effort' in why_lost(here, 'images')


def test_detector_runs_on_images_by_pointer(contexts, here):
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import Parameter
    from vision_msgs.msg import Detection2DArray

    from trt_ros.nodes.detector import DetectorNode

    images = FakeImages()
    detector = construct(
        DetectorNode,
        {
            INTRA_PROCESS: True,
            CONTAINER_IMAGES: images,
            'context': contexts[0],
            'parameter_overrides': [
                Parameter('model_path', value=str(MODEL)),
                Parameter('autostart', value=True),
            ],
        },
    )
    inbox = Inbox(lambda message: message.header.stamp.sec)
    here.create_subscription(Detection2DArray, 'detector/detections', inbox, RELIABLE)
    executor = SingleThreadedExecutor(context=contexts[0])
    for node in (detector, here):
        executor.add_node(node)
    ending = threading.Event()

    def spin():
        while not ending.is_set():
            executor.spin_once(0.01)

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        wait_until(lambda: detector.state_label == 'active', 'the detector')
        wait_until(lambda: detector.count_subscribers('detector/detections'), 'the subscriber')
        wait_until(lambda: images.opened, 'the subscription to images')
        assert isinstance(image_of(np.zeros((4, 4, 3), np.uint8)).view(), ImageView)

        def is_detected():
            images.put(image_of(np.zeros((48, 64, 3), np.uint8), 3))
            return inbox.messages

        wait_until(is_detected, 'detections')
        assert set(inbox.messages) == {3}
    finally:
        ending.set()
        thread.join()
        detector.stop()
        executor.shutdown()
        detector.destroy_node()
    assert images.opened[-1].is_closed
