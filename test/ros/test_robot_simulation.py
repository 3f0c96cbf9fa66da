"""The node of the simulated robot: commands that it takes, and transforms that it publishes."""

import numpy as np
import pytest

pytest.importorskip('mujoco')

from builtin_interfaces.msg import Duration
from demo.robot.sim_node import SimNode
from demo.robot.world import CONTROL_SECONDS, EYE_POSITION, EYE_TILT, JOINTS, STANDING
import rclpy
from rclpy.executors import SingleThreadedExecutor
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from trt_ros.ros.qos import LATCHED, RESULTS


@pytest.fixture
def simulated(domain_id):
    """Return a simulation, another node, and a function that handles one message of either."""
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain_id)
    sim, other = SimNode(context=context), rclpy.create_node('other', context=context)
    executor = SingleThreadedExecutor(context=context)
    for node in (sim, other):
        executor.add_node(node)
    yield sim, other, executor.spin_once
    executor.shutdown()
    for node in (sim, other):
        node.destroy_node()
    context.try_shutdown()


def test_a_trajectory_is_followed_by_name_and_time_and_ends_with_its_last_point(simulated, peer):
    sim, other, spin_once = simulated
    publisher = other.create_publisher(JointTrajectory, 'policy/joint_trajectory', RESULTS)
    names = JOINTS[::-1]
    message = JointTrajectory(joint_names=names)
    for steps, bent in ((1, 0.1), (2, 0.2), (4, 0.4)):
        point = JointTrajectoryPoint(positions=(STANDING + bent)[::-1].tolist())
        point.time_from_start = Duration(nanosec=round(steps * CONTROL_SECONDS * 1e9))
        message.points.append(point)
    peer.wait_until(publisher.get_subscription_count, 'the simulation')
    publisher.publish(message)
    peer.wait_until(lambda: spin_once(0.05) or sim.has_started, 'the trajectory')
    for steps, bent in ((1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4), (9, 0.4)):
        found = sim._targets(steps * CONTROL_SECONDS)
        np.testing.assert_allclose(found, STANDING + bent, atol=1e-6)
    publisher.publish(JointTrajectory(joint_names=names[1:], points=message.points))
    sim.tick(spin_once)
    assert np.isclose(sim.simulation.data.ctrl, STANDING + 0.1).all()


def test_transforms_lead_from_odom_to_the_camera(simulated, peer):
    messages = pytest.importorskip('tf2_msgs.msg')
    sim, other, spin_once = simulated
    found = {}
    for topic, qos in (('/tf', 10), ('/tf_static', LATCHED)):
        other.create_subscription(
            messages.TFMessage,
            topic,
            lambda message: found.update(
                {each.child_frame_id: each for each in message.transforms}
            ),
            qos,
        )
    peer.wait_until(lambda: sim.tick(spin_once) and len(found) == 2, 'both transforms')
    base, camera = found['base_link'], found['camera_optical_frame']
    assert (base.header.frame_id, camera.header.frame_id) == ('odom', 'base_link')
    assert base.transform.translation.z == pytest.approx(sim.simulation.data.qpos[2], abs=0.05)
    at, turned = camera.transform.translation, camera.transform.rotation
    assert (at.x, at.y, at.z) == pytest.approx(EYE_POSITION)
    w, x, y, z = turned.w, turned.x, turned.y, turned.z
    forward = [2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)]
    np.testing.assert_allclose(forward, [np.cos(EYE_TILT), 0, -np.sin(EYE_TILT)], atol=1e-6)
