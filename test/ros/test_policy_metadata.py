"""A policy node that takes joints, pose, scale and gains of the metadata of its network."""

from importlib.util import find_spec
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float64MultiArray

from support.ros_messages import stamped
from support.save_network import save_network

HAS_GAINS = find_spec('isaac_ros_deploy_interfaces') is not None
WHEEL = find_spec('holosoma_inference')
MODELS = Path(next(iter(WHEEL.submodule_search_locations or ['']))) / 'models' if WHEEL else Path()
NETWORKS = sorted(MODELS.glob('**/*.onnx')) if WHEEL else []
COS, SIN, FORWARD = (1.0, -1.0), (0.0, 0.0), (0.5, 0.25)


@pytest.fixture
def start(start_active, peer):
    """Start a node; return a function that answers observations with commands."""

    def start(path, inputs, **parameters):
        output = 'joint_command' if HAS_GAINS else 'multi_array'
        times = {'blend_seconds': 0.0, 'max_age': 60.0, 'deadline': 60.0}
        given = {'inputs': inputs, 'output': output, **times, **parameters}
        node = start_active('metadata', 'policy', path, **given)
        kind = Float64MultiArray
        if HAS_GAINS:
            from isaac_ros_deploy_interfaces.msg import JointCommand as kind
        commands = peer.inbox(kind, f'/metadata/{"joint_command" if HAS_GAINS else "commands"}')
        kinds = {'imu': Imu, 'joint_states': JointState}
        publishers = [
            peer.connected(kind, topic)
            for topic, kind in kinds.items()
            if f':{topic}#' in str(inputs)
        ]

        def command(state):
            count, imu = len(commands.messages), Imu()
            imu.orientation.w, imu.angular_velocity.x = 1.0, 0.5
            now = 1e-9 * peer.node.get_clock().now().nanoseconds
            for publisher in publishers:
                publisher.publish(stamped(imu if publisher.msg_type is Imu else state, now))
            peer.wait_until(lambda: len(commands.messages) > count, node.log)
            return commands.messages[-1]

        return node, command

    return start


def check(start, path, inputs, observe, scale, offset, **parameters):
    """Compare three runs with ONNX Runtime; `observe` returns the inputs of a run."""
    session = onnxruntime.InferenceSession(str(path))
    metadata = session.get_modelmeta().custom_metadata_map
    names = json.loads(metadata['dof_names'])
    node, command = start(path, inputs(','.join(names)), **parameters)
    assert f'joints: dof_names of the metadata, {len(names)} values' in node.log
    if not HAS_GAINS:
        assert 'kp of the metadata: not published, multi_array has no gains' in node.log
    rng, outputs = np.random.default_rng(0), {}
    for number in range(3):
        q, dq = rng.uniform(-0.2, 0.2, (2, len(names)))
        found = command(JointState(name=names[::-1], position=q[::-1], velocity=dq[::-1]))
        values = session.run(None, observe(number, q, dq, outputs))
        outputs = {each.name: value[0] for each, value in zip(session.get_outputs(), values)}
        wanted = next(iter(outputs.values())) * scale + offset
        np.testing.assert_allclose(found.position if HAS_GAINS else found.data, wanted, atol=1e-4)
        if HAS_GAINS:
            assert found.names == names
            assert [*found.kp] == json.loads(metadata['kp']), 'the order is that of the names'
            assert [*found.kd] == json.loads(metadata['kd'])


def test_a_network_tells_joints_pose_scale_and_gains(start, tmp_path):
    path = save_network(
        tmp_path / 'net.onnx',
        'action = Add(obs, obs)',
        {'obs': (1, 2)},
        {'action': (1, 2)},
        metadata={
            'dof_names': '["hip", "knee"]',
            'default_joint_pos': '0.5, -1.0',
            'action_scale': '0.25',
            'kp': '[20.0, 10.0]',
            'kd': '[0.5, 1.5]',
        },
    )

    def observe(number, q, dq, outputs):
        return {'obs': q[np.newaxis].astype(np.float32)}

    def inputs(names):
        return [f'obs=joints:joint_states#position[{names}]']

    check(start, path, inputs, observe, 0.25, [0.5, -1.0])


@pytest.mark.skipif(not NETWORKS, reason='no networks: pip install --no-deps holosoma-inference')
@pytest.mark.parametrize('path', NETWORKS or [Path()], ids=lambda path: path.stem)
def test_networks_of_holosoma_run_with_their_metadata(start, path):
    is_dance = 'dancing' in path.stem
    last, action = ('actions', 'actions') if is_dance else ('action', 'action')
    size, pose = 29, np.linspace(-0.3, 0.3, 29).round(3)

    def inputs(names):
        default = ','.join(map(str, pose))
        parts = [
            f'last=state:{last}',
            'turn=imu:imu#angular_velocity[x,y,z]?scale=0.25',
            f'q=joints:joint_states#position[{names}]?default={default}',
            f'dq=joints:joint_states#velocity[{names}]?scale=0.05',
        ]
        if is_dance:
            return [
                'obs=concat:last,turn,q,dq,pos,vel,turned',
                'time_step=counter:0',
                'pos=state:joint_pos',
                'vel=state:joint_vel',
                'turned=constant:1,0,0,1,0,0',
                *parts,
            ]
        return [
            'actor_obs=concat:last,turn,yaw,forward,cos,q,dq,gravity,sin',
            'yaw=twist:cmd_vel#angular[z]?held=true&initial=0.125',
            f'forward=twist:cmd_vel#linear[x,y]?held=true&initial={FORWARD[0]},{FORWARD[1]}',
            f'cos=constant:{COS[0]},{COS[1]}',
            f'sin=constant:{SIN[0]},{SIN[1]}',
            'gravity=imu:imu#gravity',
            *parts,
        ]

    def observe(number, q, dq, outputs):
        before = {name: outputs.get(name, np.zeros(size)) for name in (action, 'joint_pos')}
        turn, q, dq = (0.125, 0, 0), q - pose, 0.05 * dq
        if is_dance:
            speed = outputs.get('joint_vel', np.zeros(size))
            motion = (*before['joint_pos'], *speed, 1, 0, 0, 1, 0, 0)
            obs = (*before[action], *turn, *q, *dq, *motion)
            return {
                'obs': np.array([obs], np.float32),
                'time_step': np.array([[number]], np.float32),
            }
        obs = (*before[action], *turn, 0.125, *FORWARD, *COS, *q, *dq, 0, 0, -1, *SIN)
        return {'actor_obs': np.array([obs], np.float32)}

    given = {'action_scale': [0.25], 'action_offset': pose.tolist()}
    if is_dance:
        given['outputs'] = ['actions']
    check(start, path, inputs, observe, 0.25, pose, **given)
