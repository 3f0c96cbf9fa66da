"""Page-locking of memory that is passed by reference, with hooks that record what they get."""

import numpy as np
import pytest

from support.dds import Camera, Inbox, Locked, number_of


@pytest.fixture
def locked():
    """Tests name it first, so that subscriptions are closed before it is checked."""
    locked = Locked()
    yield locked
    assert not locked.pages


def test_memory_of_the_publisher_is_registered_before_its_first_message(
    locked, camera, here, subscribe
):
    inbox = Inbox(lambda message: (locked.holds(message), number_of(message)))
    subscription = subscribe(here, inbox, hooks=locked.hooks)
    for number in range(1, 40):
        camera.send(number)
        inbox.wait(number)
    assert inbox.messages == [(True, number) for number in range(1, 40)]
    assert sorted(locked.registered) == sorted(set(locked.registered))
    assert set(camera.addresses) <= set(locked.registered)
    subscription.close()
    assert not locked.pages


def test_memory_that_a_publisher_has_freed_is_unregistered_at_the_next_message(
    locked, here, subscribe
):
    inbox = Inbox(locked.holds)
    subscribe(here, inbox, hooks=locked.hooks)
    for size in range(1, 8):
        camera = Camera(here)
        for _ in range(4):
            camera.send(1, size * 10_000)
        inbox.wait(4 * size)
        camera.close()
    assert all(inbox.messages)
    # Those of the last camera and the one before, and the receive buffer.
    assert len(locked.pages) <= 2 * 4 + 2
    del camera


def test_memory_in_use_is_unregistered_when_it_is_dropped(locked, camera, here, subscribe):
    inbox = Inbox()
    subscription = subscribe(here, inbox, hooks=locked.hooks)
    camera.send(5)
    (message,) = inbox.wait(1)
    subscription.close()
    assert list(locked.pages) == [message.ctypes.data]
    part = message[10:20]
    inbox.messages.clear()
    del message
    assert list(locked.pages)
    del part
    assert not locked.pages


def test_two_subscriptions_register_for_themselves(locked, camera, here, subscribe):
    others = Locked()
    inboxes = [Inbox(each.holds) for each in (locked, others)]
    subscriptions = [
        subscribe(here, inbox, hooks=each.hooks) for inbox, each in zip(inboxes, (locked, others))
    ]
    camera.meets(2)
    for number in range(1, 10):
        camera.send(number)
        for inbox in inboxes:
            inbox.wait(number)
    subscriptions[1].close()
    assert not others.pages
    camera.send(10)
    assert inboxes[0].wait(10) == [True] * 10 == [*inboxes[1].messages, True]


def test_memory_outside_of_a_pool_is_not_registered(locked, camera, here, subscribe):
    inbox = Inbox(lambda message: (message.ctypes.data, number_of(message)))
    subscribe(here, inbox, hooks=locked.hooks)
    camera.writer.begin((3, 0), 'camera', (100, 1), 'mono8', channels=1)[:] = 3
    message = np.array(camera.writer.message)
    camera.publish(message)
    assert inbox.wait(1) == [(message.ctypes.data, 3)]
    assert message.ctypes.data not in locked.registered
