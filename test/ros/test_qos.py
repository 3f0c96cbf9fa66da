"""A detector asks for what the publishers of its images offer, and tells where that differs."""

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.utilities import get_rmw_implementation_identifier
from sensor_msgs.msg import CompressedImage, Image
from vision_msgs.msg import Detection2DArray

pytestmark = pytest.mark.ros


def offer(peer, reliability, topic, kind=Image):
    return peer.publisher(
        kind, topic, QoSProfile(depth=10, reliability=ReliabilityPolicy[reliability.upper()]))


def start(fake_detector, name, **parameters):
    """Start a detector of the topic /NAME that is active once it was asked for it."""
    node = fake_detector(name, '-r', f'image:=/{name}', **parameters)
    # It knows the publishers of the peer once it answers: these were announced before.
    assert node.change('configure'), node.log
    assert node.change('activate'), node.log
    return node


def assert_images_come(node, images, image):
    found = node.peer.inbox(Detection2DArray, f'/{node.name}/detections')
    node.peer.wait_until(images.get_subscription_count, 'the detector to subscribe')

    def published():  # What is sent before the detector has matched too may be lost.
        images.publish(image)
        return found.messages
    node.peer.wait_until(published, 'detections')


def test_a_lazy_detector_works_only_while_somebody_subscribes(
        fake_detector, peer, picture, as_image):
    node = start(fake_detector, 'lazy', lazy=True)
    images, image = offer(peer, 'reliable', '/lazy'), as_image(picture(), 'rgb8')
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')

    def facts():
        return next(({each.key: each.value for each in array.status[0].values}
                     for array in reversed(diagnostics.messages)
                     if array.status[0].name == 'lazy: image'), {})

    def dropped():
        images.publish(image)
        return int(facts().get('dropped: nobody subscribes', 0)) > 3
    peer.wait_until(dropped, 'images to be given up')
    assert facts()['frames published'] == '0'
    assert facts()['last error'] == ''
    assert_images_come(node, images, image)
    assert node.set(lazy=False) == ''


@pytest.mark.parametrize('name, offered, line', [
    ('of_none', [], 'best_effort is asked for (nobody publishes it yet, and that takes from any)'),
    ('of_reliable', ['reliable'], 'reliable is asked for (1 publisher, reliable)'),
    ('of_two', ['reliable', 'reliable'], 'reliable is asked for (2 publishers, reliable)'),
    ('of_weak', ['best_effort'], 'best_effort is asked for (1 publisher, 1 not reliable)'),
    ('of_mixed', ['reliable', 'best_effort'],
     'best_effort is asked for (2 publishers, 1 not reliable)'),
])
def test_auto_asks_for_what_all_publishers_offer_and_says_why(
        fake_detector, peer, picture, as_image, name, offered, line):
    publishers = [offer(peer, reliability, f'/{name}') for reliability in offered]
    node = start(fake_detector, name, qos_reliability='auto')
    assert f'/{name}: {line}.' in node.log
    publishers = publishers or [offer(peer, 'best_effort', f'/{name}')]
    for publisher in publishers:
        assert_images_come(node, publisher, as_image(picture(), 'rgb8'))
    asked = peer.node.get_subscriptions_info_by_topic(f'/{name}')
    assert [each.qos_profile.reliability.name.lower() for each in asked] == [line.split()[0]]


def test_auto_asks_again_at_each_activation(fake_detector, peer):
    offer(peer, 'reliable', '/again')
    node = start(fake_detector, 'again', qos_reliability='auto')
    assert '/again: reliable is asked for' in node.log
    offer(peer, 'best_effort', '/again')
    node.wait_for_log(
        'The publisher of /again offers best_effort, this node asks for reliable: no image comes. '
        'Remedy: deactivate and activate this node, or set qos_reliability to best_effort.')
    assert node.change('deactivate') and node.change('activate')
    assert '/again: best_effort is asked for (2 publishers, 1 not reliable).' in node.log


@pytest.mark.parametrize('transport', ['rcl', 'rclpy'])
def test_an_offer_that_does_not_fit_is_logged_and_diagnosed_with_the_remedy(
        fake_detector, peer, monkeypatch, transport):
    monkeypatch.setenv('TRT_ROS_TRANSPORT', transport)
    name = f'refused_{transport}'
    node = start(fake_detector, name, qos_reliability='reliable')
    offer(peer, 'best_effort', f'/{name}')
    node.wait_for_log(
        f'The publisher of /{name} offers best_effort, this node asks for reliable: no image '
        'comes. Remedy: set qos_reliability to auto or best_effort.')
    assert 'is asked for' not in node.log
    assert ('Images and results go through rclpy.' in node.log) == (transport == 'rclpy')
    assert no_image(peer, name).endswith(
        f' s on /{name}: 1 publisher, 1 best_effort; this node asks for reliable: '
        'set qos_reliability to auto or best_effort')


def no_image(peer, name):
    """Wait for the detector's diagnostic that no image comes, return its message."""
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')
    try:
        return inbox.wait_for(lambda array: array.status[0].name == f'{name}: image' and (
            array.status[0].message.startswith('no image for '))).status[0].message
    finally:
        peer.close_inbox(inbox)


def test_the_diagnostic_tells_what_may_be_wrong_with_a_topic(fake_detector, peer):
    node = start(fake_detector, 'silent', qos_reliability='best_effort')
    assert no_image(peer, 'silent').endswith(' s on /silent: it has no publisher')
    first = offer(peer, 'best_effort', '/silent', CompressedImage)
    peer.wait_until(lambda: no_image(peer, 'silent').endswith(
        ' s on /silent: 1 publisher, of sensor_msgs/msg/CompressedImage; this node takes '
        'sensor_msgs/msg/Image'), 'the other type')
    peer.between_callbacks(lambda: peer.node.destroy_publisher(first))
    offer(peer, 'reliable', '/silent')
    peer.wait_until(lambda: ' s on /silent: 1 publisher, nothing comes' in no_image(
        peer, 'silent'), 'the silent publisher')
    message = no_image(peer, 'silent')
    if get_rmw_implementation_identifier().startswith('rmw_fastrtps'):
        assert message.endswith('; images over 512 KiB need FASTDDS_BUILTIN_TRANSPORTS='
                                'DEFAULT?sockets_size=32MB at the publisher')
    assert node.state == 'active'
