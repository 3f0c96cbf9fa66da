"""Nodes that process one frame at a time, or two that overlap."""

from demo.scene import held_out
import numpy as np
import pytest
from sensor_msgs.msg import Image

from support.ros_messages import as_image, next_diagnostics, picture, values_of
from trt_ros.demo import MODEL


@pytest.fixture(scope='module')
def held(start_lane, tmp_path_factory):
    """Two frames in flight; a run of the network ends when the file `go` is there."""
    folder = tmp_path_factory.mktemp('runs')
    (folder / 'go').touch()
    lane = start_lane('held', model_path=f'fixed:{folder}', frames_in_flight=2)
    lane.folder = folder
    return lane


def begin_run(lane, image):
    """Bring a frame into a run that does not end; return its stamp."""
    (lane.folder / 'go').unlink(missing_ok=True)
    runs = len(list(lane.folder.iterdir()))
    stamp = lane.publish(image)
    lane.node.peer.wait_until(lambda: len(list(lane.folder.iterdir())) > runs, 'a run')
    return stamp


def values(lane):
    """Return the next diagnostics."""
    name = f'{lane.node.name}: image'
    return values_of(next_diagnostics(lane.node.peer, lane.diagnostics, name))


def unaccounted(lane):
    counts = values(lane)
    return int(counts['frames received']) - sum(
        int(counts[key]) for key in ('frames published', 'frames dropped')
    )


def test_second_frame_starts_while_first_runs_and_newest_waits(held):
    image = as_image(picture(), 'rgb8')
    held.detect(image)
    before = values(held)
    first = begin_run(held, image)
    # A frame that fails before the network shows that it is in flight beside the first.
    held.images.publish(as_image(picture(), 'rgb8', size_wh=(1000, 1000)))
    held.node.wait_for_log('A frame of /held was dropped (wrong step).')
    waiting = [held.publish(image) for _ in range(2)]
    held.status('frames received', str(int(before['frames received']) + 4))
    assert first not in {found.header.stamp.sec for found in held.detections.messages}
    (held.folder / 'go').touch()
    held.status('frames published', str(int(before['frames published']) + 2))
    stamps = [found.header.stamp.sec for found in held.detections.messages]
    assert stamps[-2:] == [first, waiting[1]]
    after = values(held)
    assert after['dropped: wrong step'] == after['dropped: replaced by a newer frame'] == '1'
    assert unaccounted(held) == 0


def test_deactivate_waits_for_the_frames_in_flight(held):
    image = as_image(picture(), 'rgb8')
    held.detect(image)
    stamps = [begin_run(held, image), held.publish(image), held.publish(image)]
    deactivated = held.node.ask_transition('deactivate')
    held.node.peer.wait_until(lambda: not held.images.get_subscription_count(), 'no subscription')
    assert not deactivated.done()
    (held.folder / 'go').touch()
    assert held.node.peer.wait(deactivated, 'deactivate').success
    held.detections.wait_for(
        lambda found: found.header.stamp.sec == stamps[0], 'detections of the frame in flight'
    )
    assert unaccounted(held) == 0
    assert held.node.change('activate')
    held.node.peer.wait_until(held.images.get_subscription_count, 'a subscription')
    assert len(held.detect(image).detections) == 2


def test_a_node_of_two_cameras_has_two_frames_in_flight(fake_detector, peer, tmp_path):
    topics = ['/pair/left', '/pair/right']
    node = fake_detector(
        'pair', autostart=True, model_path=f'fixed:{tmp_path}', image_topics=topics
    )
    node.wait_for_log('Started: active.')
    left, right = (peer.connected(Image, topic) for topic in topics)
    left.publish(as_image(picture(), 'rgb8', stamp=1))
    peer.wait_until(lambda: any(tmp_path.iterdir()), 'a run')
    # It ends when the file `go` is there; meanwhile, another frame fails before the network.
    right.publish(as_image(picture(), 'rgb8', size_wh=(1000, 1000)))
    node.wait_for_log('A frame of /pair/right was dropped (wrong step).')
    (tmp_path / 'go').touch()


@pytest.mark.parametrize('frames_in_flight', [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_results_of_real_network_leave_in_order_and_frames_are_accounted_for(
    start_lane, backend, frames_in_flight
):
    lane = start_lane(
        f'flight_{frames_in_flight}_{backend}',
        backend=backend,
        model_path=str(MODEL),
        frames_in_flight=frames_in_flight,
        qos_depth=100,
    )
    scenes = [as_image(np.ascontiguousarray(pixels), 'bgr8') for pixels, _, _ in held_out(4)]
    alone = {}  # Detections of each scene without another frame in flight.
    for index, scene in enumerate(scenes):
        alone[index] = lane.boxes(lane.detect(scene))
    first = lane.last_stamp + 1
    for number in range(60):
        lane.publish(scenes[number % len(scenes)])
    lane.detections.wait_for(
        lambda found: found.header.stamp.sec == lane.last_stamp, 'detections of the last'
    )
    found = [each for each in lane.detections.messages if each.header.stamp.sec >= first]
    stamps = [each.header.stamp.sec for each in found]
    assert stamps == sorted(set(stamps))
    for each in found:
        assert lane.boxes(each) == alone[(each.header.stamp.sec - first) % len(scenes)]
    assert unaccounted(lane) == 0
    assert values(lane)['last error'] == ''
