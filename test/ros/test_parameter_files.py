"""What is written about parameters is what the nodes declare."""

from dataclasses import dataclass
from pathlib import Path
import re

from generated_files import PARAMETERS, markdown_rows, parameter_files, parameters_page, setup_cfg
import pytest
import yaml

from trt_ros.errors import ParameterError
from trt_ros.nodes.inference import InferenceParameters
from trt_ros.parameter_field import specifications
from trt_ros.ros.parameters import param, yaml_text

CHECKOUT = Path(__file__).parents[2]
REMEDY = 'Run `python tools/generated_files.py` in `./dev shell`.'


@pytest.mark.parametrize('name', [*PARAMETERS, 'inference'])
def test_parameter_file_matches_the_class(name):
    written = (CHECKOUT / 'config' / f'{name}.yaml').read_text()
    assert written == parameter_files()[name], REMEDY


@pytest.mark.parametrize('name', PARAMETERS)
def test_files_and_page_have_every_default_of_a_node_which_is_allowed_and_described(name):
    cls, files = PARAMETERS[name], parameter_files()
    text = files[name]
    if issubclass(cls, InferenceParameters):
        text = files['inference'] + text
    text = text.replace('    # ', '    ')
    for each in specifications(cls).values():
        default = re.findall(rf'^    {each.name}: (.*)$', text, re.MULTILINE)
        assert [each.convert(yaml.safe_load(value)) for value in default] == [each.default]
    page = parameters_page()
    for row in markdown_rows(cls).values():
        assert page.count(row + '\n') >= 1
    for each in specifications(PARAMETERS[name]).values():
        assert each.description.endswith('.'), each.name
        assert each.check(each.default) == each.default
        if float in (each.python_type, each.entry_type):
            for number in (float('nan'), float('inf'), float('-inf')):
                with pytest.raises(ParameterError, match=f'{each.name} is '):
                    each.check((number,) if each.entry_type else number)


def test_table_of_the_nodes_page_matches_the_detector():
    known = specifications(PARAMETERS['detector'])
    page = (CHECKOUT / 'docs/nodes.md').read_text()
    text = page.partition('## Parameters\n')[2].partition('\n## ')[0]
    rows = re.findall(r'^\| `(\w+)`( ●)? \| `(.*?)` \|', text, re.MULTILINE)
    assert rows
    for name, dot, default in rows:
        each = known[name]
        assert each.check(yaml.safe_load(default)) == each.default
        assert bool(dot) == each.mutable, name


def test_parameters_page_matches_the_classes():
    assert (CHECKOUT / 'docs' / 'parameters.md').read_text() == parameters_page(), REMEDY


def test_entry_points_of_a_new_node_are_written():
    text = (CHECKOUT / 'setup.cfg').read_text()
    assert text == setup_cfg(text), REMEDY
    without = re.sub(r'.*\b[Dd]etector(Node)?\b.*\n', '', text)
    assert without != text == setup_cfg(without)


@pytest.fixture(scope='module')
def node(start_node):
    return start_node('any_gpu', 'trt_ros.nodes.detector', '-p', 'device:=auto', autostart=False)


@pytest.mark.ros
def test_device_is_set_by_index_or_as_auto(node):
    from rclpy.parameter import Parameter

    assert node.get('device') == -1
    assert node.set(device=3) == ''
    assert node.get('device') == 3
    assert node.set(device=Parameter('device', value='auto')) == ''
    assert node.get('device') == -1
    assert 'Wrong parameter type' in node.set(device=Parameter('device', value='all'))
    assert 'device' in node.set(device=-2)


@pytest.mark.ros
def test_text_of_parameters_is_escaped_and_short_in_answers_and_the_log(node):
    from rclpy.parameter import Parameter

    for value in ('x' * 100_000, 'a b ' * 25_000, '\x1b' * 25_000):
        for name in ('qos_reliability', 'score_threshold', 'device'):
            reason = node.set(**{name: Parameter(name, value=value)})
            assert 0 < len(reason) < 5000 and '\x1b' not in reason
    assert not node.change('\x1b' * 25_000)
    assert node.set(model_path='/no/\x1b[31m\u202e.onnx') == ''
    assert not node.change('configure')
    node.wait_for_log(r'The model file /no/\x1b[31m\u202e.onnx does not exist.')
    assert '\x1b' not in node.log and len(node.log) < 10_000


# The enhancer has no parameters of its own.
EACH_TIME = {'detector', 'enhancer'}


@pytest.mark.ros
@pytest.mark.parametrize(
    'name',
    [
        *sorted(EACH_TIME),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in sorted({*PARAMETERS} - EACH_TIME)),
    ],
)
def test_ros_reads_the_parameter_file_into_the_defaults(start_node, name):
    files = [str(CHECKOUT / 'config' / f'{name}.yaml')]
    if issubclass(PARAMETERS[name], InferenceParameters):
        files.append(str(CHECKOUT / 'config' / 'inference.yaml'))
    flags = [flag for file in files for flag in ('--params-file', file)]
    # One more parameter, so that the file is not all there is to say.
    node = start_node(name, f'trt_ros.nodes.{name}', *flags, autostart=False)
    for each in specifications(PARAMETERS[name]).values():
        if each.name != 'autostart':
            value = node.get(each.name)
            assert each.convert(value) == each.default, each.name


@dataclass(frozen=True)
class Example:
    number: float = param(0.5, 'A number.', between=(0.0, 1.0), mutable=True)
    word: str = param('one', 'A word.', choices=('one', 'two'))
    names: tuple[str, ...] = param((), 'Names.')


def test_a_class_becomes_a_yaml_file_and_a_table():
    assert yaml_text(Example, 'example').splitlines()[2:] == [
        '/**:',
        '  ros__parameters:',
        '    # A number. From 0.0 to 1.0.',
        '    number: 0.5',
        '    # A word. One of one, two.',
        '    word: one',
        '    # Names.',
        '    # names: []',
    ]
    assert list(markdown_rows(Example).values()) == [
        '| `number` | `0.5` | 0.0 to 1.0 | ● | A number. |',
        '| `word` | `one` | one, two |  | A word. |',
        '| `names` | `[]` |  |  | Names. |',
    ]


@pytest.mark.parametrize(
    'name, value, checked',
    [
        ('number', 1, 1.0),
        ('word', 'two', 'two'),
        ('names', ['a'], ('a',)),
        ('names', 'a', ('a',)),
        ('names', [], ()),
        ('names', 7, ('7',)),
        ('names', [0, 2], ('0', '2')),
    ],
)
def test_values_are_brought_into_the_fields_own_type(name, value, checked):
    result = specifications(Example)[name].check(value)
    assert (result, type(result)) == (checked, type(checked))


@pytest.mark.parametrize(
    'name, value, why',
    [
        ('number', 1.5, 'Set it to 0.0 to 1.0.'),
        ('number', True, 'must be of type double'),
        ('number', float('nan'), 'Set it to 0.0 to 1.0.'),
        ('word', 'three', 'Choose one of one, two.'),
        ('names', 1.5, 'must be of type string_array'),
        ('names', [1.5], 'must be of type string_array'),
        ('names', b'a', 'must be of type string_array'),
        ('names', [True], 'Remedy: Quote it: YAML reads y'),
    ],
)
def test_values_that_are_not_allowed_are_refused(name, value, why):
    with pytest.raises(ParameterError, match=why):
        specifications(Example)[name].check(value)
