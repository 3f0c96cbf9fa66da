"""Images through shared memory between real processes, also those that are killed."""

from contextlib import closing, suppress
import fcntl
from functools import partial
import gc
import os
from pathlib import Path
from queue import Empty, Queue
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from rclpy.exceptions import InvalidHandle
from sensor_msgs.msg import Image

from support.dds import RELIABLE, Camera, Inbox, number_of
from support.shared_images import NBYTES, listen_elsewhere
from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.errors import BadFrameError
from trt_ros.ros.dds import shared_receiver
from trt_ros.ros.dds.memory import Pool, allocate_shared, map_shared, pool_memory_of
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.shared_memory import NOTICE, NUMBER, SharedPublisher, address
from trt_ros.ros.dds.shared_receiver import SharedReceiver
from trt_ros.ros.dds.transport import subscribe_serialized


@pytest.fixture
def gid():
    return os.urandom(16)


def is_shared(message):
    return pool_memory_of(message) is not None


def mapped():
    """Return the number of mappings of shared memory of this process."""
    return Path('/proc/self/maps').read_text().count('memfd:trt_ros')


def links(process):
    """Return what the descriptors of a process refer to."""
    found = []
    for each in Path(f'/proc/{process}/fd').iterdir():
        with suppress(FileNotFoundError):  # Closed meanwhile.
            found.append(os.readlink(each))
    return found


def descriptors():
    """Return the number of descriptors of shared memory of this process."""
    return sum('memfd:trt_ros' in each for each in links('self'))


def sockets(process):
    """Return the names that a process listens at."""
    lines = [line.split() for line in Path('/proc/net/unix').read_text().splitlines()]
    named = [line[6:] for line in lines if len(line) > 7 and '@trt_ros/' in line[7]]
    return {name for inode, name in named if f'socket:[{inode}]' in links(process)}


def deliver(publisher, message, subscriptions=1):
    """Lend a message; return the number of DDS subscriptions that do not need it."""
    publisher.lend(message)
    return publisher.settle(subscriptions)


def open_receiver(max_loans, is_newest_only=True, on_ready=None, on_due=None):
    def ignore(_):
        return None

    return SharedReceiver(
        max_loans,
        is_newest_only,
        on_ready or ignore,
        on_due or ignore,
        on_memory=lambda memory: None,
        attempt=lambda work: work() is None,
    )


def is_left(names):
    """Return whether a name is still in use."""
    return any(each in Path('/proc/net/unix').read_text() for each in names)


def has_files(process):
    """Return whether a process has mapped shared memory that would outlive it."""
    return '/dev/shm/trt_ros' in Path(f'/proc/{process}/maps').read_text()


@pytest.fixture(scope='module')
def camera(other):
    """Return another process that publishes."""
    return other('publish')


def test_each_image_arrives_once_and_in_order_without_dds(node, subscribe, camera):
    inbox = Inbox()
    subscribe(node, inbox)
    through_dds = camera.settle(inbox)
    for number in range(1, 40):
        assert camera.send(number) == through_dds
        assert is_shared(inbox.wait(1)[0])
        assert number_of(inbox.messages.pop()) == number
    assert mapped() < 6  # The memory is reused.


def test_kept_images_stay_whole_and_those_beyond_the_limit_come_through_dds(
    node, subscribe, camera
):
    inbox = Inbox()
    subscribe(node, inbox)
    before = camera.settle(inbox)
    numbers = list(range(1, 70))  # More than the subscription may hold, 2 * 20 + 4.
    for number in numbers:
        through_dds = camera.send(number) - before
        messages = inbox.wait(number)
    assert list(map(number_of, messages)) == numbers
    assert sum(map(is_shared, messages)) == len(numbers) - through_dds == 44
    del messages
    inbox.messages.clear()
    camera.settle(inbox)


def test_a_subscriber_through_dds_beside_gets_each_image_as_well(
    node, elsewhere, subscribe, camera, monkeypatch
):
    near, far = Inbox(lambda message: (number_of(message), is_shared(message))), Inbox(number_of)
    subscribe(node, near)
    wait_until(lambda: camera.send(0) == camera.send(0) and near.messages)
    monkeypatch.setenv('TRT_ROS_TRANSPORT', 'dds')
    subscribe(elsewhere, far)
    wait_until(lambda: camera.send(0) < camera.send(0) and far.messages, 'both subscribers')
    for number in range(1, 20):
        camera.send(number)
    wait_until(lambda: 19 in far.messages and (19, True) in near.messages)
    assert far.messages[-19:] == list(range(1, 20))
    # Earlier ones that came through DDS may be later.
    numbered = [each for each in near.messages if each[0]]
    assert numbered == [(number, True) for number in range(1, 20)]


def test_the_code_that_reads_an_image_is_rehearsed_before_the_next_one(node, subscribe, camera):
    inbox, rehearsed, sent = Inbox(), [], 0

    def rehearse(message):
        rehearsed.append(message.copy())
        raise BadFrameError('zero size', 'The last image was bad.')

    subscribe(node, inbox, rehearse=rehearse)
    camera.settle(inbox)

    def is_rehearsed():
        nonlocal sent
        camera.send(7)
        sent += 1
        return len(rehearsed) > 3

    wait_until(is_rehearsed, 'rehearsals')
    messages = inbox.wait(sent)
    assert len(messages) == sent and set(map(number_of, messages)) == {7}
    message, like = messages[-1], rehearsed[-1]
    start = message.size - NBYTES
    assert like.size == message.size and not like[4096:].any()
    assert (like[start:4096] == message[start:4096]).all()


def test_images_of_all_sizes_are_rehearsed_in_the_same_memory(node, subscribe):
    likes = []
    subscription = subscribe(node, Inbox(), rehearse=likes.append)
    for number, size in enumerate((9000, 5000, 100, 9000)):
        message = np.full(size, number, np.uint8)
        subscription._rehearse_shared(iter([message]).__next__)
        assert likes[-1].size == size
        assert set(likes[-1][:4096]) == {number} and not likes[-1][4096:].any()
    assert all(np.shares_memory(each, likes[0]) for each in likes)


def lending_thread(subscription):
    """Return the thread that waits for the images of its only publisher."""
    (lender,) = subscription._shared._lenders.values()
    return lender.thread


def test_the_end_of_the_context_ends_the_thread_of_a_publisher(unchecked, subscribe, camera):
    inbox = Inbox()
    subscription = subscribe(unchecked, inbox)
    camera.settle(inbox)
    thread = lending_thread(subscription)
    assert thread.is_alive()
    unchecked.context.shutdown()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


def test_images_after_one_that_could_not_be_taken_arrive_until_the_node_is_destroyed(
    node, subscribe, camera, capfd
):
    # Not errors themselves, whose tracebacks would keep their images.
    inbox, errors = Inbox(), {1002: ValueError, 1004: InvalidHandle}

    def receive(message):
        number = number_of(message)
        if number in errors:
            raise errors[number]('an odd image')
        inbox(message)

    subscription = subscribe(node, receive)
    camera.settle(inbox)
    thread = lending_thread(subscription)
    for number in (1002, 1003):
        camera.send(number)
    assert number_of(inbox.wait(1)[0]) == 1003
    assert 'an odd image' in capfd.readouterr().err
    camera.send(1004)
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


def test_an_image_that_its_receiver_keeps_does_not_keep_the_receiver(node, camera):
    inbox = Inbox()
    subscription = subscribe_serialized(node, Image, 'images', RELIABLE, MessageCallbacks(inbox))
    camera.settle(inbox)
    camera.send(7)
    assert is_shared(inbox.wait(1)[0])
    subscription.close()
    kept = weakref.ref(inbox)
    del inbox, subscription
    gc.collect()
    assert kept() is None


def test_dds_alone_on_request(node, subscribe, other):
    inbox, camera = Inbox(), other('publish', TRT_ROS_TRANSPORT='dds')
    subscribe(node, inbox)
    wait_until(lambda: camera.send(1) and inbox.messages)
    for _ in range(5):
        camera.send(1)
    assert not any(map(is_shared, inbox.wait(6)))


def test_a_killed_publisher_leaves_nothing_and_its_successor_is_received(node, subscribe, other):
    before = mapped(), descriptors()
    inbox, camera = Inbox(), other('publish')
    subscription = subscribe(node, inbox)
    camera.settle(inbox)
    camera.send(7)
    (kept,) = inbox.wait(1)
    used = sockets(camera.process.pid)
    assert len(used) == 1 and is_left(used) and not has_files(camera.process.pid)
    camera.kill()
    assert not is_left(used)
    assert number_of(kept) == 7  # As it was.
    inbox.messages.clear()
    successor = other('publish')
    successor.settle(inbox)
    successor.kill()
    del kept
    subscription.close()
    inbox.messages.clear()
    assert (mapped(), descriptors()) == before


def is_shared_with(other, camera):
    """Return whether another process gets an image through shared memory."""
    camera.send(1, NBYTES)
    with suppress(Empty):  # It may not know the camera yet.
        return other.received(1.0)[1] == 'shared'


def test_a_killed_subscriber_leaves_nothing_and_the_others_go_on(node, subscribe, other):
    before, others = (mapped(), descriptors()), sockets('self')
    camera = Camera(node)
    killed, remaining = other('receive'), other('receive')
    camera.meets(2)
    for each in (killed, remaining):
        wait_until(partial(is_shared_with, each, camera), 'shared memory')
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait(DEADLINE_SECONDS)
    # `killed` held memory, and `remaining` keeps all messages, of which it may hold 44.
    for number in range(2, 30):
        camera.send(number, NBYTES)
        while (found := remaining.received()) != (number, 'shared'):
            assert found[0] < number
    remaining.close()
    camera.send(40, NBYTES)
    assert mapped() <= before[0] + 4
    used = sockets('self') - others
    assert not has_files('self')
    camera.close()
    del camera, each
    assert used and not is_left(used)
    assert (mapped(), descriptors()) == before


OTHER_USER = """
import os, socket, sys
os.setuid(65534)
end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if sys.argv[1] == 'subscriber':
    end.connect('\\0trt_ros/' + sys.argv[2])
    end.send(bytes([9, 0, 0, 0, 0, 0, 0, 0]))
    print(flush=True)
else:
    end.bind('\\0trt_ros/' + sys.argv[2])
    end.listen()
    print(flush=True)
    end, _ = end.accept()
try:
    print(end.recv(100))
except ConnectionResetError:  # Closed with what was sent unread.
    print(b'')
"""


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root to become another user')
@pytest.mark.parametrize('side', ['subscriber', 'publisher'])
def test_another_user_is_refused(gid, side):
    lines = []
    publisher = SharedPublisher(gid, lines.append) if side == 'subscriber' else None
    process = subprocess.Popen(
        [sys.executable, '-c', OTHER_USER, side, gid.hex()], stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    if publisher:
        assert [deliver(publisher, Pool().take(100)) for _ in range(2)] == [0, 0]
        (line,) = lines
        assert f'Process {process.pid} of user 65534 gets images through DDS' in line
    else:
        receiver = open_receiver(9, False)
        assert not receiver.is_copy(gid, 0) and not list(receiver.take())
        receiver.close()
    assert process.communicate(timeout=DEADLINE_SECONDS)[0] == "b''\n"


@pytest.fixture
def pair(gid):
    """Return both ends in this process, as if they were in two."""
    publisher, receiver = SharedPublisher(gid, pytest.fail), open_receiver(4)
    listen_elsewhere(gid)
    assert not receiver.is_copy(gid, 0)
    assert deliver(publisher, Pool().take(1)) == 0  # It accepts the receiver.
    yield publisher, receiver
    receiver.close()


def test_a_message_that_a_thread_waits_for_arrives_once_and_in_order(gid):
    taking, go_on = Queue(), threading.Semaphore(0)

    def on_ready(take):
        taking.put(take)
        go_on.acquire()

    publisher, pool = SharedPublisher(gid, pytest.fail), Pool(is_shared=True)
    messages = [pool.take(8) for _ in range(5)]
    for number, message in enumerate(messages):
        message[:] = number
    with closing(open_receiver(8, on_ready=on_ready)) as receiver:
        listen_elsewhere(gid)
        receiver.is_copy(gid, 0)
        deliver(publisher, messages[0])
        for number in (1, 2):  # The first messages bring their memory.
            deliver(publisher, messages[number])
        take = taking.get(timeout=DEADLINE_SECONDS)
        assert [each[0] for each in receiver.take()] == [1, 2]
        assert take() is None
        go_on.release()
        for number in (1, 2):  # Now the thread has seen what it waits for.
            deliver(publisher, messages[number])
            assert taking.get(timeout=DEADLINE_SECONDS)()[0] == number
            deliver(publisher, messages[3 - number])
            assert [each[0] for each in receiver.take()] == [3 - number]
            go_on.release()
        go_on.release(100)


def test_a_message_is_due_a_period_after_the_last_one(gid, monkeypatch):
    events, stamp = Queue(), time.time_ns()

    def time_ns():
        if threading.current_thread() is not threading.main_thread():
            events.put('wait')
        return stamp  # It stays at the last publication.

    monkeypatch.setattr(time, 'time_ns', time_ns)

    def on_ready(take):
        taken = 0
        while take() is not None:
            taken += 1
        for _ in range(taken):  # At the end: the next one is published then.
            events.put('message')

    publisher, message = SharedPublisher(gid, pytest.fail), Pool(is_shared=True).take(8)
    receiver = open_receiver(8, on_ready=on_ready, on_due=lambda take: events.put('due'))
    with closing(receiver):
        listen_elsewhere(gid)
        receiver.is_copy(gid, 0)
        deliver(publisher, message)  # It accepts the receiver.
        deliver(publisher, message)  # It brings its memory, which the thread may see before it.
        while events.get(timeout=DEADLINE_SECONDS) == 'wait':
            pass
        assert events.get(timeout=DEADLINE_SECONDS) == 'wait'
        # Too fast to need it, too slow to be foreseen, then 50 ms.
        for period_ms, expected in [(5, 2), (300, 2), (50, 3), (5, 2), (50, 3)]:
            stamp += period_ms * 1_000_000
            deliver(publisher, message)
            found = [events.get(timeout=DEADLINE_SECONDS) for _ in range(expected)]
            assert found == ['message', 'wait', 'due'][:expected]
        assert events.empty()


def test_processes_lend_nothing_to_themselves(gid):
    publisher = SharedPublisher(gid, pytest.fail)
    with closing(open_receiver(4)) as receiver:
        assert not receiver.is_copy(gid, 0)
        for _ in range(2):
            assert deliver(publisher, Pool(is_shared=True).take(1)) == 0
        assert receiver.take() == []


def test_memory_that_the_publisher_has_freed_is_unmapped(pair):
    publisher, receiver = pair
    before, pool = mapped(), Pool(is_shared=True)
    for nbytes in range(1 << 16, 1 << 20, 1 << 16):
        message = pool.take(nbytes)
        message[:] = 7
        assert deliver(publisher, message) == 1
        (taken,) = receiver.take()
        assert taken.size == nbytes and (taken == 7).all()
        with pytest.raises(ValueError, match='WRITEABLE'):
            taken.flags.writeable = True
        del taken, message
    assert mapped() <= before + 4  # Two pieces of memory, at both ends.


def test_images_kept_beyond_the_subscription_stay_whole(pair):
    publisher, receiver = pair
    pool, message = Pool(is_shared=True), None
    kept = []
    for number in range(1, 20):
        del message  # Otherwise its memory would still be in use.
        message = pool.take(1 << 16)
        message[:] = number
        deliver(publisher, message)
        if number < 4:
            kept += receiver.take()
        elif number == 4:
            receiver.close()
    assert [set(each) for each in kept] == [{1}, {2}, {3}]


def test_copies_are_known_by_the_time_of_publication(gid, pair):
    publisher, receiver = pair
    began = time.time_ns()
    messages = [Pool(is_shared=True).take(10) for _ in range(6)]
    assert [deliver(publisher, each) for each in messages] == [1, 1, 1, 1, 0, 0]
    ended = time.time_ns()
    kept = list(receiver.take())
    assert not receiver.is_copy(gid, ended)
    assert receiver.is_copy(gid, began)  # Older than the last one.
    kept.clear()
    assert deliver(publisher, messages[0]) == 1
    assert receiver.is_copy(gid, time.time_ns())
    del kept[:], receiver.take()[:]


def test_copies_are_known_after_the_clock_was_set_back(gid, pair, monkeypatch):
    publisher, receiver = pair
    message, stamp = Pool(is_shared=True).take(1), time.time_ns()
    monkeypatch.setattr(time, 'time_ns', lambda: stamp)
    deliver(publisher, message)
    del receiver.take()[:]
    stamp -= 3_600_000_000_000
    deliver(publisher, message)
    assert receiver.is_copy(gid, stamp + 1)


@pytest.mark.filterwarnings('ignore:.*fork:DeprecationWarning')
def test_a_forked_process_returns_no_image_that_its_parent_reads(pair):
    publisher, receiver = pair
    message = Pool(is_shared=True).take(8)
    deliver(publisher, message)
    (taken,) = receiver.take()
    child = os.fork()
    if not child:
        del taken
        os._exit(0)
    os.waitpid(child, 0)
    for _ in range(2):
        deliver(publisher, message)
    (lender,), (borrower,) = receiver._lenders.values(), publisher.borrowers
    assert 1 in borrower._lent
    del taken, lender
    deliver(publisher, message)
    assert 1 not in borrower._lent


def test_only_images_that_came_are_returned(gid):
    pages, fd = allocate_shared(100)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address(gid))
        listen_elsewhere(gid)
        receiver = open_receiver(4)
        assert not receiver.is_copy(gid, 0)
        end, _ = listener.accept()
        with end:
            assert NUMBER.unpack(end.recv(8)) == (4,)
            end.send(NUMBER.pack(1))
            socket.send_fds(end, [b'.'], [fd])
            for number, loan in enumerate((1, 2, 3, 2**64 - 1)):
                pages[:] = number
                end.send(NOTICE.pack(number, loan, 1, 100))
                (taken,) = receiver.take()
                assert taken.tolist() == [number] * 100
                del taken
            end.send(NUMBER.pack(-1))  # The memory is freed, with the next image prepared in it.
            assert receiver.take() == []
            receiver.close()
            assert [NUMBER.unpack(end.recv(8))[0] for _ in range(4)] == [1, 2, 3, -1]
            assert end.recv(8) == b''
    os.close(fd)


def test_wrong_notices_end_the_connection(gid, monkeypatch):
    monkeypatch.setattr(shared_receiver, '_MEMORY_SECONDS', 0.01)
    _, fd = allocate_shared(100)
    empty = os.memfd_create('empty', os.MFD_ALLOW_SEALING)
    fcntl.fcntl(empty, fcntl.F_ADD_SEALS, fcntl.fcntl(fd, fcntl.F_GET_SEALS))
    loose = os.memfd_create('loose')
    os.ftruncate(loose, 4096)
    with pytest.raises(OSError, match='size of the shared memory could change'):
        map_shared(loose)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address(gid))
        listen_elsewhere(gid)
        receiver = open_receiver(4)
        for notice, fds in [
            (b'short', []),
            (NUMBER.pack(1), None),
            (NUMBER.pack(1), []),
            (NUMBER.pack(1), [loose]),
            (NUMBER.pack(1), [empty]),
            (NUMBER.pack(1), [fd]),
            (NOTICE.pack(1, 1, 2, 1), []),
        ]:
            assert not receiver.is_copy(gid, 9)
            end, _ = listener.accept()
            with end:
                end.send(notice)
                if notice == NUMBER.pack(1) and fds is not None:
                    socket.send_fds(end, [b'.'], fds)
                if fds == [fd]:  # Otherwise it would not be read, which resets the connection.
                    end.send(NOTICE.pack(1, 1, 1, 4097))
                assert not list(receiver.take())
                assert end.recv(8) == bytes([4, 0, 0, 0, 0, 0, 0, 0]) and end.recv(8) == b''
        receiver.close()
    for each in (fd, loose, empty):
        os.close(each)
