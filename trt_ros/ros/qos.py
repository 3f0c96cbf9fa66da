"""QoS: presets, overrides, what publishers offer, and what to do where that does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

from rcl_interfaces.msg import SetParametersResult
from rclpy.node import Node
from rclpy.qos import (
    DurabilityPolicy,
    QoSCompatibility,
    QoSPolicyKind,
    QoSPresetProfiles,
    QoSProfile,
    ReliabilityPolicy,
    qos_check_compatible,
)
from rclpy.qos_overriding_options import QoSOverridingOptions, _declare_qos_parameters
from rclpy.subscription import Subscription
from rclpy.utilities import get_rmw_implementation_identifier

from trt_ros.errors import ParameterError

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
#: ROS's own names, of those made for topics; `auto` is ours.
PRESETS = ('auto', 'sensor_data', 'default', 'system_default', 'best_available')

FASTDDS_REMEDY = (
    'images over 512 KiB need '
    'FASTDDS_BUILTIN_TRANSPORTS=DEFAULT?sockets_size=32MB at the publisher'
)

# What asks for most and for least, of the policies where a publisher may offer too little.
_ENDS = {
    'reliability': (RELIABLE, BEST_EFFORT),
    'durability': (DurabilityPolicy.TRANSIENT_LOCAL, DurabilityPolicy.VOLATILE),
}


# What this node asks for and offers.


def image_qos(
    node: Node,
    topic: str,
    *,
    preset: str,
    reliability: str,
    depth: int,
) -> tuple[QoSProfile, str]:
    """
    Say how to subscribe to images.

    :param topic: as given to create_subscription().
    :param preset: one of PRESETS; its depth is not used.
    :param reliability: 'best_effort', 'reliable', or 'auto': the preset's; and with the preset
        'auto', what gets the images of all publishers that are known now.
    :returns: the profile, overrides included, and why its reliability was chosen; '' where it was
        asked for.
    :raises ParameterError: when it cannot be had.
    """
    why = ''
    if preset == 'auto':
        profile = QoSProfile(depth=depth)
        if reliability == 'auto':
            profile.reliability, why = fitting_reliability(node, topic)
    else:
        profile = preset_profile(preset)
        profile.depth = depth
    if reliability != 'auto':
        profile.reliability = ReliabilityPolicy[reliability.upper()]
    fitting = profile.reliability
    profile = overridden(node, Subscription, topic, profile)
    return profile, why if profile.reliability == fitting else ''


def preset_profile(name: str) -> QoSProfile:
    """
    Return a copy of ROS's profile of that name.

    :raises ParameterError: when this ROS has none.
    """
    try:
        return copy(QoSPresetProfiles.get_from_short_key(name))
    except KeyError:
        raise ParameterError(
            f'This ROS has no QoS preset {name!r}.',
            remedy=f'Choose one of {", ".join(QoSPresetProfiles.short_keys())}.',
        ) from None


def overridden(node: Node, entity: type, topic: str, qos: QoSProfile) -> QoSProfile:
    """
    Apply the parameters `qos_overrides.TOPIC.publisher.POLICY` (or `.subscription.`).

    As create_publisher(qos_overriding_options=...) does, but only those that are given become
    parameters: rclpy declares them all with what `qos` is at the first time, and that would win
    whenever a lifecycle node makes the entity anew.

    :param entity: Publisher or Subscription.
    :param topic: as given to create_publisher().
    :returns: a profile of its own.
    :raises ParameterError: when one of them makes no sense.
    """
    qos = copy(qos)
    name = node.resolve_topic_name(topic)
    prefix = f'qos_overrides.{name}.{entity.__name__.lower()}.'
    given = [
        policy for policy in QoSPolicyKind if f'{prefix}{policy.name.lower()}' in _overrides(node)
    ]
    if given:
        options = QoSOverridingOptions(
            given,
            callback=lambda profile: SetParametersResult(
                successful=profile.depth >= 0, reason='the depth is negative'
            ),
        )
        try:
            # The executor's thread also goes through the node's parameters.
            getattr(node, 'between_callbacks', lambda work: work())(
                lambda: _declare_qos_parameters(entity, node, name, qos, options)
            )
        except Exception as error:  # Of several types, that rclpy does not name.
            raise ParameterError(
                f'The parameters {prefix}* cannot be used.',
                cause=str(error),
                remedy='Start the node with others.',
            ) from error
    return qos


def unused_overrides(node: Node) -> list[str]:
    """Name the parameters `qos_overrides.*` that no topic of the node has asked for so far."""
    return [
        name
        for name in _overrides(node)
        if name.startswith('qos_overrides.') and not node.has_parameter(name)
    ]


def _overrides(node: Node) -> dict:
    return getattr(node, '_parameter_overrides', {})


# What others offer.


def fitting_reliability(
    node: Node,
    topic: str,
    current: ReliabilityPolicy = BEST_EFFORT,
) -> tuple[ReliabilityPolicy, str]:
    """
    Choose the reliability that gets the images of all publishers that are known now.

    :param topic: as given to create_subscription().
    :param current: returned while there is no publisher.
    :returns: what to ask for, and why.
    """
    offered = [info.qos_profile.reliability for info in node.get_publishers_info_by_topic(topic)]
    if not offered:
        return current, 'nobody publishes it yet, and that takes from any'
    count = publishers(len(offered))
    if all(each == RELIABLE for each in offered):
        return RELIABLE, f'{count}, reliable'
    weak = sum(each != RELIABLE for each in offered)
    return BEST_EFFORT, f'{count}, {weak} not reliable'


def remedy(node: Node, topic: str, policy: str) -> str:
    """
    Say what to do when a publisher offers less of `policy` than asked for.

    :param topic: its full name.
    :param policy: as rclpy's QoSPolicyKind names it, in lower case.
    """
    override = f'qos_overrides.{topic}.subscription.{policy}'
    parameters = node.parameters
    if policy != 'reliability' or node.has_parameter(override):
        return (
            f'set {override} to {_ENDS[policy][1].name.lower()}'
            if policy in _ENDS
            else f'remove {override}'
        )
    if parameters.qos_reliability == 'reliable':
        return 'set qos_reliability to auto or best_effort'
    if parameters.qos_preset in ('auto', 'best_available'):  # Chosen before it was there.
        return 'deactivate and activate this node, or set qos_reliability to best_effort'
    return 'set qos_preset to auto or sensor_data'


def incompatible_offer(node: Node, topic: str, policy: str) -> str:
    """
    Tell of a publisher that this node's subscription does not take from.

    :param topic: its full name.
    :param policy: what differs, as rclpy's QoSPolicyKind names it.
    """
    policy = policy.lower()
    most, least = (
        (end.name.lower() for end in _ENDS[policy])
        if policy in _ENDS
        else (f'more {policy}', f'less {policy}')
    )
    return (
        f'The publisher of {topic} offers {least}, this node asks for {most}: no image '
        f'comes. Remedy: {remedy(node, topic, policy)}.'
    )


def why_lost(node: Node, topic: str) -> str:
    """
    Say what may be the cause that messages of a topic are lost on their way to the node.

    :param topic: as given to create_subscription().
    """
    asked = _requested_qos(node, topic)
    offered = {info.qos_profile.reliability for info in node.get_publishers_info_by_topic(topic)}
    if asked is not None and asked.reliability == BEST_EFFORT and offered == {RELIABLE}:
        return (
            'the publishers are reliable, this node asks for best_effort: set '
            'qos_reliability to auto'
        )
    if get_rmw_implementation_identifier().startswith('rmw_fastrtps'):
        return f'{FASTDDS_REMEDY}; else lower the rate or raise qos_depth'
    return 'lower the rate, or raise qos_depth'


def why_silent(node: Node, topic: str, type_name: str) -> str:
    """
    Say what may be the cause that nothing comes of a topic that the node subscribes to.

    :param topic: as given to create_subscription().
    :param type_name: the type subscribed to, 'sensor_msgs/msg/Image'.
    """
    infos = node.get_publishers_info_by_topic(topic)
    if not infos:
        return 'it has no publisher'
    count = publishers(len(infos))
    types = {info.topic_type for info in infos}
    if type_name not in types:
        return f'{count}, of {", ".join(sorted(types))}; this node takes {type_name}'
    for why in _misfits(node, topic, [info.qos_profile for info in infos]):
        return f'{count}, {why}'
    if get_rmw_implementation_identifier().startswith('rmw_fastrtps'):
        return f'{count}, nothing comes; {FASTDDS_REMEDY}'
    return f'{count}, nothing comes'


def _misfits(node: Node, topic: str, offers: list[QoSProfile]) -> Iterator[str]:
    """Name each policy of which less is offered than the node's subscription has asked for."""
    asked = _requested_qos(node, topic)
    if asked is None:
        return
    for policy, (most, least) in _ENDS.items():
        weak = sum(getattr(offer, policy) == least for offer in offers)
        if weak and getattr(asked, policy) == most:
            yield (
                f'{weak} {least.name.lower()}; this node asks for {most.name.lower()}: '
                f'{remedy(node, node.resolve_topic_name(topic), policy)}'
            )
    for offer in offers:
        compatibility, why = qos_check_compatible(offer, asked)
        if compatibility == QoSCompatibility.ERROR:
            yield why


def _requested_qos(node: Node, topic: str) -> QoSProfile | None:
    return next(
        (
            info.qos_profile
            for info in node.get_subscriptions_info_by_topic(topic)
            if (info.node_name, info.node_namespace) == (node.get_name(), node.get_namespace())
        ),
        None,
    )


def publishers(count: int) -> str:
    return f'{count} publisher' if count == 1 else f'{count} publishers'
