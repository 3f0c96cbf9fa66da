"""A detector asks for what the publishers of its images offer, and tells where that differs."""

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
import numpy as np
import pytest
import rclpy
from rclpy.duration import Duration
from rclpy.parameter import Parameter
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from rclpy.utilities import get_rmw_implementation_identifier
from sensor_msgs.msg import CompressedImage, Image
from vision_msgs.msg import Detection2DArray

from support.dds import QOS
from support.ros_messages import as_image, picture, values_of
from trt_ros.errors import ParameterError
from trt_ros.ros.qos import image_qos, overridden, unused_overrides


def start(fake_detector, name, **parameters):
    """Start a detector of the topic /NAME that is active once it was asked for it."""
    node = fake_detector(name, '-r', f'image:=/{name}', **parameters)
    # It knows the publishers of the peer once it answers: these were announced before.
    assert node.change('configure'), node.log
    assert node.change('activate'), node.log
    return node


def test_a_lazy_detector_works_only_while_somebody_subscribes(fake_detector, peer):
    node = start(fake_detector, 'lazy', lazy=True)
    images, image = peer.publisher(Image, '/lazy', QOS['reliable']), as_image(picture(), 'rgb8')
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')

    def dropped():
        images.publish(image)
        values = [values_of(each) for each in diagnostics.messages[-1:]]
        return [each for each in values if int(each.get('dropped: no subscribers', 0)) > 3]

    (values,) = peer.wait_until(dropped, 'images to be given up')
    assert (values['frames published'], values['last error']) == ('0', '')
    found = peer.inbox(Detection2DArray, '/lazy/detections')
    image.header.stamp.sec = 7  # The very next one.
    images.publish(image)
    found.wait_for(lambda message: message.header.stamp.sec == 7)
    assert node.set(lazy=False) == ''


@pytest.mark.parametrize('transport', ['rcl', pytest.param('rclpy', marks=pytest.mark.nightly)])
def test_incompatible_offer_is_logged_and_diagnosed_with_remedy(
    fake_detector, peer, monkeypatch, transport
):
    monkeypatch.setenv('TRT_ROS_TRANSPORT', transport)
    name = f'refused_{transport}'
    node = start(fake_detector, name, qos_reliability='reliable')
    peer.publisher(Image, f'/{name}', QOS['best_effort'])
    node.wait_for_log(
        f'The publisher of /{name} offers best_effort, but this node requests reliable: it '
        'receives no images. Remedy: set qos_reliability to auto or best_effort.'
    )
    assert 'requesting' not in node.log
    assert ('Images and results go through rclpy' in node.log) == (transport == 'rclpy')
    assert no_image(peer, name).endswith(
        f' s on /{name}: 1 publisher, 1 best_effort, but this node requests reliable: '
        'set qos_reliability to auto or best_effort'
    )


@pytest.fixture
def node_with(peer):
    """Make a plain node with parameters given from outside."""
    made = []

    def make(**overrides):
        made.append(
            rclpy.create_node(
                'plain',
                context=peer.context,
                start_parameter_services=False,
                enable_rosout=False,
                parameter_overrides=[
                    Parameter(name, value=each) for name, each in overrides.items()
                ],
            )
        )
        return made[-1]

    yield make
    for node in made:
        node.destroy_node()


@pytest.mark.parametrize(
    'offered, fitting, reason',
    [
        ([], 'best_effort', 'no publisher yet; compatible with any'),
        (['reliable'], 'reliable', '1 publisher, reliable'),
        (['reliable', 'reliable'], 'reliable', '2 publishers, reliable'),
        (['best_effort'], 'best_effort', '1 publisher, 1 not reliable'),
        (['reliable', 'best_effort'], 'best_effort', '2 publishers, 1 not reliable'),
    ],
)
@pytest.mark.parametrize('reliability', ['auto', 'reliable', 'best_effort'])
def test_reliability_is_requested_unless_overridden(
    node_with, peer, reliability, offered, fitting, reason
):
    topic = f'/offered_{reliability}_{len(offered)}_{"".join(offered)}'
    for each in offered:
        peer.publisher(Image, topic, QOS[each])
    asked = {'reliability': reliability, 'depth': 7}
    expected = fitting if reliability == 'auto' else reliability
    node = node_with()
    peer.wait_until(lambda: node.count_publishers(topic) == len(offered), 'the publishers')
    qos, why = image_qos(node, topic, **asked)
    assert (qos.reliability.name.lower(), qos.depth) == (expected, 7)
    assert why == (reason if reliability == 'auto' else '')
    node = node_with(**{f'qos_overrides.{topic}.subscription.reliability': 'reliable'})
    qos, why = image_qos(node, topic, **asked)
    assert qos.reliability == ReliabilityPolicy.RELIABLE
    assert bool(why) == (reliability == 'auto' and expected == 'reliable')


def test_overrides_are_of_one_topic_and_kind_and_leave_the_given_profile_as_it_is(node_with):
    given = QoSProfile(depth=10)
    node = node_with(
        **{
            'qos_overrides./mine.publisher.depth': 3,
            'qos_overrides./mine.publisher.durability': 'transient_local',
            'qos_overrides./mine.publisher.lifespan': 5_000_000,
            'qos_overrides./mine.subscription.history': 'keep_all',
        }
    )
    for _ in range(2):  # A lifecycle node makes its publishers again and again.
        qos = overridden(node, Publisher, 'mine', given)
        assert (qos.depth, qos.durability, qos.lifespan) == (
            3,
            DurabilityPolicy.TRANSIENT_LOCAL,
            Duration(nanoseconds=5_000_000),
        )
        given = QoSProfile(depth=20)
    assert given == QoSProfile(depth=20)
    assert node.get_parameter('qos_overrides./mine.publisher.depth').value == 3
    assert unused_overrides(node) == ['qos_overrides./mine.subscription.history']
    assert overridden(node, Subscription, 'mine', given).history == HistoryPolicy.KEEP_ALL
    assert overridden(node, Publisher, 'yours', given) == given
    assert unused_overrides(node) == []


@pytest.mark.parametrize(
    'policy, value, cause',
    [
        ('reliability', 'sometimes', 'sometimes'),
        ('depth', 'many', 'INTEGER'),
        ('depth', -1, 'the depth is negative'),
    ],
)
def test_rejects_invalid_override_with_reason(node_with, policy, value, cause):
    node = node_with(**{f'qos_overrides./mine.publisher.{policy}': value})
    for _ in range(2):
        with pytest.raises(ParameterError, match=cause) as refused:
            overridden(node, Publisher, 'mine', QoSProfile(depth=1))
        assert refused.value.problem == (
            'The parameters qos_overrides./mine.publisher.* are invalid.'
        )


def test_override_without_compatible_publisher_is_reported_with_remedy(fake_detector, peer):
    override = 'qos_overrides./strict.subscription.durability'
    node = start(fake_detector, 'strict', qos_reliability='auto', **{override: 'transient_local'})
    assert '/strict: requesting best_effort (no publisher yet' in node.log
    assert published_with(peer, '/strict/detections') == ('reliable', 'volatile')
    peer.publisher(Image, '/strict', QOS['reliable'])
    node.wait_for_log(
        'The publisher of /strict offers volatile, but this node requests transient_local: it '
        f'receives no images. Remedy: set {override} to volatile.'
    )
    assert no_image(peer, 'strict').endswith(
        ' s on /strict: 1 publisher, 1 volatile, but this node requests transient_local: '
        f'set {override} to volatile'
    )
    assert node.get(override) == 'transient_local'


def published_with(peer, topic):
    (found, *_) = peer.wait_until(
        lambda: peer.node.get_publishers_info_by_topic(topic), f'a publisher of {topic}'
    )
    qos = found.qos_profile
    return qos.reliability.name.lower(), qos.durability.name.lower()


def test_results_use_overrides_and_those_of_unknown_topics_are_reported(fake_detector, peer):
    node = start(
        fake_detector,
        'offered',
        **{
            'qos_overrides./offered.subscription.reliability': 'best_effort',
            'qos_overrides./ofered.subscription.reliability': 'best_effort',
            'qos_overrides./offered/detections.publisher.reliability': 'best_effort',
            'qos_overrides./offered/detections.publisher.durability': 'transient_local',
            'qos_overrides./offered/detections.publisher.depth': 3,
        },
    )
    assert published_with(peer, '/offered/detections') == ('best_effort', 'transient_local')
    assert published_with(peer, '/offered/label_info') == ('reliable', 'transient_local')
    assert (
        'qos_overrides./ofered.subscription.reliability is ignored: this node does not '
        'have that topic.'
    ) in node.log
    assert 'qos_overrides./offered' not in node.log


def no_image(peer, name):
    """Wait for the detector's diagnostic that no image comes, return its message."""
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')
    try:
        status = inbox.wait_for(
            lambda array: (
                array.status[0].name == f'{name}: image'
                and (array.status[0].message.startswith('no image for '))
            )
        ).status[0]
        assert status.level == DiagnosticStatus.STALE
        return status.message
    finally:
        peer.close_inbox(inbox)


@pytest.mark.nightly
def test_diagnostics_report_possible_faults_of_topic(fake_detector, peer):
    node = start(fake_detector, 'silent', qos_reliability='best_effort')
    assert no_image(peer, 'silent').endswith(' s on /silent: no publisher')
    first = peer.publisher(CompressedImage, '/silent', QOS['best_effort'])
    peer.wait_until(
        lambda: no_image(peer, 'silent').endswith(
            ' s on /silent: 1 publisher of type sensor_msgs/msg/CompressedImage; this node '
            'subscribes to '
            'sensor_msgs/msg/Image'
        ),
        'the other type',
    )
    peer.run_on_executor(lambda: peer.node.destroy_publisher(first))
    second = peer.publisher(Image, '/silent', QOS['reliable'])
    peer.wait_until(
        lambda: ' s on /silent: 1 publisher, no messages' in no_image(peer, 'silent'),
        'the silent publisher',
    )
    message = no_image(peer, 'silent')
    if get_rmw_implementation_identifier().startswith('rmw_fastrtps'):
        assert message.endswith(
            '; images over 512 KiB need FASTDDS_BUILTIN_TRANSPORTS='
            'DEFAULT?sockets_size=32MB at the publisher'
        )
    second.publish(as_image(np.zeros((8, 8, 3), np.uint8), 'rgb8'))
    peer.wait_until(
        lambda: no_image(peer, 'silent').endswith(' s on /silent: 1 publisher, no messages'),
        'the silence after a small image',
    )
    assert node.state == 'active'
