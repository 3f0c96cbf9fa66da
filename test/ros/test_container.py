"""The component container, in a process of its own, asked over its services."""

import itertools
import os
from pathlib import Path
import signal

import pytest

from support.containers import Container
from support.ros_nodes import RemoteNode
from support.waiting import DEADLINE_SECONDS
from trt_ros.demo import MODEL

NODES = Path(__file__).parents[1] / 'support/nodes'


@pytest.fixture(scope='module', autouse=True)
def packages(tmp_path_factory):
    """A Python package with entry points, and one of C++ components in the ament index."""
    root = tmp_path_factory.mktemp('packages')
    info = root / 'python_pkg-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: python_pkg\nVersion: 1.0\n')
    (info / 'entry_points.txt').write_text(
        '[rclpy_components]\n'
        'python_pkg::Options = components:Options\n'
        'python_pkg::Absent = components:Absent\n'
        'python_pkg::Broken = no_such_module:Node\n'
        'python_pkg::NotANode = components:not_a_node\n'
    )
    for name, code in (
        ('leaves', 'raise SystemExit(3)'),
        ('is_interrupted', 'raise KeyboardInterrupt'),
        ('ends_the_pools', 'import concurrent.futures.thread as pools\npools._python_exit()'),
    ):
        (root / f'{name}.py').write_text(code)
    index = root / 'share' / 'ament_index' / 'resource_index' / 'rclcpp_components'
    index.mkdir(parents=True)
    (index / 'cpp_pkg').write_text('cpp_pkg::Camera;lib/libcamera.so\n')
    (index / 'indexed_pkg').write_text('indexed_pkg::Options;components:Options\n')
    (index / 'malformed_pkg').write_text('malformed_pkg::Camera\n')
    with pytest.MonkeyPatch.context() as patch:
        for name, paths in (('PYTHONPATH', [root, NODES]), ('AMENT_PREFIX_PATH', [root])):
            patch.setenv(
                name, os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get(name)])])
            )
        yield


@pytest.fixture(scope='module')
def start(packages, start_node):
    """Start a container under a name of its own."""
    names = (f'container_{number}' for number in itertools.count())

    def start_one(*ros_args, namespace='', program='trt_ros.container', **parameters):
        name = next(names)
        return Container(
            start_node(name, program, *ros_args, **{'allow_modules': True, **parameters}),
            f'{namespace}/{name}',
        )

    return start_one


@pytest.fixture(scope='module')
def shared(start):
    return start()


@pytest.fixture
def container(shared):
    """The module's container, empty; each test leaves it alive."""
    yield shared
    shared.unload_all()
    assert shared.process.poll() is None


@pytest.fixture
def hold(tmp_path):
    """A file; components wait for its end."""
    file = tmp_path / 'hold'
    file.touch()
    return file


@pytest.mark.parametrize('plugin', ['Options', 'NoOptions'])
def test_a_node_gets_its_name_namespace_remaps_and_parameters(container, plugin):
    loaded = container.load(
        f'components:{plugin}',
        node_name=f'my_{plugin}',
        node_namespace='/front',
        remap_rules=['chatter:=/gossip'],
        parameters=[('rate', 2.5)],
    )
    assert loaded.success, loaded.error_message
    assert loaded.full_node_name == f'/front/my_{plugin}'
    container.says(f'</front/my_{plugin} /gossip 2.5>')
    assert container.list() == {loaded.unique_id: f'/front/my_{plugin}'}
    assert container.rate_of(f'/front/my_{plugin}') == 2.5


def test_a_remap_rule_beats_the_name_in_the_request_and_a_node_keeps_its_own(container):
    loaded = container.load('components:Options', node_name='asked', remap_rules=['__node:=rule'])
    assert loaded.full_node_name == '/rule'  # As in C++: rcl applies the first rule that fits.
    assert container.load('components:NoOptions').full_node_name == '/no_options'


NOT_FOUND = 'Could not find requested resource in ament index'
NO_CLASS = 'Failed to find class with the requested plugin name.'
LIBRARY, THROWN = 'Failed to load library: ', 'Component constructor threw an exception: '


@pytest.mark.parametrize(
    ('package', 'plugin', 'message'),
    [
        ('', '', NOT_FOUND),
        ('no_pkg', 'no_pkg::Node', NOT_FOUND),
        ('malformed_pkg', 'malformed_pkg::Camera', 'Invalid resource entry'),
        ('cpp_pkg', 'cpp_pkg::Lidar', NO_CLASS),
        (
            'cpp_pkg',
            'cpp_pkg::Camera',
            f'{LIBRARY}lib/libcamera.so is not a Python component; '
            'load it into the container of rclcpp_components',
        ),
        ('python_pkg', 'python_pkg::Lidar', NO_CLASS),
        ('python_pkg', 'python_pkg::Absent', NO_CLASS),
        ('python_pkg', 'python_pkg::Broken', f"{LIBRARY}No module named 'no_such_module'"),
        (
            'python_pkg',
            'python_pkg::NotANode',
            f'{LIBRARY}components:not_a_node is not an rclpy Node',
        ),
        ('', 'components:ThrowsLoading', f'{THROWN}no such camera'),
        ('', 'components:RefusesLoading', f'{THROWN}No model.\nRemedy: Set model_path.'),
        ('', 'components:ExitsLoading', f'{THROWN}gone'),
    ],
)
def test_load_failure_reports_reason(container, package, plugin, message):
    refused = container.load(plugin, package)
    found = refused.success, refused.full_node_name, refused.unique_id, refused.error_message
    assert found == (False, '', 0, message)
    assert container.list() == {}


def test_malformed_requests_are_refused_without_traceback(container):
    begun = len(container.node.log)
    for package in ('../../etc', '/etc', 'a\0b'):
        refused = container.load('indexed_pkg::Options', package)
        assert not refused.success and refused.error_message.startswith(NOT_FOUND)
    for fields in (
        {'remap_rules': ['no rule']},
        {'remap_rules': ['a:=b c']},
        {'node_name': 'a b'},
        {'node_namespace': '/a b'},
        {'parameters': [('rate', 'fast')]},
    ):
        refused = container.load('indexed_pkg::Options', 'indexed_pkg', **fields)
        assert not refused.success
        assert refused.error_message.startswith(THROWN)
    log = container.node.log[begun:]
    assert 'Failed to load' in log and 'Traceback' not in log
    assert container.load('indexed_pkg::Options', 'indexed_pkg').success


def test_only_registered_components_are_loaded_unless_modules_are_allowed(start):
    container = start(allow_modules=False)
    for plugin in ('components:Options', 'unittest.__main__:x', 'no_such_module:Node'):
        refused = container.load(plugin, 'python_pkg')
        assert (refused.success, refused.error_message) == (
            False,
            f'Failed to load library: {plugin} is not a registered component; set the '
            'parameter allow_modules of the container to load any Python module',
        )
    for package in ('python_pkg', 'indexed_pkg'):
        assert container.load(f'{package}::Options', package).success


def test_failed_import_does_not_block_container(start):
    container = start()
    for module, message in (
        ('leaves', f'{LIBRARY}3'),
        ('is_interrupted', f'{LIBRARY}KeyboardInterrupt()'),
        ('unittest.__main__', LIBRARY),
        ('ends_the_pools', NO_CLASS),
    ):
        refused = container.load(f'{module}:Node')
        assert (refused.success, refused.error_message[: len(message)]) == (False, message)
        assert container.load('components:Options').success


@pytest.mark.parametrize('plugin', ['ThrowsLoading', 'ManagedThrowsLoading'])
def test_node_that_raises_while_loading_leaves_graph(container, plugin):
    assert not container.load(f'components:{plugin}').success
    container.sees_nodes(lambda names: 'throws_loading' not in names)


@pytest.mark.parametrize(
    ('argument', 'value', 'message'),
    [
        ('color', True, "Extra component argument 'color' is not supported"),
        ('enable_rosout', 1, "Extra component argument 'enable_rosout' must be a boolean"),
        (
            'enable_topic_statistics',
            True,
            "Extra component argument 'enable_topic_statistics' is not "
            'supported: in rclpy it is always false',
        ),
        (
            'start_parameter_event_publisher',
            False,
            'Extra component argument '
            "'start_parameter_event_publisher' is not supported: in rclpy it is always true",
        ),
    ],
)
def test_an_extra_argument_that_cannot_be_honored_is_refused(container, argument, value, message):
    refused = container.load('components:Options', extra=[(argument, value)])
    assert (refused.success, refused.error_message) == (False, message)


def test_extra_arguments_reach_the_node(container):
    assert container.load(
        'components:Options',
        extra=[
            ('start_parameter_services', False),
            ('enable_rosout', False),
            ('enable_logger_service', True),
            ('use_intra_process_comms', True),
        ],
    ).success
    graph = container.peer.node

    def services():
        return dict(graph.get_service_names_and_types())

    container.peer.wait_until(lambda: '/options/get_logger_levels' in services(), 'the service')
    assert '/options/get_parameters' not in services()
    loggers = graph.get_publishers_info_by_topic('/rosout')
    assert 'options' not in [logger.node_name for logger in loggers]


def test_ids_increase_per_attempt_and_are_never_reused(container):
    first = container.load('components:Options').unique_id
    assert not container.load('components:ThrowsLoading').success  # Uses up the second.
    assert not container.load('components:Options', extra=[('color', True)]).success
    assert not container.load('no_pkg::Node', 'no_pkg').success
    assert container.load('components:Options').unique_id == first + 2
    assert container.unload(first + 2).success
    assert container.load('components:Options').unique_id == first + 3
    assert list(container.list()) == [first, first + 3]


def test_unloading_destroys_the_node_and_an_unknown_id_is_refused(container):
    unique_id = container.load('components:Options', node_name='brief').unique_id
    container.sees_nodes(lambda names: 'brief' in names)
    unloaded = container.unload(unique_id)
    assert (unloaded.success, unloaded.error_message) == (True, '')
    container.says('<destroying /brief>')
    container.sees_nodes(lambda names: 'brief' not in names)
    refused, why = container.unload(unique_id), f'No node found with unique_id: {unique_id}'
    assert (refused.success, refused.error_message) == (False, why)


def test_node_that_raises_while_spinning_continues(container):
    assert container.load('components:Options', node_name='neighbor').success
    assert container.load('components:ThrowsSpinning').success
    container.says('<tick 3>')
    container.says('ValueError: bad frame')
    container.says('SystemExit: 3')
    container.says('CancelledError')
    assert container.rate_of('/neighbor') == 1.0


def test_node_that_raises_while_unloading_is_removed(container):
    unique_id = container.load('components:ThrowsUnloading').unique_id
    container.sees_nodes(lambda names: 'throws_unloading' in names)
    assert container.unload(unique_id).success
    container.says('RuntimeError: cannot let go')
    container.sees_nodes(lambda names: 'throws_unloading' not in names)


def test_list_responds_during_slow_constructor(container, hold):
    loading = container.ask('components:SlowLoading', parameters=[('hold', str(hold))])
    container.says('<constructing>')
    assert container.list() == {}
    assert not loading.done()
    hold.unlink()
    assert container.peer.wait(loading).full_node_name == '/slow_loading'


def test_a_lifecycle_node_without_options_is_renamed_and_changes_state(container):
    assert container.load('components:Managed', node_name='camera').full_node_name == '/camera'
    assert RemoteNode(container.peer, 'camera').change('configure')


DETECTOR = {'plugin': 'trt_ros::DetectorNode', 'package': 'trt_ros'}


def test_a_failed_autostart_does_not_end_the_container(container):
    parameters = [('model_path', 'no_such.onnx'), ('autostart', True)]
    assert container.load(**DETECTOR, node_name='failing', parameters=parameters).success
    container.says('[failing]: Startup failed: see the error above.')
    assert '/failing' in container.list().values()
    assert container.process.poll() is None


def test_a_detector_unloaded_while_it_configures_is_gone(container):
    for number in range(5):
        loaded = container.load(
            **DETECTOR,
            node_name=f'hasty_{number}',
            parameters=[('model_path', str(MODEL)), ('autostart', True)],
        )
        assert container.unload(loaded.unique_id).success
    container.sees_nodes(lambda names: not any(name.startswith('hasty') for name in names))


def test_container_remap_does_not_apply_to_components(start):
    container = start('-r', '__ns:=/robot', namespace='/robot')
    assert container.load('components:Options').full_node_name == '/options'
    assert container.load(
        'components:Options', extra=[('forward_global_arguments', True)]
    ).full_node_name.startswith('/robot/container_')
    container.says('forward_global_arguments applies the container')


@pytest.mark.parametrize(
    ('number', 'program'),
    [(signal.SIGINT, 'trt_ros.container'), (signal.SIGTERM, NODES / 'components.py')],
    ids=['SIGINT', 'SIGTERM, several threads'],
)
def test_a_signal_unloads_all_last_loaded_first(start, number, program):
    container = start(program=program)
    for name in ('first', 'second'):
        assert container.load('components:Options', node_name=name).success
    assert list(container.list().values()) == ['/first', '/second']
    assert container.load('components:ThrowsUnloading').success
    container.process.send_signal(number)
    assert container.process.wait(DEADLINE_SECONDS) == 0
    log = container.node.log
    assert log.index('<destroying /second>') < log.index('<destroying /first>')


def test_component_that_shuts_down_ros_stops_container_cleanly(start):
    container = start()
    assert container.load('components:Options').success
    container.ask('components:EndsRos')
    assert container.process.wait(DEADLINE_SECONDS) == 0
    assert '<destroying /options>' in container.node.log


def test_second_thread_serves_others_beside_busy_component(start, hold):
    container = start('-p', 'thread_num:=2')
    assert container.load('components:Busy', parameters=[('hold', str(hold))]).success
    container.says('<busy>')
    assert container.load('components:Options', node_name='idle').success
    assert container.rate_of('/idle') == 1.0
    assert '<free>' not in container.node.log
    hold.unlink()
    container.says('<free>')


@pytest.mark.parametrize('threads', [0, 100000])
def test_a_number_of_threads_out_of_range_is_refused(packages, start_node, threads):
    refused = start_node(f'refused_{threads}', 'trt_ros.container', '-p', f'thread_num:={threads}')
    assert refused.process.wait(DEADLINE_SECONDS) == 2
    assert 'thread_num' in refused.log
    refused.process.returncode = 0  # As expected: the fixture need not complain.


def test_component_standalone_uses_our_container(start, packages, monkeypatch):
    index = pytest.importorskip('ament_index_python.packages')
    share = Path(index.get_package_share_directory('trt_ros'))
    monkeypatch.setenv(
        'AMENT_PREFIX_PATH',
        os.pathsep.join([str(share / 'standalone'), os.environ['AMENT_PREFIX_PATH']]),
    )
    # As ros2component looks for it.
    folder = Path(index.get_package_prefix('rclcpp_components'), 'lib', 'rclcpp_components')
    (container,) = folder.iterdir()
    assert os.access(container, os.X_OK)
    container = start(program=container)
    assert container.load('python_pkg::Options', 'python_pkg').success
    container.unload_all()
