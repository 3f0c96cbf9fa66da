"""A component container, asked over its services."""

from composition_interfaces import srv
import numpy as np
from rcl_interfaces.srv import GetParameters
from rclpy.parameter import Parameter

from support.ros_nodes import RemoteNode


class Container:
    """A container process and the requests one makes to it."""

    def __init__(self, node, full_name):
        self.node, self.peer, self.process = node, node.peer, node.process
        self.name, self._services = full_name, f'{full_name}/_container/'
        # Requests that change nothing: once they are answered, no answer gets lost.
        # Without a package name, a container in C++ would exit.
        self.peer.call(srv.LoadNode, f'{self._services}load_node', package_name='none')
        self.peer.call(srv.UnloadNode, f'{self._services}unload_node')

    def ask(self, plugin, package='', *, extra=(), parameters=(), **fields):
        """Ask to load a component; return the future of the answer."""

        def messages(pairs):
            return [Parameter(name, value=value).to_parameter_msg() for name, value in pairs]

        return self.peer.ask(
            srv.LoadNode,
            self._services + 'load_node',
            package_name=package,
            plugin_name=plugin,
            parameters=messages(parameters),
            extra_arguments=messages(extra),
            **fields,
        )

    def load(self, *arguments, **fields):
        return self.peer.wait(self.ask(*arguments, **fields), self.node.log)

    def unload(self, unique_id):
        return self.peer.wait(
            self.peer.ask(srv.UnloadNode, self._services + 'unload_node', unique_id=unique_id)
        )

    def list(self):
        found = self.peer.call(srv.ListNodes, self._services + 'list_nodes')
        return dict(zip(found.unique_ids, found.full_node_names))

    def unload_all(self):
        for unique_id in self.list():
            assert self.unload(unique_id).success

    def rate_of(self, node):
        """Read the parameter `rate` of a component."""
        answer = self.peer.call(GetParameters, f'{node}/get_parameters', names=['rate'])
        return answer.values[0].double_value

    def says(self, text):
        self.node.wait_for_log(text)

    def sees_nodes(self, condition):
        """Wait until the names of all nodes fulfil `condition`."""
        self.peer.wait_until(lambda: condition(self.peer.node.get_node_names()), 'the nodes')


def check_policy(container, folder, **fields):
    """Load a policy of an IMU and two joints, get its commands, and unload it."""
    from sensor_msgs.msg import Imu, JointState
    from std_msgs.msg import Float64MultiArray

    from support.save_network import save_network

    weights = np.arange(10, dtype=np.float32).reshape(5, 2)
    network = 'action = MatMul(obs, w)'
    shapes = {'obs': (1, 5)}, {'action': (1, 2)}
    loaded = container.load(
        'trt_ros::PolicyNode',
        'trt_ros',
        node_name='walker',
        parameters={
            'model_path': save_network(
                folder / 'walker.onnx', network, *shapes, constants={'w': weights}
            ),
            'inputs': [
                'obs=concat:gravity,q',
                'gravity=imu:imu#gravity',
                'q=joints:joint_states#position[hip,knee]',
            ],
            'joints': ['hip', 'knee'],
            'output': 'multi_array',
            'rate_hz': 50.0,
            'max_age': 60.0,
            'blend_seconds': 0.0,
            'backend': 'onnxruntime',
        }.items(),
        **fields,
    )
    assert loaded.success, loaded.error_message
    peer = container.peer
    node = RemoteNode(peer, 'walker')
    assert node.change('configure') and node.change('activate'), container.node.log
    commands = peer.inbox(Float64MultiArray, '/walker/commands')
    imu, state = Imu(), JointState(name=['knee', 'hip'], position=[0.5, 0.25])
    imu.orientation.w = 1.0
    publishers = [
        (peer.publisher(type(m), t), m) for m, t in ((imu, 'imu'), (state, 'joint_states'))
    ]

    def has_command():
        for publisher, message in publishers:
            message.header.stamp = peer.node.get_clock().now().to_msg()
            publisher.publish(message)
        return commands.messages

    peer.wait_until(has_command, container.node.log)
    want = np.array([0, 0, -1, 0.25, 0.5]) @ weights
    np.testing.assert_allclose(commands.messages[0].data, want)
    assert container.unload(loaded.unique_id).success
    container.sees_nodes(lambda names: 'walker' not in names)
