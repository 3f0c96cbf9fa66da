"""Images by pointer in a C++ container, which a fake plays."""

import threading
import weakref

import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from vision_msgs.msg import Detection2DArray

from support.container_images import FakeImages, gray, image_of
from support.dds import RELIABLE, Inbox, number_of
from support.waiting import wait_until
from trt_ros.demo import MODEL
from trt_ros.nodes.detector import DetectorNode
from trt_ros.ros.dds.cdr import ImageView, read_image, read_stamp
from trt_ros.ros.dds.container_images import image_node_name, images_of
from trt_ros.ros.qos import why_lost


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


def test_publisher_by_pointer_has_the_id_the_name_and_the_qos_of_its_dds_publisher(
    images, here, rcl, make_camera
):
    qos = QoSProfile(depth=3, reliability=ReliabilityPolicy.BEST_EFFORT)
    handle = make_camera(here, qos, topic='~/mask').publisher.handle
    with handle:
        assert images.advertised == [('/here/mask', rcl.gid_of(handle), False, 3)]


def test_dds_serves_the_subscribers_that_none_serves_by_pointer(
    wire, images, camera, here, elsewhere, subscribe
):
    # To DDS, each subscription by pointer is a subscriber, too; this one stands for it.
    elsewhere.create_subscription(Image, 'images', lambda _: None, RELIABLE)
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


def test_incompatible_publishers_are_reported_by_policy(images, here, subscribe):
    reports = Inbox()
    subscribe(here, Inbox(), on_incompatible=reports)
    images.opened[-1].incompatible.append(int(QoSPolicyKind.RELIABILITY))
    images.wake(images.opened[-1])
    assert reports.wait(1) == ['RELIABILITY']


def test_subscription_has_name_and_qos_and_its_close_ends_the_thread(images, here, subscribe):
    before = set(threading.enumerate())
    qos = QoSProfile(depth=3, reliability=ReliabilityPolicy.BEST_EFFORT)
    subscription = subscribe(here, Inbox(), qos)
    (thread,), (opened,) = set(threading.enumerate()) - before, images.opened
    assert (opened.topic, opened.is_reliable, opened.is_closed) == ('/images', False, False)
    subscription.close()
    subscription.close()
    assert opened.is_closed and not thread.is_alive()


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


def test_detector_runs_on_images_by_pointer(start, elsewhere, subscribe):
    images, found = FakeImages(), Inbox(read_stamp)
    detector = start(DetectorNode, images=images, model_path=str(MODEL), autostart=True)
    subscribe(elsewhere, found, topic='detector/detections', kind=Detection2DArray)
    wait_until(lambda: images.opened, 'the subscription to images')

    def is_detected():
        images.put(image_of(np.zeros((48, 64, 3), np.uint8), 3))
        return found.messages

    wait_until(is_detected, 'detections')
    assert set(found.messages) == {(3, 0)}
    detector.stop()
    assert images.opened[-1].is_closed
