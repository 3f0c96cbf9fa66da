"""Node that loads, lists and unloads components, compatible with rclcpp's ComponentManager."""

from collections.abc import Callable
import os
from queue import SimpleQueue
import threading
from typing import Any, NamedTuple

from composition_interfaces.srv import ListNodes, LoadNode, UnloadNode
from rcl_interfaces.msg import IntegerRange, ParameterDescriptor
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.task import Future

from trt_ros.container import loading
from trt_ros.errors import TrtRosError, log_text, printable
from trt_ros.process_memory import freeze_garbage_collector
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.process import REFUSED
from trt_ros.ros.qos import REQUESTS
from trt_ros.ros.spinner import Spinner, Thrown


class Component(NamedTuple):
    """A loaded node, its fully qualified name and the thread that spins it."""

    node: Node
    name: str
    spinner: Spinner


class ComponentManager(Node):
    """
    A node that owns the components and their spinners; another executor spins the manager.

    Each component is assigned to one of `thread_num` spinners, so its callbacks never run
    concurrently. One separate thread loads and unloads components in sequence: a constructor may
    take long, and list_nodes still responds at once.

    :ivar on_failed_start: called for `exit_on_failure`, in any thread.
    """

    def __init__(self, *, thread_num: int) -> None:
        super().__init__('ComponentManager', start_parameter_services=False)
        self.on_failed_start: Callable[[], None] | None = None
        self._components: dict[int, Component] = {}
        self._last_id = 0
        self._spinners: list[Spinner] = []
        self._requests: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_closed = False
        # Not a ThreadPoolExecutor: a module that a component imports can shut all of them down.
        self._worker = threading.Thread(target=self._work, name='loading')
        self._thread_num = self._declare(
            'thread_num',
            thread_num,
            'Number of executor threads, which share the components.',
            integer_range=[IntegerRange(from_value=1, to_value=os.cpu_count() or 1, step=1)],
        )
        self._allow_modules = self._declare(
            'allow_modules',
            False,
            'Whether any Python class named module:Class can be loaded; false allows registered '
            'components only.',
        )
        self._exit_on_failure = self._declare(
            'exit_on_failure',
            False,
            'Whether the container ends, with exit code 1, when a component with autostart cannot '
            'be configured or activated.',
        )
        anytime = ReentrantCallbackGroup()
        for kind, name, answer in (
            (LoadNode, 'load_node', self._on_worker(self._load)),
            (UnloadNode, 'unload_node', self._on_worker(self._unload)),
            (ListNodes, 'list_nodes', self._list),
        ):
            topic = f'~/_container/{name}'
            self.create_service(kind, topic, answer, qos_profile=REQUESTS, callback_group=anytime)
        self._worker.start()

    def _declare(self, name: str, default: Any, description: str, **more: Any) -> Any:
        descriptor = ParameterDescriptor(description=description, read_only=True, **more)
        return self.declare_parameter(name, default, descriptor).value

    def stop(self) -> None:
        """Finish the current request, drop pending ones, destroy components in reverse order."""
        self._is_closed = True
        self._requests.put(None)
        self._worker.join()
        for unique_id in sorted(self._components, reverse=True):
            self._destroy(unique_id)
        for spinner in self._spinners:
            spinner.close()

    def _on_worker(self, handle: Callable) -> Callable:
        async def callback(request: object, response: object) -> object:
            future = Future(executor=self.executor)
            # Awaiting alone would not wake the executor; a done callback does.
            future.add_done_callback(lambda _: None)
            self._requests.put(lambda: future.set_result(handle(request, response)))
            return await future

        return callback

    def _work(self) -> None:
        """Handle load and unload requests in sequence."""
        while (request := self._requests.get()) is not None:
            if not self._is_closed:
                request()

    def _load(self, request: LoadNode.Request, response: LoadNode.Response) -> LoadNode.Response:
        plugin = printable(f"'{request.plugin_name}' of package '{request.package_name}'")
        try:
            cls = loading.find_component(
                request.package_name, request.plugin_name, allow_modules=self._allow_modules
            )
            options = loading.node_options(request)
            if options['use_global_arguments']:
                self.get_logger().warning(
                    f"{plugin}: forward_global_arguments applies the container's own arguments, "
                    'such as __node, to this node, too'
                )
            self._last_id += 1  # Before construction: a failed attempt consumes its id.
            node: Any = loading.construct(cls, options)
            if self._exit_on_failure and isinstance(node, ManagedNode):
                node.on_failed_start = self.on_failed_start
            self._add(node)
        except Thrown as error:
            self.get_logger().error(f'Failed to load {plugin}: {_with_traceback(error)}')
            response.error_message = loading.error_text(error)
        else:
            response.success = True
            response.unique_id = self._last_id
            response.full_node_name = self._components[self._last_id].name
            self.get_logger().info(
                f'Loaded {plugin} as {response.full_node_name}, id {self._last_id}'
            )
        if not response.success:
            freeze_garbage_collector()  # Reference cycles keep a lifecycle node in the ROS graph.
        return response

    def _add(self, node: Node) -> None:
        """Assign a component to the spinner with the fewest, or to a new one up to thread_num."""
        node_counts = {spinner: 0 for spinner in self._spinners}
        for component in self._components.values():
            node_counts[component.spinner] += 1
        idlest = min(node_counts, key=node_counts.__getitem__, default=None)
        if idlest is None or (node_counts[idlest] and len(node_counts) < self._thread_num):
            idlest = Spinner(f'components {len(node_counts) + 1}', self.get_logger())
            self._spinners.append(idlest)
        self._components[self._last_id] = Component(node, node.get_fully_qualified_name(), idlest)
        idlest.executor.add_node(node)

    def _unload(
        self, request: UnloadNode.Request, response: UnloadNode.Response
    ) -> UnloadNode.Response:
        response.success = request.unique_id in self._components
        if response.success:
            self._destroy(request.unique_id)
        else:
            response.error_message = f'No node found with unique_id: {request.unique_id}'
            self.get_logger().warning(response.error_message)
        return response

    def _list(
        self, request: ListNodes.Request, response: ListNodes.Response
    ) -> ListNodes.Response:
        components = sorted(dict(self._components).items())
        response.unique_ids = [unique_id for unique_id, _ in components]
        response.full_node_names = [component.name for _, component in components]
        return response

    def _destroy(self, unique_id: int) -> None:
        node, name, spinner = self._components.pop(unique_id)
        spinner.destroy(node)
        del node
        spinner.run_on_executor(lambda: None)  # Then the executor no longer refers to the node.
        freeze_garbage_collector()
        self.get_logger().info(f'Unloaded {name}, id {unique_id}')


def _with_traceback(error: BaseException) -> str:
    bug = error.__cause__ if isinstance(error, loading.LoadError) else error
    if bug is None or isinstance(bug, (TrtRosError, *REFUSED)):
        return loading.error_text(error)
    return f'{loading.error_text(error)}\n{log_text(bug)}'
