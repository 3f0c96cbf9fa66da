"""Messages by reference within this process, beside real DDS to another context of it."""

import threading

import pytest
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from support.dds import RELIABLE, HeldInbox, Inbox, number_of
from support.shared_images import listen_elsewhere
from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.cdr import ImageWriter, read_image
from trt_ros.ros.dds.rcl import MemoryHooks
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.messages import ImageSender


def test_nothing_is_sent_without_subscribers(wire, camera, here, subscribe):
    camera.send(1)
    assert wire.count == 0
    assert not transport.should_publish(camera.publisher)
    subscribe(here, Inbox())
    assert transport.should_publish(camera.publisher)


def test_message_is_the_published_memory_and_read_only(camera, here, subscribe):
    inbox = Inbox()
    subscribe(here, inbox)
    camera.send(7)
    (message,) = inbox.wait(1)[:1]
    assert message.ctypes.data == camera.addresses[0]
    data = read_image(message).data
    with pytest.raises(ValueError, match='read-only'):
        data[0] = 1
    with pytest.raises(ValueError, match='WRITEABLE'):
        data.flags.writeable = True
    assert number_of(message) == 7


def test_published_picture_becomes_read_only(here, subscribe):
    sender = ImageSender(here, here.create_publisher(Image, 'images', RELIABLE))
    inbox = Inbox(lambda message: read_image(message).data)
    subscribe(here, inbox)
    for number in range(2):
        pixels = sender.begin(Header(), (4, 4))
        pixels[:] = number
        sender.send()
        with pytest.raises(ValueError, match='read-only'):
            pixels[:] = 9
    assert [data.tolist() for data in inbox.wait(2)] == [[0] * 48, [1] * 48]


def test_dds_is_bypassed_once_connection_is_verified(wire, camera, here, subscribe):
    inbox = Inbox(number_of)
    subscribe(here, inbox)
    camera.settle(inbox, wire)
    before = wire.count
    for number in range(1, 30):
        camera.send(number)
        inbox.wait(number)
    assert inbox.messages == list(range(1, 30))
    assert wire.count == before


def test_kept_message_is_not_overwritten_and_other_memory_is_reused(camera, here, subscribe):
    inbox = Inbox()
    subscribe(here, inbox)
    for number in range(5):
        camera.send(number)
        inbox.wait(number + 1)
    kept = inbox.messages[:]
    assert len({message.ctypes.data for message in kept}) == 5
    inbox.messages.clear()
    for number in range(5, 25):
        camera.send(number)
        inbox.wait(1)
        inbox.messages.clear()
    assert [number_of(message) for message in kept] == list(range(5))
    # Two take turns: the camera has let go of the last one when it takes memory for the next.
    assert len(set(camera.addresses[5:])) <= 3


def test_remote_subscriber_gets_each_message_without_local_duplicates(
    camera, here, elsewhere, subscribe
):
    near, far = Inbox(number_of), Inbox(number_of)
    subscribe(elsewhere, far)
    subscribe(here, near)
    camera.meets(2)
    for number in range(20):
        camera.send(number)
        near.wait(number + 1)
        far.wait(number + 1)
    assert camera.publisher.wait_for_all_acked(Duration(seconds=DEADLINE_SECONDS))
    assert near.messages == far.messages == list(range(20))


@pytest.mark.parametrize('path', ['by reference', 'shared memory'])
def test_temporary_remote_subscriber_is_served(
    wire, camera, here, elsewhere, subscribe, monkeypatch, path
):
    near, far = Inbox(number_of), Inbox(number_of)
    handle = camera.publisher.handle
    with handle:
        listen_elsewhere(wire.gid_of(handle))
    subscribe(here if path == 'by reference' else elsewhere, near)
    camera.settle(near, wire)
    monkeypatch.setenv('TRT_ROS_TRANSPORT', 'dds')
    there = subscribe(elsewhere, far)
    camera.meets(2)
    camera.send(1)
    assert (near.wait(1), far.wait(1)) == ([1], [1])
    there.close()
    camera.meets(1)
    before = wire.count
    camera.send(2)  # One has left, perhaps after this was passed on: DDS gets it, too.
    camera.send(3)
    assert near.wait(3) == [1, 2, 3]
    assert wire.count == before + 1


@pytest.mark.parametrize('who', ['publisher', 'subscriber'])
def test_node_without_intra_process_option_uses_dds(wire, node, here, subscribe, make_camera, who):
    inbox, nodes = Inbox(number_of), [node, here]
    sender, receiver = nodes if who == 'publisher' else nodes[::-1]
    camera = make_camera(sender)
    subscribe(receiver, inbox)
    camera.meets(1)
    for number in range(1, 4):
        camera.send(number)
    assert inbox.wait(3) == [1, 2, 3]
    assert wire.count == 3


def test_transient_local_messages_go_through_dds(here, subscribe, wire, make_camera):
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    sender, inbox = make_camera(here, latched), Inbox(number_of)
    assert transport.should_publish(sender.publisher)
    sender.send(5)
    subscribe(here, inbox, qos=latched)
    assert inbox.wait(1) == [5]
    assert wire.count == 1


def send_while_busy(camera, here, subscribe, numbers, **options):
    """Send these while the first is in hand; return the inbox of the others."""
    inbox = HeldInbox()
    subscribe(here, inbox, **options)
    camera.send(100, 10)
    assert inbox.has_begun.wait(DEADLINE_SECONDS)
    for number in numbers:
        camera.send(number)  # It returns although the subscriber does not.
    inbox.may_end.set()
    return inbox


@pytest.mark.parametrize(
    ('callback', 'depth', 'delivered'), [('on_replaced', 2, [5]), ('on_lost', 3, [3, 4, 5])]
)
def test_newest_waiting_message_or_those_of_the_depth_are_delivered_and_others_counted(
    camera, here, subscribe, callback, depth, delivered
):
    others = Inbox(lambda: None)
    options = {callback: others, 'qos': QoSProfile(depth=depth)}
    inbox = send_while_busy(camera, here, subscribe, [1, 2, 3, 4, 5], **options)
    assert inbox.wait(len(delivered)) == delivered
    assert len(others.messages) == 5 - len(delivered)


def test_messages_that_a_full_queue_replaced_are_missed(camera, here, subscribe):
    missed = []
    options = {'on_missed': missed.append, 'qos': QoSProfile(depth=3)}
    inbox = send_while_busy(camera, here, subscribe, [1, 2, 3, 4, 5], **options)
    assert inbox.wait(3) == [3, 4, 5]
    assert sum(missed) == 2


def test_a_subscription_whose_node_was_destroyed_ends(contexts, camera, capfd):
    node = Node('short', context=contexts[0])
    node.use_intra_process_comms = True
    inbox = Inbox(number_of)
    subscription = transport.subscribe_serialized(
        node, Image, 'images', RELIABLE, MessageCallbacks(inbox)
    )
    camera.send(1)
    assert inbox.wait(1) == [1]
    node.destroy_node()
    camera.send(2)
    subscription._thread.join(DEADLINE_SECONDS)
    assert not subscription._thread.is_alive()
    assert 'Traceback' not in capfd.readouterr().err
    subscription.close()


def test_message_by_reference_is_delivered_in_the_publishers_thread(camera, here, subscribe):
    threads, registered = [], []
    hooks = MemoryHooks(registered.append, lambda pages: None)
    subscribe(
        here,
        lambda _: None,  # The thread that takes a copy from DDS may deliver some.
        on_reference=lambda _: threads.append((threading.current_thread(), len(registered))),
        hooks=hooks,
    )
    this = threading.current_thread()
    wait_until(lambda: [camera.send(1), threads][1], 'a delivery in this thread')
    assert threads[-1][0] is this and threads[-1][1] > 0


def test_message_by_reference_reaches_what_starts_with_it_before_what_only_keeps_it(
    camera, here, subscribe
):
    order = []
    for name, is_first in (('kept', False), ('started', True), ('kept, too', False)):
        subscribe(
            here,
            lambda _: None,
            on_reference=lambda _, name=name: order.append(name),
            is_first=is_first,
        )
    camera.send(1)
    assert order == ['started', 'kept', 'kept, too']


def test_message_during_the_delivery_of_another_one_waits(camera, here, subscribe):
    inbox, here_too = Inbox(number_of), []

    def deliver(message):
        here_too.append(number_of(message))
        if len(here_too) == 1:  # This thread is not the only one that publishes.
            camera.send(2)

    subscribe(here, inbox, on_reference=deliver)
    camera.send(1)
    assert inbox.wait(1) == [2]
    assert here_too == [1]


def test_inactive_lifecycle_publisher_delivers_nothing(contexts, here, subscribe):
    node = LifecycleNode('managed', context=contexts[0], enable_rosout=False)
    node.use_intra_process_comms = True
    publisher = node.create_lifecycle_publisher(Image, 'images', RELIABLE)
    publish = transport.serialized_publish(node, publisher)
    inbox, writer = Inbox(number_of), ImageWriter()
    subscribe(here, inbox)
    for number, trigger in enumerate(
        (
            node.trigger_configure,
            node.trigger_activate,
            node.trigger_deactivate,
            node.trigger_activate,
        )
    ):
        trigger()
        writer.begin((number, 0), 'camera', (10, 1), 'mono8', channels=1)[:] = number
        publish(writer.message)
    assert inbox.wait(2) == [1, 3]
    node.destroy_lifecycle_publisher(publisher)
    node.destroy_node()
