"""A managed node that fails where it is told to, and says what it releases."""

from dataclasses import dataclass
import sys

from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node


@dataclass(frozen=True)
class FaultyParameters(NodeParameters):
    """What goes wrong."""

    fault: str = param('', 'Where to fail.', mutable=True)


class FaultyNode(ManagedNode):
    """Owns two things while configured and one while active."""

    Parameters = FaultyParameters

    def on_configure(self, state):
        result = super().on_configure(state)
        return None if self.parameters.fault == 'no return' else result

    def configure(self):
        self.take(self.while_configured, 'first')
        self.fail_in('configure')
        self.take(self.while_configured, 'second')
        # Fails in the executor's thread, outside of any transition.
        timer = self.create_timer(0.001, lambda: self.fail_in('callback'))
        self.while_configured.callback(
            lambda: self.run_on_executor(lambda: self.destroy_timer(timer))
        )

    def activate(self):
        self.take(self.while_active, 'third')
        self.fail_in('activate')

    def take(self, stack, what):
        def release():
            self.get_logger().info(f'released {what}')
            self.fail_in(f'release {what}')

        stack.callback(release)

    def fail_in(self, place):
        if self.get_parameter('fault').value == place:
            raise RuntimeError(f'fault in {place}')


if __name__ == '__main__':
    sys.exit(run_node(lambda: FaultyNode('faulty')))
