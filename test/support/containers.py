"""A component container, asked over its services."""

from composition_interfaces import srv
from rcl_interfaces.srv import GetParameters
from rclpy.parameter import Parameter


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
