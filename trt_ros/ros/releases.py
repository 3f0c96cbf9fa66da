"""
Differences between releases of ROS 2; no other module of the nodes names one::

    | release | rclpy | rcl | differs |
    |---|---|---|---|
    | Humble | 3.3 | 5.3.13 | events, parameter callbacks, clients, ids of 24 bytes, QoS presets |
    | Jazzy | 7.1.6 | 9.2.11 | |
    | Kilted | 9.1.2 | 10.1.4 | an impossible transition is logged, no longer raised |
    | Lyrical, Rolling | | 10.4.4, 10.5.1 | headers of rcl as Kilted's; rclpy not compared |

`tools/rcl_headers.py` compares the declarations that `dds/rcl.py` binds. QoS presets are looked up
by name, and type hashes are not read.
"""

from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.node import Node
from rclpy.parameter import Parameter

try:
    from rclpy.event_handler import SubscriptionEventCallbacks as SubscriptionEventCallbacks
except ImportError:  # Humble.
    from rclpy.qos_event import SubscriptionEventCallbacks as SubscriptionEventCallbacks

GID_NBYTES = 16  # Of the id of a publisher; the further 8 of Humble are zero.
#: Space for the id in an rmw_gid_t and for an rmw_message_info_t, with some to spare.
GID_CAPACITY, MESSAGE_INFO_CAPACITY = 248, 512


def parameter_overrides(node: Node) -> dict[str, Parameter]:
    """Return the values from the command line and files, which rclpy keeps private."""
    return getattr(node, '_parameter_overrides', {})


def convert_parameters(node: Node, convert: Callable[[list[Parameter]], list[Parameter]]) -> None:
    """Call `convert` for changed parameters before rclpy compares their types; not in Humble."""
    if hasattr(node, 'add_pre_set_parameters_callback'):
        node.add_pre_set_parameters_callback(convert)


def count_clients(node: Node, service: str) -> int:
    """Return the number of clients of a service; 0 in Humble."""
    return node.count_clients(service) if hasattr(node, 'count_clients') else 0


def can_trigger(node: LifecycleNode, label: str) -> bool:
    """Return whether the state machine allows a transition, without a log line or an error."""
    machine: Any = node._state_machine
    return label in {each[1] for each in machine.available_transitions}
