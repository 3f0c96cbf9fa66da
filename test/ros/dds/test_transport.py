"""Messages received without rclpy, over real DDS between the nodes of this process."""

import ctypes
import gc
from pathlib import Path
import threading
from types import SimpleNamespace

from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image

from support.dds import HeldInbox, Inbox, Locked, number_of, numbered
from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.ros.dds import rcl as rcl_module
from trt_ros.ros.dds.cdr import read_image
from trt_ros.ros.dds.rcl import MemoryHooks, Rcl, RclError, ReceiveBufferPool


class Logged:
    """All that was written to stderr since its construction, at each call."""

    def __init__(self, capfd):
        self.capfd, self.text = capfd, ''

    def __call__(self):
        self.text += self.capfd.readouterr().err
        return self.text


def test_messages_arrive_unchanged(publisher, subscribe_rcl):
    inbox = Inbox(lambda message: deserialize_message(message.tobytes(), Image))
    subscribe_rcl(inbox, publisher)
    sent = [Image(), numbered(1), numbered(2, 7), numbered(3, 6_000_000)]
    for image in sent:
        publisher.publish(image)
    assert inbox.wait(4) == sent


def test_message_is_read_only_and_memory_is_reused_after_release(publisher, subscribe_rcl):
    inbox = Inbox(
        lambda message: (message.ctypes.data, message.flags.writeable, number_of(message))
    )
    subscribe_rcl(inbox, publisher)
    for number in range(30):
        publisher.publish(numbered(number))
        inbox.wait(number + 1)
    addresses, are_writable, numbers = zip(*inbox.messages)
    assert numbers == tuple(range(30))
    assert not any(are_writable)
    assert len(set(addresses[1:])) == 1  # The first was too small and grew.


def test_kept_message_is_not_overwritten(publisher, subscribe_rcl):
    inbox = Inbox()
    subscribe_rcl(inbox, publisher)
    for number in range(12):
        # Larger and larger: memory grows while earlier messages are in use.
        publisher.publish(numbered(number, 20_000 * (number + 1)))
        inbox.wait(number + 1)
    kept = [read_image(message).data[:5] for message in inbox.messages]
    inbox.messages.clear()
    for number in range(30, 40):
        publisher.publish(numbered(number))
    inbox.wait(10)
    assert [part.tolist() for part in kept] == [[number] * 5 for number in range(12)]


def test_hooks_are_called_when_memory_is_allocated_and_before_it_is_freed(
    publisher, subscribe_rcl
):
    locked = Locked()
    inbox = Inbox(locked.holds)
    subscription = subscribe_rcl(inbox, publisher, hooks=locked.hooks)
    sizes = []
    for count, nbytes in enumerate([10_000, 100_000, 90_000, 500_000], start=1):
        publisher.publish(numbered(1, nbytes))
        inbox.wait(count)
        sizes.append([each.size for each in locked.pages.values()])
    assert inbox.messages == [True] * 4
    assert sizes == [[65536], [102400], [102400], [503808]]
    subscription.close()
    assert not locked.pages


def send_while_busy(publisher, subscribe_rcl, numbers, **options):
    """Send these while the first is in hand; return the inbox of the others."""
    inbox = HeldInbox()
    subscribe_rcl(inbox, publisher, **options)
    publisher.publish(numbered(0))
    assert inbox.has_begun.wait(DEADLINE_SECONDS)
    for number in numbers:
        publisher.publish(numbered(number))
    assert publisher.wait_for_all_acked(Duration(seconds=DEADLINE_SECONDS))
    inbox.may_end.set()
    return inbox


def test_newest_waiting_message_or_without_on_replaced_all_are_delivered(publisher, subscribe_rcl):
    replaced = Inbox(lambda: None)
    inbox = send_while_busy(publisher, subscribe_rcl, [1, 2, 3, 4], on_replaced=replaced)
    assert inbox.wait(1) == [4]
    assert len(replaced.messages) == 3
    assert send_while_busy(publisher, subscribe_rcl, [1, 2, 3, 4]).wait(4) == [1, 2, 3, 4]


def test_closing_wakes_the_thread_and_ends_it(publisher, subscribe_rcl):
    before = set(threading.enumerate())
    subscription = subscribe_rcl(Inbox(), publisher)
    assert len(threading.enumerate()) == len(before) + 1
    subscription.close()
    subscription.close()
    assert set(threading.enumerate()) == before
    assert publisher.get_subscription_count() == 0


def test_opening_and_closing_leaks_nothing(publisher, subscribe_rcl):
    def mappings():
        gc.collect()
        return len(Path('/proc/self/maps').read_text().splitlines())

    counts = []
    for number in range(12):
        inbox = Inbox(number_of)
        subscription = subscribe_rcl(inbox, publisher)
        publisher.publish(numbered(number))
        inbox.wait(1)
        subscription.close()
        counts.append(mappings())
    assert max(counts[6:]) <= max(counts[:6]) + 2


def test_a_message_in_use_outlives_the_subscription(publisher, subscribe_rcl):
    inbox = Inbox()
    subscription = subscribe_rcl(inbox, publisher)
    publisher.publish(numbered(9))
    inbox.wait(1)
    subscription.close()
    assert number_of(inbox.messages.pop()) == 9


def test_executor_is_not_used_and_incompatible_offer_is_reported(
    contexts, node, elsewhere, subscribe_rcl, publisher, capfd
):
    executor = SingleThreadedExecutor(context=contexts[0])
    executor.add_node(node)
    inbox = Inbox(number_of)
    taking = subscribe_rcl(inbox, publisher)._subscription
    # Its events would wake the executor for each message, again and again until it is taken.
    assert not any(map(executor.can_execute, [taking, *taking.event_handlers]))
    for number in range(20):
        publisher.publish(numbered(number))
    assert inbox.wait(20) == list(range(20))
    elsewhere.create_publisher(
        Image, 'images', QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    )
    logged = Logged(capfd)
    wait_until(
        lambda: executor.spin_once(0.01) or 'offering incompatible QoS' in logged(), 'a warning'
    )
    assert 'RELIABILITY' in logged()
    executor.shutdown()


def test_failed_take_leaks_no_memory_and_next_message_arrives(publisher, subscribe_rcl, capfd):
    addresses = []

    class Failing(Rcl):
        def take(self, subscription, c_bytes, info):
            addresses.append(c_bytes.buffer)
            is_taken = super().take(subscription, c_bytes, info)
            if is_taken and len(addresses) == 1:
                # As it is left where the middleware did not get the memory that it asked for.
                c_bytes.buffer, c_bytes.capacity = None, 300_000
                raise RclError('no luck')
            return is_taken

    inbox = Inbox(number_of)
    subscribe_rcl(inbox, publisher, by=Failing())
    publisher.publish(numbered(1, 7))
    logged = Logged(capfd)
    wait_until(lambda: 'no luck' in logged(), 'the error')
    publisher.publish(numbered(2, 7))
    assert inbox.wait(1) == [2]
    assert len(set(addresses)) == 1


def test_a_message_that_the_middleware_does_not_write_is_none(monkeypatch):
    lengths = [100, 0]

    def take(subscription, c_bytes, info, allocation):
        length = lengths.pop(0)
        c_bytes._obj.length = length or c_bytes._obj.length
        return rcl_module.OK

    rcl, pool = Rcl(), ReceiveBufferPool()
    monkeypatch.setattr(rcl, '_take', take)
    subscription = SimpleNamespace(pointer=None)
    assert pool.take(rcl, subscription).size == 100  # Its memory and length are used again.
    assert pool.take(rcl, subscription) is None
    pool.close()


def test_memory_sized_by_middleware_is_read_in_place(publisher, subscribe_rcl):
    resize = ctypes.CDLL(rcl_module.RCUTILS).rcutils_uint8_array_resize

    class Sizing(Rcl):
        def take(self, subscription, c_bytes, info):
            is_taken = super().take(subscription, c_bytes, info)
            if is_taken:  # As Cyclone DDS does, also where there is more room.
                assert resize(ctypes.byref(c_bytes), ctypes.c_size_t(c_bytes.length)) == 0
            return is_taken

    lent = []
    inbox = Inbox(number_of)
    hooks = MemoryHooks(lent.append, lambda memory: None)
    subscribe_rcl(inbox, publisher, hooks=hooks, by=Sizing())
    for number, nbytes in enumerate([7, 9000, 300_000, 20_000, 7]):
        publisher.publish(numbered(number, nbytes))
        assert inbox.wait(number + 1)[-1] == number
    assert len(lent) == 2  # The first, and the one that the third needs.
