"""The heartbeat that nav2's lifecycle manager listens to."""

import pytest

message = pytest.importorskip('bond.msg')


def test_active_node_sends_heartbeats_and_breaks_bond_at_end(start_node):
    node = start_node(
        'beating', 'trt_ros.nodes.overlay', '-r', '__ns:=/robot', autostart=False, bond_period=0.05
    )
    node.name = 'robot/beating'
    assert node.change('configure')
    assert not node.peer.node.count_publishers('/robot/bond')
    lives = set()
    for _ in range(2):
        assert node.change('activate')
        beats = node.peer.inbox(message.Status, '/robot/bond')
        node.peer.wait_until(lambda beats=beats: len(beats.messages) > 3, 'a few beats')
        assert node.change('deactivate')
        last = beats.wait_for(lambda status: not status.active, 'the end')
        assert {status.id for status in beats.messages} == {'beating'}
        assert beats.messages[0].heartbeat_period == pytest.approx(0.05)
        stamps = [(each.header.stamp.sec, each.header.stamp.nanosec) for each in beats.messages]
        assert stamps == sorted(set(stamps))
        assert beats.messages[-1] is last
        lives |= {status.instance_id for status in beats.messages}
        node.peer.close_inbox(beats)
        node.peer.wait_until(
            lambda: not node.peer.node.count_publishers('/robot/bond'), 'the end of the publisher'
        )
    assert len(lives) == 2  # The manager must not take the second for the first.
