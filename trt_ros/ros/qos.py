"""What the publishers of a topic offer, and what to do where a subscription asks for more."""

from __future__ import annotations

from rclpy.node import Node
from rclpy.qos import ReliabilityPolicy
from rclpy.utilities import get_rmw_implementation_identifier

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT


def fitting_reliability(node: Node, topic: str) -> tuple[ReliabilityPolicy, str]:
    """
    Choose the reliability that gets the images of all publishers that are known now.

    :param topic: as given to create_subscription().
    :returns: what to ask for, and why.
    """
    offered = offers(node, topic)
    if not offered:
        return BEST_EFFORT, 'nobody publishes it yet, and that takes from any'
    count = publishers(len(offered))
    if all(each == RELIABLE for each in offered):
        return RELIABLE, f'{count}, reliable'
    weak = sum(each != RELIABLE for each in offered)
    return BEST_EFFORT, f'{count}, {weak} not reliable'


def offers(node: Node, topic: str) -> list[ReliabilityPolicy]:
    """Return the reliability of each publisher of `topic`, as given to create_subscription()."""
    return [info.qos_profile.reliability for info in node.get_publishers_info_by_topic(topic)]


def remedy(setting: str) -> str:
    """Say what to do when a publisher is less reliable than asked for by qos_reliability."""
    if setting == 'auto':  # Chosen before that publisher was there.
        return 'deactivate and activate this node, or set qos_reliability to best_effort'
    return 'set qos_reliability to auto or best_effort'


def incompatible_offer(topic: str, policy: str, setting: str) -> str:
    """
    Tell of a publisher that this node's subscription does not take from.

    :param topic: its full name.
    :param policy: what differs, as rclpy's QoSPolicyKind names it.
    :param setting: the parameter qos_reliability.
    """
    if policy == 'RELIABILITY':
        return (f'The publisher of {topic} offers best_effort, this node asks for reliable: no '
                f'image comes. Remedy: {remedy(setting)}.')
    return (f'The publisher of {topic} offers less than this node asks for: no image comes. '
            f'Cause: the QoS policy {policy}.')


def why_silent(
        node: Node, topic: str, type_name: str, asked: ReliabilityPolicy, setting: str) -> str:
    """
    Say what may be the cause that nothing comes of a topic.

    :param topic: as given to create_subscription().
    :param type_name: the type subscribed to, 'sensor_msgs/msg/Image'.
    :param asked: the subscription's own reliability.
    :param setting: the parameter qos_reliability.
    """
    infos = node.get_publishers_info_by_topic(topic)
    if not infos:
        return 'it has no publisher'
    count = publishers(len(infos))
    types = {info.topic_type for info in infos}
    if type_name not in types:
        return f'{count}, of {", ".join(sorted(types))}; this node takes {type_name}'
    weak = sum(info.qos_profile.reliability == BEST_EFFORT for info in infos)
    if asked == RELIABLE and weak:
        return f'{count}, {weak} best_effort; this node asks for reliable: {remedy(setting)}'
    if get_rmw_implementation_identifier().startswith('rmw_fastrtps'):
        return (f'{count}, nothing comes; images over 512 KiB need '
                'FASTDDS_BUILTIN_TRANSPORTS=DEFAULT?sockets_size=32MB at the publisher')
    return f'{count}, nothing comes'


def publishers(count: int) -> str:
    return f'{count} publisher' if count == 1 else f'{count} publishers'
