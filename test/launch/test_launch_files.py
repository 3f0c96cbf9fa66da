"""What the launch files offer and say, before anything is started."""

from pathlib import Path

from generated_files import PARAMETERS
from launch import LaunchContext
from launch.actions import SetEnvironmentVariable
from launch.launch_description_sources import PythonLaunchDescriptionSource
import pytest
import yaml

from trt_ros.errors import ParameterError
from trt_ros.launching.arguments import checked_parameters, given_parameters
from trt_ros.launching.graph import memory_copies, this_platform, transport
from trt_ros.nodes.classifier import ClassifierNode
from trt_ros.nodes.depth import DepthNode
from trt_ros.nodes.detector import DetectorNode
from trt_ros.nodes.image_source import ImageSourceNode
from trt_ros.nodes.overlay import OverlayNode
from trt_ros.nodes.pose import PoseNode
from trt_ros.nodes.segmenter import SegmenterNode
from trt_ros.nodes.tensor import TensorNode
from trt_ros.parameter_field import specifications

CHECKOUT = Path(__file__).parents[2]
FILES = sorted((CHECKOUT / 'launch').glob('*.launch.py'))


def arguments_of(file: Path) -> dict[str, str]:
    """Return name: description of what `ros2 launch --show-args` would list."""
    description = PythonLaunchDescriptionSource(str(file)).get_launch_description(LaunchContext())
    return {each.name: each.description for each in description.get_launch_arguments()}


def test_package_has_launch_files():
    tasks = 'classifier depth detections_3d detector policy pose segmenter tensor tracker'
    others = 'cameras demo detector_classifier enhancer jetson x86'
    names = sorted(f'{tasks} {others}'.split())
    assert [file.name for file in FILES] == [f'{name}.launch.py' for name in names]


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.name)
def test_every_node_parameter_is_a_documented_argument(file):
    found = arguments_of(file)
    assert all(found.values())
    cls = PARAMETERS.get(file.name.partition('.')[0], PARAMETERS['detector'])
    for name, parameter in specifications(cls).items():
        assert name in found
        if name != 'autostart':
            assert found[name].startswith(parameter.description)
            assert all(choice in found[name] for choice in parameter.choices)


def test_the_demo_takes_the_parameters_of_its_other_nodes_by_their_names():
    found = arguments_of(CHECKOUT / 'launch' / 'demo.launch.py')
    for cls, node in ((ImageSourceNode, 'image_source'), (OverlayNode, 'overlay')):
        for name in specifications(cls.Parameters):
            assert f'{node}.{name}' in found or name == 'autostart'


@pytest.mark.parametrize(
    'cls', [ClassifierNode, DepthNode, DetectorNode, PoseNode, SegmenterNode, TensorNode]
)
@pytest.mark.parametrize('platform', ['x86', 'jetson'])
def test_platform_defaults_are_parameters_of_every_node(platform, cls):
    content = yaml.safe_load((CHECKOUT / 'config' / f'{platform}.yaml').read_text())
    assert checked_parameters(cls, content['/**']['ros__parameters'])


def given(**texts):
    context = LaunchContext()
    context.launch_configurations.update(texts)
    return given_parameters(context, DetectorNode)


def test_omitted_arguments_keep_node_defaults():
    assert given() == {}
    assert given(model_path='', score_threshold='') == {}


def test_arguments_get_the_types_of_the_parameters():
    values = given(
        model_path='1',
        labels='[cat, "2"]',
        score_threshold='1',
        max_detections='7',
        input_size='[320, 640]',
    )
    assert values == {
        'model_path': '1',
        'labels': ('cat', '2'),
        'score_threshold': 1.0,
        'max_detections': 7,
        'input_size': (320, 640),
    }
    assert isinstance(values['score_threshold'], float)


@pytest.mark.parametrize(
    ('name', 'text', 'message'),
    [
        ('score_threshold', 'much', 'score_threshold is .much., but must be of type double'),
        ('score_threshold', '7', 'Set it to 0.0 to 1.0'),
        ('resize', 'squash', 'Choose one of auto'),
        ('labels', '[cat', 'labels is'),
    ],
)
def test_rejects_argument_of_wrong_type(name, text, message):
    with pytest.raises(ParameterError, match=message):
        given(**{name: text})


def test_jetson_is_detected_by_device_tree(tmp_path):
    tree = tmp_path / 'compatible'
    assert this_platform(tree) == 'x86'
    tree.write_bytes(b'raspberrypi,4-model-b\0brcm,bcm2711\0')
    assert this_platform(tree) == 'x86'
    tree.write_bytes(b'nvidia,p3768-0000+p3767-0000\0nvidia,p3767-0000\0nvidia,tegra234\0')
    assert this_platform(tree) == 'jetson'


@pytest.fixture
def environment(monkeypatch):
    """The environment without all that chooses a transport."""
    for name in (
        'FASTDDS_BUILTIN_TRANSPORTS',
        'FASTRTPS_DEFAULT_PROFILES_FILE',
        'FASTDDS_DEFAULT_PROFILES_FILE',
        'ROS_AUTOMATIC_DISCOVERY_RANGE',
        'ROS_LOCALHOST_ONLY',
    ):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def set_by_launch(choose=transport, **arguments) -> dict[str, str]:
    context = LaunchContext()
    actions = choose(context, **arguments)
    assert all(isinstance(action, SetEnvironmentVariable) for action in actions)
    return {
        context.perform_substitution(action.name[0]): context.perform_substitution(action.value[0])
        for action in actions
    }


def test_transport_has_room_for_images(environment):
    assert set_by_launch() == {'FASTDDS_BUILTIN_TRANSPORTS': 'DEFAULT?sockets_size=32MB'}


def test_localhost_only_needs_profile_for_large_images(environment):
    environment.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    environment.setenv('FASTDDS_BUILTIN_TRANSPORTS', 'UDPv4')  # Which has no effect then.
    files = set_by_launch()
    assert set(files) == {'FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE'}
    for file in files.values():
        assert '<segment_size>33554432</segment_size>' in Path(file).read_text()


@pytest.mark.parametrize(
    'name',
    [
        'FASTDDS_BUILTIN_TRANSPORTS',
        'FASTRTPS_DEFAULT_PROFILES_FILE',
        'FASTDDS_DEFAULT_PROFILES_FILE',
    ],
)
def test_transport_chosen_by_user_is_kept(environment, name):
    environment.setenv(name, 'mine')
    assert set_by_launch() == {}


def test_large_copies_bypass_caches_on_x86_unless_user_tunes_glibc(monkeypatch):
    monkeypatch.delenv('GLIBC_TUNABLES', raising=False)
    assert set_by_launch(memory_copies, machine='x86_64') == {
        'GLIBC_TUNABLES': 'glibc.cpu.x86_non_temporal_threshold=262144'
    }
    assert set_by_launch(memory_copies, machine='aarch64') == {}
    monkeypatch.setenv('GLIBC_TUNABLES', 'glibc.malloc.check=3')
    assert set_by_launch(memory_copies, machine='x86_64') == {}
