"""A ROS context, and nodes that are spun in this process."""

from collections.abc import Callable, Iterator

import pytest

from support.waiting import wait_until


@pytest.fixture(scope='module')
def context() -> Iterator:
    """Return a context in a domain of its own."""
    pytest.importorskip('rclpy')
    from demo.domain import reserved_domain
    from rclpy.context import Context

    with reserved_domain() as number:
        context = Context()
        context.init(domain_id=number)
        yield context
        context.try_shutdown()


@pytest.fixture
def spin(context) -> Iterator[Callable]:
    """Return a function that spins nodes until a condition holds; destroy them in the end."""
    from rclpy.executors import SingleThreadedExecutor

    executor = SingleThreadedExecutor(context=context)

    def until(condition, *nodes):
        for node in nodes:
            executor.add_node(node)

        def holds():
            executor.spin_once(timeout_sec=0.01)
            return condition()

        wait_until(holds)

    yield until
    for node in executor.get_nodes():
        node.destroy_node()
    executor.shutdown()
