"""QoS, its overrides and mismatch reports."""

from collections.abc import Iterator
from copy import copy
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.qos import (
    DurabilityPolicy,
    QoSCompatibility,
    QoSPolicyKind,
    QoSProfile,
    ReliabilityPolicy,
    qos_check_compatible,
)
from rclpy.qos_overriding_options import QoSOverridingOptions, _declare_qos_parameters
from rclpy.subscription import Subscription
from rclpy.utilities import get_rmw_implementation_identifier

from trt_ros.errors import ParameterError, counted
from trt_ros.model.feeds.message import MESSAGES
from trt_ros.ros.dds.container_images import image_node_name
from trt_ros.ros.releases import parameter_overrides

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT

#: Defaults of topics without parameters for their QoS; overrides apply.
RESULTS = QoSProfile(depth=10)  # Also of messages that meet an image.
DRAWN_IMAGES = QoSProfile(depth=5)
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
CALIBRATIONS = QoSProfile(depth=1, reliability=BEST_EFFORT)  # Compatible with any publisher.
BOND = QoSProfile(depth=5)
REQUESTS = QoSProfile(depth=200)  # rclcpp's; reliable and volatile, as services are.

_IMAGE = 'sensor_msgs/msg/Image'  # Other messages are small.
#: Larger messages do not fit the shared memory of Fast DDS by default.
FASTDDS_NBYTES = 512 << 10
FASTDDS_REMEDY = (
    'images over 512 KiB need '
    'FASTDDS_BUILTIN_TRANSPORTS=DEFAULT?sockets_size=32MB at the publisher'
)

# Strictest and weakest value of the policies where a publisher may offer too little.
_EXTREMES = {
    'reliability': (RELIABLE, BEST_EFFORT),
    'durability': (DurabilityPolicy.TRANSIENT_LOCAL, DurabilityPolicy.VOLATILE),
}


# QoS of this node.


def image_qos(
    node: Node,
    topic: str,
    *,
    reliability: str,
    depth: int,
    current: ReliabilityPolicy = BEST_EFFORT,
) -> tuple[QoSProfile, str]:
    """
    Return the QoS profile of an image subscription.

    :param topic: as given to create_subscription().
    :param reliability: 'best_effort', 'reliable', or 'auto': the one that matches all presently
        known publishers, `current` without any.
    :returns: the profile with overrides applied, and why its reliability was chosen; '' where the
        user has chosen it.
    :raises ParameterError: when an override is invalid.
    """
    if reliability == 'auto':
        fitting, why = _fitting_reliability(node, topic, current)
    else:
        fitting, why = ReliabilityPolicy[reliability.upper()], ''
    profile = QoSProfile(depth=depth, reliability=fitting)
    profile = overridden(node, Subscription, topic, profile)
    return profile, why if profile.reliability == fitting else ''


def overridden(node: Node, entity: type, topic: str, qos: QoSProfile) -> QoSProfile:
    """
    Apply the parameters `qos_overrides.TOPIC.publisher.POLICY` (or `.subscription.`).

    Like create_publisher(qos_overriding_options=...), but only those that the user has set become
    parameters: rclpy declares all of them with the values of the first `qos`, which would then
    override `qos` whenever a lifecycle node creates the entity again.

    :param entity: Publisher or Subscription.
    :param topic: as given to create_publisher().
    :returns: a copy of `qos` with the overrides applied; `qos` itself without any.
    :raises ParameterError: when an override is invalid.
    """
    name = node.resolve_topic_name(topic)
    prefix = f'qos_overrides.{name}.{entity.__name__.lower()}.'
    overrides = parameter_overrides(node)
    given = [each for each in QoSPolicyKind if f'{prefix}{each.name.lower()}' in overrides]
    if given:
        qos = copy(qos)
        options = QoSOverridingOptions(
            given,
            callback=lambda profile: SetParametersResult(
                successful=profile.depth >= 0, reason='the depth is negative'
            ),
        )
        try:
            # The executor's thread also iterates over the node's parameters.
            getattr(node, 'run_on_executor', lambda work: work())(
                lambda: _declare_qos_parameters(entity, node, name, qos, options)
            )
        except Exception as error:  # rclpy raises several undocumented types.
            raise ParameterError(
                f'The parameters {prefix}* are invalid.',
                cause=str(error),
                remedy='Correct them and restart the node.',
            ) from error
    return qos


def unused_overrides(node: Node) -> list[str]:
    """Return the parameters `qos_overrides.*` that no topic of the node has used so far."""
    return [
        name
        for name in parameter_overrides(node)
        if name.startswith('qos_overrides.') and not node.has_parameter(name)
    ]


# QoS of other nodes.


def _fitting_reliability(
    node: Node, topic: str, current: ReliabilityPolicy
) -> tuple[ReliabilityPolicy, str]:
    """Return the reliability that matches all known publishers, else `current`; and why."""
    offered = [info.qos_profile.reliability for info in node.get_publishers_info_by_topic(topic)]
    if not offered:
        return current, 'no publisher yet; compatible with any'
    count = counted(len(offered), 'publisher')
    if all(each == RELIABLE for each in offered):
        return RELIABLE, f'{count}, reliable'
    return BEST_EFFORT, f'{count}, {len(offered) - offered.count(RELIABLE)} not reliable'


def fitting_durability(node: Node, topic: str, current: DurabilityPolicy) -> DurabilityPolicy:
    """Return the durability for what all known publishers keep; see image_qos()."""
    offered = [info.qos_profile.durability for info in node.get_publishers_info_by_topic(topic)]
    if not offered:
        return current
    is_kept = all(each == DurabilityPolicy.TRANSIENT_LOCAL for each in offered)
    return DurabilityPolicy.TRANSIENT_LOCAL if is_kept else DurabilityPolicy.VOLATILE


def remedy(node: Any, topic: str, policy: str) -> str:
    """Return the remedy for a publisher that offers less of a policy than requested."""
    override = f'qos_overrides.{topic}.subscription.{policy}'
    if policy != 'reliability' or node.has_parameter(override):
        if policy in _EXTREMES:
            return f'set {override} to {_EXTREMES[policy][1].name.lower()}'
        return f'remove {override}'
    return 'set qos_reliability to auto or best_effort'


def incompatible_offer(node: Node, topic: str, policy: str) -> str:
    """Describe a publisher that is incompatible with this node's subscription by a policy."""
    policy = policy.lower()
    strictest, weakest = f'more {policy}', f'less {policy}'
    if policy in _EXTREMES:
        strictest, weakest = (end.name.lower() for end in _EXTREMES[policy])
    return (
        f'The publisher of {topic} offers {weakest}, but this node requests {strictest}: it '
        f'receives no images. Remedy: {remedy(node, topic, policy)}.'
    )


def why_lost(node: Node, topic: str) -> str:
    """Return the likely cause of messages of a topic that are lost before arrival."""
    requested = _requested_qos(node, topic)
    infos = node.get_publishers_info_by_topic(topic)
    offered = {info.qos_profile.reliability for info in infos}
    if requested is not None and requested.reliability == BEST_EFFORT and offered == {RELIABLE}:
        return (
            'the publishers are reliable, but this node requests best_effort: set '
            'qos_reliability to auto'
        )
    if _IMAGE in {info.topic_type for info in infos} and _may_exceed_fastdds(node, topic):
        return f'{FASTDDS_REMEDY}; otherwise lower the rate or raise qos_depth'
    return 'lower the rate, or raise qos_depth'


def type_name(kind: type) -> str:
    """Return the name of a message type, 'sensor_msgs/msg/Image'."""
    return f'{kind.__module__.partition(".")[0]}/msg/{kind.__name__}'


def why_silent(node: Any, topic: str, type_name: str) -> str:
    """Return the likely cause of receiving nothing on a subscribed topic."""
    infos = node.get_publishers_info_by_topic(topic)
    if not infos:
        return 'no publisher'
    count = counted(len(infos), 'publisher')
    types = ', '.join(sorted({info.topic_type for info in infos}))
    if type_name not in types.split(', '):
        return f'{count} of type {types}; this node subscribes to {type_name}'
    for why in _mismatches(node, topic, [info.qos_profile for info in infos]):
        return f'{count}, {why}'
    if type_name == _IMAGE and _may_exceed_fastdds(node, topic):
        return f'{count}, no messages; {FASTDDS_REMEDY}'
    return f'{count}, no messages'


def mistyped(node: Node) -> dict[str, str]:
    """Return a warning for each topic that the node subscribes to and others publish otherwise."""
    found = {}
    parameters: Any = getattr(node, 'parameters', None)
    for each in node.subscriptions:
        subscription: Any = each
        try:
            topic, wanted = subscription.topic_name, type_name(subscription.msg_type)
        except rclpy_implementation.InvalidHandle:  # Destroyed meanwhile.
            continue
        types = {info.topic_type for info in node.get_publishers_info_by_topic(topic)}
        if types and wanted not in types:
            kinds = [kind for kind, known in MESSAGES.items() if types & set(known)]
            is_bound = kinds and getattr(parameters, 'inputs', None)
            found[topic] = (
                f'{topic} is published as {", ".join(sorted(types))}, but this node subscribes '
                f'to {wanted}: it receives nothing. Remedy: choose a topic of this type'
                f'{f", or the kind {kinds[0]}: in inputs" if is_bound else ""}.'
            )
    return found


def _may_exceed_fastdds(node: Any, topic: str) -> bool:
    """Return whether messages are too large for Fast DDS by default, or of unknown size."""
    nbytes = node.largest_nbytes.get(node.resolve_topic_name(topic), FASTDDS_NBYTES + 1)
    return nbytes > FASTDDS_NBYTES and get_rmw_implementation_identifier().startswith(
        'rmw_fastrtps'
    )


def _mismatches(node: Node, topic: str, offers: list[QoSProfile]) -> Iterator[str]:
    """Yield each policy of which less is offered than the node's subscription requests."""
    requested = _requested_qos(node, topic)
    if requested is None:
        return
    for policy, (strictest, weakest) in _EXTREMES.items():
        count = sum(getattr(offer, policy) == weakest for offer in offers)
        if count and getattr(requested, policy) == strictest:
            yield (
                f'{count} {weakest.name.lower()}, but this node requests '
                f'{strictest.name.lower()}: {remedy(node, node.resolve_topic_name(topic), policy)}'
            )
    for offer in offers:
        compatibility, why = qos_check_compatible(offer, requested)
        if compatibility == QoSCompatibility.ERROR:
            yield why


def _requested_qos(node: Node, topic: str) -> QoSProfile | None:
    names = node.get_name(), image_node_name(node.get_name())
    return next(
        (
            info.qos_profile
            for info in node.get_subscriptions_info_by_topic(topic)
            if info.node_name in names and info.node_namespace == node.get_namespace()
        ),
        None,
    )
