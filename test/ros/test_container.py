"""The component container, in a process of its own, asked over its services."""

from __future__ import annotations

import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

rclpy = pytest.importorskip('rclpy')
srv = pytest.importorskip('composition_interfaces.srv')

from lifecycle_msgs.msg import Transition  # noqa: E402
from lifecycle_msgs.srv import ChangeState  # noqa: E402
from rcl_interfaces.srv import GetParameters  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402

pytestmark = pytest.mark.ros

DEADLINE_SECONDS = 60.0
HERE = Path(__file__).parent
DOMAINS = iter(random.sample(range(1, 101), 100))  # One a container: all have the same name.


class Container:
    """A container process, its output, and a client of its services."""

    def __init__(self, environment, *arguments, executable='main'):
        domain = next(DOMAINS)
        self.process = subprocess.Popen(
            [sys.executable, '-c', 'import sys; import trt_ros.container.__main__ as container; '
             f'sys.exit(container.{executable}(sys.argv))', *arguments],
            env={**environment, 'ROS_DOMAIN_ID': str(domain)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = ''
        self._grown = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._context = rclpy.Context()
        rclpy.init(context=self._context, domain_id=domain)
        self.node = rclpy.create_node('test_container', context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)

    def _read(self):
        for line in self.process.stdout:
            with self._grown:
                self.output += line
                self._grown.notify_all()

    def says(self, text):
        with self._grown:
            assert self._grown.wait_for(lambda: text in self.output, DEADLINE_SECONDS), self.output

    def call(self, kind, service, wait=True, **fields):
        """Call a service; with `wait=False` return the future of its answer."""
        client = self.node.create_client(kind, service)
        assert client.wait_for_service(DEADLINE_SECONDS), f'no {service}\n{self.output}'
        future = client.call_async(kind.Request(**fields))
        return self.answer(future) if wait else future

    def answer(self, future):
        self._executor.spin_until_future_complete(future, DEADLINE_SECONDS)
        assert future.done(), self.output
        return future.result()

    def load(self, plugin, package='', *, extra=(), parameters=(), wait=True, **fields):
        def messages(pairs):
            return [Parameter(name, value=value).to_parameter_msg() for name, value in pairs]

        return self.call(
            srv.LoadNode, '/ComponentManager/_container/load_node', wait, package_name=package,
            plugin_name=plugin, parameters=messages(parameters), extra_arguments=messages(extra),
            **fields)

    def unload(self, unique_id):
        return self.call(
            srv.UnloadNode, '/ComponentManager/_container/unload_node', unique_id=unique_id)

    def list(self):
        found = self.call(srv.ListNodes, '/ComponentManager/_container/list_nodes')
        return dict(zip(found.unique_ids, found.full_node_names))

    def unload_all(self):
        for unique_id in self.list():
            assert self.unload(unique_id).success

    def sees_nodes(self, condition):
        """Wait until the names of all nodes fulfil `condition`."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition(self.node.get_node_names()):
            assert time.monotonic() < deadline, self.node.get_node_names()
            self._executor.spin_once(0.1)

    def stop(self, number=signal.SIGINT):
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.ends()

    def ends(self):
        status = self.process.wait(DEADLINE_SECONDS)
        self._reader.join()
        return status

    def close(self):
        if self.process.poll() is None:
            self.stop()
        self._reader.join()
        self.process.stdout.close()
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)


@pytest.fixture(scope='module')
def environment(tmp_path_factory):
    """This machine only, a Python package with an entry point, a package of C++ components."""
    root = tmp_path_factory.mktemp('packages')
    info = root / 'python_pkg-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: python_pkg\nVersion: 1.0\n')
    (info / 'entry_points.txt').write_text(
        '[rclpy_components]\n'
        'python_pkg::Options = components:Options\n'
        'python_pkg::Absent = components:Absent\n'
        'python_pkg::Broken = no_such_module:Node\n'
        'python_pkg::NotANode = components:not_a_node\n')
    index = root / 'share' / 'ament_index' / 'resource_index' / 'rclcpp_components'
    index.mkdir(parents=True)
    (index / 'cpp_pkg').write_text('cpp_pkg::Camera;lib/libcamera.so\n')
    (index / 'malformed_pkg').write_text('malformed_pkg::Camera\n')
    set_here = pytest.MonkeyPatch()
    set_here.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    yield {
        **os.environ,
        'PYTHONPATH': os.pathsep.join([
            str(root), str(HERE), str(HERE.parents[1]), os.environ.get('PYTHONPATH', '')]),
        'AMENT_PREFIX_PATH': f'{root}{os.pathsep}{os.environ.get("AMENT_PREFIX_PATH", "")}',
    }
    set_here.undo()


@pytest.fixture(scope='module')
def shared(environment):
    container = Container(environment)
    yield container
    container.close()


@pytest.fixture
def container(shared):
    """The module's container, empty; each test leaves it alive."""
    yield shared
    shared.unload_all()
    assert shared.process.poll() is None


@pytest.fixture
def start(environment):
    """Start a container for this test alone."""
    started = []

    def start_one(*arguments, **keywords):
        started.append(Container(environment, *arguments, **keywords))
        return started[-1]

    yield start_one
    for one in started:
        one.close()


@pytest.fixture
def hold(tmp_path):
    """A file; components wait for its end."""
    file = tmp_path / 'hold'
    file.touch()
    return file


def test_an_empty_container_lists_nothing(container):
    assert container.list() == {}


@pytest.mark.parametrize('plugin', ['Options', 'NoOptions'])
def test_a_node_gets_its_name_namespace_remaps_and_parameters(container, plugin):
    loaded = container.load(
        f'components:{plugin}', node_name=f'my_{plugin}', node_namespace='/front',
        remap_rules=['chatter:=/gossip'], parameters=[('rate', 2.5)])
    assert loaded.success, loaded.error_message
    assert loaded.full_node_name == f'/front/my_{plugin}'
    container.says(f'</front/my_{plugin} /gossip 2.5>')
    assert container.list() == {loaded.unique_id: f'/front/my_{plugin}'}
    values = container.call(
        GetParameters, f'/front/my_{plugin}/get_parameters', names=['rate']).values
    assert [value.double_value for value in values] == [2.5]


def test_the_name_in_the_request_beats_a_remap_rule(container):
    loaded = container.load('components:Options', node_name='asked', remap_rules=['__node:=rule'])
    assert loaded.full_node_name in ('/asked', '/rule')


def test_a_node_keeps_the_name_it_gives_itself(container):
    assert container.load('components:NoOptions').full_node_name == '/no_options'


def test_an_entry_point_names_a_plugin(container):
    loaded = container.load('python_pkg::Options', 'python_pkg')
    assert (loaded.success, loaded.full_node_name, loaded.error_message) == (True, '/options', '')


@pytest.mark.parametrize(('package', 'plugin', 'message'), [
    ('', '', 'Could not find requested resource in ament index'),
    ('no_pkg', 'no_pkg::Node', 'Could not find requested resource in ament index'),
    ('malformed_pkg', 'malformed_pkg::Camera', 'Invalid resource entry'),
    ('cpp_pkg', 'cpp_pkg::Lidar', 'Failed to find class with the requested plugin name.'),
    ('cpp_pkg', 'cpp_pkg::Camera', 'Failed to load library: lib/libcamera.so is not a Python '
     'component; load it into the container of rclcpp_components'),
    ('python_pkg', 'python_pkg::Lidar', 'Failed to find class with the requested plugin name.'),
    ('python_pkg', 'python_pkg::Absent', 'Failed to find class with the requested plugin name.'),
    ('python_pkg', 'python_pkg::Broken',
     "Failed to load library: No module named 'no_such_module'"),
    ('python_pkg', 'python_pkg::NotANode',
     'Failed to load library: components:not_a_node is not an rclpy Node'),
    ('', 'components:ThrowsLoading',
     'Component constructor threw an exception: no such camera'),
    ('', 'components:RefusesLoading',
     'Component constructor threw an exception: No model.\nRemedy: Set model_path.'),
    ('', 'components:ExitsLoading', 'Component constructor threw an exception: gone'),
])
def test_what_cannot_be_loaded_says_why(container, package, plugin, message):
    refused = container.load(plugin, package)
    assert (refused.success, refused.full_node_name, refused.unique_id, refused.error_message) == (
        False, '', 0, message)
    assert container.list() == {}


def test_a_node_that_throws_while_loading_leaves_the_graph(container):
    container.load('components:ThrowsLoading')
    container.sees_nodes(lambda names: 'ComponentManager' in names)
    container.sees_nodes(lambda names: 'throws_loading' not in names)


@pytest.mark.parametrize(('argument', 'value', 'message'), [
    ('colour', True, "Extra component argument 'colour' is not supported"),
    ('enable_rosout', 1, "Extra component argument 'enable_rosout' must be a boolean"),
    ('enable_topic_statistics', True, "Extra component argument 'enable_topic_statistics' is not "
     'supported: in rclpy it is always false'),
    ('start_parameter_event_publisher', False, "Extra component argument "
     "'start_parameter_event_publisher' is not supported: in rclpy it is always true"),
])
def test_an_extra_argument_that_cannot_be_honoured_is_refused(container, argument, value, message):
    refused = container.load('components:Options', extra=[(argument, value)])
    assert (refused.success, refused.error_message) == (False, message)


def test_extra_arguments_reach_the_node(container):
    assert container.load('components:Options', extra=[
        ('start_parameter_services', False), ('enable_rosout', False),
        ('enable_logger_service', True), ('use_intra_process_comms', True),
    ]).success
    client = container.node.create_client(GetParameters, '/options/get_parameters')
    logger_levels = '/options/get_logger_levels'
    container.sees_nodes(lambda _: logger_levels in dict(
        container.node.get_service_names_and_types()))
    assert not client.service_is_ready()
    loggers = container.node.get_publishers_info_by_topic('/rosout')
    assert 'options' not in [logger.node_name for logger in loggers]


def test_ids_grow_by_one_an_attempt_and_never_come_back(start):
    container = start()
    assert container.load('components:Options').unique_id == 1
    assert not container.load('components:ThrowsLoading').success  # Uses up 2.
    assert not container.load('components:Options', extra=[('colour', True)]).success
    assert not container.load('no_pkg::Node', 'no_pkg').success
    assert container.load('components:Options').unique_id == 3
    assert container.unload(3).success
    assert container.load('components:Options').unique_id == 4
    assert list(container.list()) == [1, 4]


def test_unloading_destroys_the_node(container):
    unique_id = container.load('components:Options', node_name='brief').unique_id
    container.sees_nodes(lambda names: 'brief' in names)
    unloaded = container.unload(unique_id)
    assert (unloaded.success, unloaded.error_message) == (True, '')
    container.says('<destroying /brief>')
    container.sees_nodes(lambda names: 'brief' not in names)


def test_an_unknown_id_cannot_be_unloaded(container):
    refused = container.unload(12345)
    assert (refused.success, refused.error_message) == (
        False, 'No node found with unique_id: 12345')


def test_a_node_that_throws_while_spinning_spins_on_and_harms_nobody(container):
    assert container.load('components:Options', node_name='neighbour').success
    assert container.load('components:ThrowsSpinning').success
    container.says('<tick 3>')
    container.says('ValueError: bad frame')
    container.says('SystemExit: 3')
    assert container.call(
        GetParameters, '/neighbour/get_parameters', names=['rate']).values[0].double_value == 1.0


def test_a_node_that_throws_while_unloading_is_gone_all_the_same(container):
    unique_id = container.load('components:ThrowsUnloading').unique_id
    container.sees_nodes(lambda names: 'throws_unloading' in names)
    assert container.unload(unique_id).success
    container.says('RuntimeError: cannot let go')
    container.sees_nodes(lambda names: 'throws_unloading' not in names)


def test_list_answers_while_a_constructor_takes_its_time(container, hold):
    loading = container.load(
        'components:SlowLoading', parameters=[('hold', str(hold))], wait=False)
    container.says('<constructing>')
    assert container.list() == {}
    assert not loading.done()
    hold.unlink()
    assert container.answer(loading).full_node_name == '/slow_loading'


def test_a_lifecycle_node_without_options_is_renamed_and_changes_state(container):
    assert container.load('components:Managed', node_name='camera').full_node_name == '/camera'
    assert container.call(ChangeState, '/camera/change_state', transition=Transition(
        id=Transition.TRANSITION_CONFIGURE)).success


def test_the_container_can_be_renamed_and_its_components_are_not(start):
    container = start('--ros-args', '-r', '__node:=box', '-r', '__ns:=/robot')
    loaded = container.call(srv.LoadNode, '/robot/box/_container/load_node',
                            plugin_name='components:Options')
    assert loaded.full_node_name == '/options'


def test_forwarded_global_arguments_rename_the_component_and_a_warning_says_so(start):
    container = start('--ros-args', '-r', '__ns:=/robot')
    loaded = container.call(
        srv.LoadNode, '/robot/ComponentManager/_container/load_node',
        plugin_name='components:Options', extra_arguments=[
            Parameter('forward_global_arguments', value=True).to_parameter_msg()])
    assert loaded.full_node_name == '/robot/options'
    container.says('forward_global_arguments lets the container')


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_unloads_all_last_loaded_first(start, number):
    container = start()
    for name in ('first', 'second'):
        assert container.load('components:Options', node_name=name).success
    assert container.load('components:ThrowsUnloading').success
    assert container.stop(number) == 0
    assert container.output.index('<destroying /second>') < container.output.index(
        '<destroying /first>')


def test_a_component_that_ends_ros_ends_the_container_in_order(start):
    container = start()
    assert container.load('components:Options').success
    container.load('components:EndsRos', wait=False)
    assert container.ends() == 0
    assert '<destroying /options>' in container.output


def test_two_threads_keep_a_busy_component_apart(start, hold):
    container = start('--ros-args', '-p', 'thread_num:=2')
    assert container.load('components:Busy', parameters=[('hold', str(hold))]).success
    container.says('<busy>')
    assert container.load('components:Options', node_name='idle').success
    assert container.call(
        GetParameters, '/idle/get_parameters', names=['rate']).values[0].double_value == 1.0
    assert '<free>' not in container.output
    hold.unlink()
    container.says('<free>')


@pytest.mark.parametrize('threads', [0, 100000])
def test_a_number_of_threads_out_of_range_is_refused(start, threads):
    container = start('--ros-args', '-p', f'thread_num:={threads}')
    assert container.ends() == 1
    assert 'thread_num' in container.output


def test_the_multi_threaded_container_serves_and_ends_alike(start):
    container = start(executable='main_mt')
    for name in ('first', 'second', 'third'):
        assert container.load('components:Options', node_name=name).success
    assert list(container.list().values()) == ['/first', '/second', '/third']
    assert container.stop() == 0
