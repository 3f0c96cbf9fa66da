"""A simulated quadruped that a policy walks through topics, in lockstep."""

from collections.abc import Callable
import os
import time
from typing import Any

from support.data import DATA
from support.ros_messages import follow_clock, stamped
from support.ros_peer import Inbox, Peer

os.environ.setdefault('MUJOCO_GL', 'disabled')  # It looks for a window otherwise.
POLICIES = DATA / 'policies'
HOME = [0.1, 0.9, -1.8, -0.1, 0.9, -1.8] * 2
PERIOD, PHYSICS_STEPS, START = 0.02, 5, 10.0
LEGS, PARTS = ('FR', 'FL', 'RR', 'RL'), ('hip', 'thigh', 'calf')
JOINTS = [f'{leg}_{part}_joint' for leg in LEGS for part in PARTS]
_NAMES, _HOME = ','.join(JOINTS), ','.join(map(str, HOME))
INPUTS = [
    'obs=concat:velocity,turn,gravity,q,dq,last,command',
    'velocity=odometry:odom#linear[x,y,z]',
    'turn=imu:imu#angular_velocity[x,y,z]',
    'gravity=imu:imu#gravity',
    f'q=joints:joint_states#position[{_NAMES}]?default={_HOME}',
    f'dq=joints:joint_states#velocity[{_NAMES}]',
    'last=state:continuous_actions',
    'command=twist:cmd_vel#linear[x,y],angular[z]?held=true&initial=0.8,0,0',
]
PARAMETERS = {
    'model_path': str(POLICIES / 'go1' / 'go1_policy.onnx'),
    'inputs': INPUTS,
    'joints': JOINTS,
    'action_scale': [0.5],
    'action_offset': HOME,
    'blend_seconds': 0.0,
    'deadline': 0.1,
    'use_sim_time': True,
}


class Go1:
    """
    The robot: its sensors are published, and its joints follow the commands.

    :param commands: of the policy, and `positions`: those of a message, by JOINTS.
    :param is_simulated: whether the time of the node is that of /clock.
    """

    def __init__(
        self,
        peer: Peer,
        commands: Inbox,
        positions: Callable[[Any], Any],
        is_simulated: bool = True,
    ) -> None:
        import mujoco
        from nav_msgs.msg import Odometry
        from rosgraph_msgs.msg import Clock
        from sensor_msgs.msg import Imu, JointState

        self._mujoco, self.commands, self._positions = mujoco, commands, positions
        scene = POLICIES / 'go1' / 'scene_mjx_feetonly_flat_terrain.xml'
        self.model = mujoco.MjModel.from_xml_path(str(scene))
        self.model.opt.timestep = PERIOD / PHYSICS_STEPS
        self.data = mujoco.MjData(self.model)
        self.stand()
        self._publishers = {
            kind: peer.publisher(kind, topic)
            for kind, topic in (
                (JointState, 'joint_states'),
                (Imu, 'imu'),
                (Odometry, 'odom'),
                (Clock, 'clock'),
            )
        }
        self._peer, self.steps, self.time_offset = peer, 0, START
        self.is_simulated = is_simulated
        self.wait_for_subscriptions()
        self.parameters: dict[str, Any] = {}  # Of the node.

    def wait_for_subscriptions(self) -> None:
        from rosgraph_msgs.msg import Clock

        for kind, publisher in self._publishers.items():
            if self.is_simulated or kind is not Clock:
                self._peer.wait_until(publisher.get_subscription_count, publisher.topic_name)
        if self.is_simulated:
            follow_clock(self._peer, self.publish_clock, self.time)

    def stand(self) -> None:
        """Put the robot where it began, at rest."""
        self._mujoco.mj_resetDataKeyframe(self.model, self.data, 0)
        self.data.ctrl[:] = HOME
        self._mujoco.mj_forward(self.model, self.data)

    @property
    def time(self) -> float:
        """Simulated time in seconds."""
        return round(self.time_offset + self.steps * PERIOD, 6)

    @property
    def distance(self) -> float:
        """Way in the direction of x in meters."""
        return float(self.data.qpos[0])

    @property
    def upright(self) -> float:
        """Component z of the z axis of the body; 1 when it stands."""
        return float(self.data.sensor('upvector').data[2])

    def publish_clock(self) -> None:
        from rosgraph_msgs.msg import Clock

        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(round(1e9 * self.time), 10**9)
        self._publishers[Clock].publish(message)

    def publish_sensors(self) -> None:
        from nav_msgs.msg import Odometry
        from sensor_msgs.msg import Imu, JointState

        sensor = {
            name: self.data.sensor(name).data.tolist()
            for name in ('orientation', 'gyro', 'local_linvel')
        }
        imu, odometry = Imu(), Odometry()
        q = imu.orientation
        q.w, q.x, q.y, q.z = sensor['orientation']
        turn, velocity = imu.angular_velocity, odometry.twist.twist.linear
        turn.x, turn.y, turn.z = sensor['gyro']
        velocity.x, velocity.y, velocity.z = sensor['local_linvel']
        state = JointState(
            name=JOINTS, position=self.data.qpos[7:].tolist(), velocity=self.data.qvel[6:].tolist()
        )
        now = self.time if self.is_simulated else time.time()
        for message in (imu, odometry, state):
            self._publishers[type(message)].publish(stamped(message, now))

    def step(self) -> None:
        """Simulate one period with the present targets."""
        self._mujoco.mj_step(self.model, self.data, PHYSICS_STEPS)
        self.steps += 1

    def next_command(self) -> None:
        """Publish the sensors, wait for the command that follows, and take it as the target."""
        count, polls = len(self.commands.messages), 0
        self.publish_clock()
        self.publish_sensors()

        def has_come() -> bool:
            nonlocal polls
            polls += 1
            if polls % 50 == 0:
                self.publish_clock()  # The first messages may be lost.
                self.publish_sensors()
            return len(self.commands.messages) > count

        self._peer.wait_until(has_come, f'command {count} at {self.time}')
        self.data.ctrl[:] = self._positions(self.commands.messages[-1])

    def walk(self, seconds: float, is_lost: Callable[[int], bool] = lambda step: False) -> None:
        """Simulate; observations that are lost leave the targets as they are."""
        for _ in range(round(seconds / PERIOD)):
            if is_lost(self.steps):
                self.publish_clock()
            else:
                self.next_command()
            self.step()

    def walk_in_real_time(self, seconds: float) -> int:
        """Simulate by the wall clock; return the number of periods without a command."""
        missed, due = 0, time.monotonic()
        for _ in range(round(seconds / PERIOD)):
            count, due = len(self.commands.messages), due + PERIOD
            self.publish_sensors()
            while len(self.commands.messages) == count and time.monotonic() < due:
                time.sleep(2e-4)
            if len(self.commands.messages) > count:
                self.data.ctrl[:] = self._positions(self.commands.messages[-1])
            else:
                missed += 1
            self.step()
            time.sleep(max(due - time.monotonic(), 0.0))
        return missed
