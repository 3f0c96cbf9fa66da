"""Which layer may import which, and where a foreign library has its door."""

import ast
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path
import re
import sys

import pytest

PACKAGE = Path(__file__).parent.parent / 'trt_ros'

FOR_ALL = {
    *('blob', 'device_array', 'errors', 'parameter_field', 'process_memory', 'profiling'),
    *('progress', 'regular_file', 'tensors'),
}


def table(text: str) -> dict[str, set[str]]:
    """Read rows of `names: values`, which may be continued."""
    rows = re.findall(r'^(\w[^:]*):(.*(?:\n .*)*)', text, re.MULTILINE)
    return {name: set(values.split()) for names, values in rows for name in names.split()}


#: Layer: the layers that it may import beside itself and those for all.
LAYERS = table("""
results:
vision: results
families: results vision
decode: families results vision
model: media vision
policy:
driver:
exporting:
child:
trt: driver
cuda: driver
engine: trt child cuda driver
runtime: model engine trt child cuda driver media results decode families video vision
quantization: model results runtime engine trt child cuda driver families vision
drawing: results vision
media: video vision
video: vision
recording: video
tracking: results
ros: results vision media model recording video
labelling: drawing media recording results ros runtime engine decode families tracking video
    vision
container: ros
cli: model results runtime engine trt child driver decode families vision drawing media
    recording labelling quantization
nodes: model policy results ros runtime engine families vision drawing media tracking video
demo:
launching: nodes ros
executables: nodes ros container
__main__: cli
__init__: drawing media results runtime tracking vision
""") | {layer: set() for layer in FOR_ALL}
ROS = {'ros', 'container', 'nodes', 'launching'}
WITHOUT_NUMPY = FOR_ALL - {'device_array', 'profiling', 'tensors'} | {
    *('child', 'executables', '__main__', '__init__')
}
#: Foreign packages: the layers that may import them. PyYAML reads class names and bundles.
DOORS = table("""
cuda nvidia: cuda
tensorrt tensorrt_rtx: trt
onnxruntime grpc tritonclient: runtime
onnx: engine quantization exporting
torch lerobot torchvision transformers rfdetr ultralytics: exporting
modelopt: quantization
cv2: vision families drawing media ros labelling cli nodes
cv_bridge: ros
mcap zstandard lz4: recording labelling
upath pyarrow ray: labelling
av: video
safetensors: model
nvtx: profiling
scipy: families tracking
supervision: results
yaml: ros nodes launching results model cli exporting
tqdm: cli
rclpy ament_index_python launch launch_ros builtin_interfaces std_msgs std_srvs
    composition_interfaces diagnostic_msgs geometry_msgs tf2_ros lifecycle_msgs rcl_interfaces
    sensor_msgs stereo_msgs vision_msgs isaac_ros_tensor_list_interfaces nav_msgs
    rosgraph_msgs: container launching nodes ros
""") | {'numpy': LAYERS.keys() - WITHOUT_NUMPY}


def layer_of(path: Path) -> str:
    """Return the first name below the package: a folder, or a file without its suffix."""
    return path.relative_to(PACKAGE).parts[0].removesuffix('.py')


@cache
def import_nodes(source: str) -> list[ast.Import | ast.ImportFrom]:
    found = ast.walk(ast.parse(source))
    return [node for node in found if isinstance(node, (ast.Import, ast.ImportFrom))]


def imported(source: str, package: str) -> Iterator[str]:
    """Name every module that a source text imports, wherever in it; relative ones in full."""
    for node in import_nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ''
            if node.level:
                parents = package.split('.')[: len(package.split('.')) - node.level + 1]
                base = '.'.join([*parents, *filter(None, [base])])
            if base == 'trt_ros':
                yield from (f'trt_ros.{alias.name}' for alias in node.names)
            else:
                yield base


def complaints(path: Path, source: str) -> list[str]:
    """Say which imports of one file break the rules above."""
    layer = layer_of(path)
    package = '.'.join(path.relative_to(PACKAGE.parent).parts[:-1])
    found = []
    for name in imported(source, package):
        top, *rest = name.split('.')
        if top == 'trt_ros':
            target = rest[0] if rest else '__init__'
            if target not in {layer, '__init__', *FOR_ALL, *LAYERS[layer]}:
                found.append(f'{layer} may not import {name}')
        elif top not in sys.stdlib_module_names and layer not in DOORS.get(top, ()):
            found.append(f'{layer} may not import {name}')
    return found


@pytest.mark.slow
def test_layers_import_only_lower_layers():
    files = sorted(PACKAGE.rglob('*.py'))
    assert {layer_of(path) for path in files} <= LAYERS.keys(), 'a new layer: say above'
    found = {str(path.relative_to(PACKAGE)): complaints(path, path.read_text()) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_one_module_knows_the_releases_of_ros():
    releases = re.compile(r'\b(Humble|Jazzy|Kilted|Lyrical|Rolling)\b')
    files = [path for path in PACKAGE.rglob('*.py') if layer_of(path) in ROS]
    assert [path.name for path in files if releases.search(path.read_text())] == ['releases.py']


@pytest.mark.parametrize(
    'file, source, complaint',
    [
        ('vision/nms.py', 'import onnx', 'vision may not import onnx'),
        (
            'vision/nms.py',
            'from trt_ros.cuda.memory import x',
            'vision may not import trt_ros.cuda.memory',
        ),
        (
            'ros/codecs/images.py',
            'def f():\n    from trt_ros import cuda',
            'ros may not import trt_ros.cuda',
        ),
        ('cli/infer.py', 'from rclpy.node import Node', 'cli may not import rclpy.node'),
        ('cli/infer.py', 'from ..ros import images', 'cli may not import trt_ros.ros'),
        ('engine/builder/parent.py', 'import tensorrt as trt', 'engine may not import tensorrt'),
        (
            'runtime/gpu/executor.py',
            'from cuda.bindings import driver',
            'runtime may not import cuda.bindings',
        ),
        ('runtime/gpu/executor.py', 'import requests', 'runtime may not import requests'),
    ],
)
def test_import_of_higher_layer_is_found(file, source, complaint):
    assert complaints(PACKAGE / file, source) == [complaint]


def module_name(path: Path) -> str:
    """Return the dotted name of a file; a package's is that of its `__init__.py`."""
    return '.'.join(path.relative_to(PACKAGE.parent).with_suffix('').parts).removesuffix(
        '.__init__'
    )


def dependencies(name: str, source: str, modules: Set[str], is_package: bool = False) -> set[str]:
    """Return which of `modules` a source text imports, also within functions."""
    package = name if is_package else name.rpartition('.')[0]
    found = set()
    for node in import_nodes(source):
        if isinstance(node, ast.ImportFrom):
            parents = package.split('.')[: len(package.split('.')) - node.level + 1]
            base = '.'.join([*(parents if node.level else []), *filter(None, [node.module])])
            # `from package import module` depends on the module.
            for full in (f'{base}.{alias.name}' for alias in node.names):
                found.add(full if full in modules else base)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return (found & modules) - {name}


def cycles(imports: Mapping[str, Set[str]]) -> list[str]:
    """Return one 'a -> b -> a' for each module from which an import cycle is reached first."""
    found, done = [], set()

    def follow(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            found.append(' -> '.join([*path[path.index(name) :], name]))
        elif name not in done:
            for other in sorted(imports[name]):
                follow(other, (*path, name))
            done.add(name)

    for name in sorted(imports):
        follow(name, ())
    return found


def test_no_modules_import_each_other():
    files = {module_name(path): path for path in PACKAGE.rglob('*.py')}
    imports = {
        name: dependencies(name, path.read_text(), files.keys(), path.name == '__init__.py')
        for name, path in files.items()
    }
    assert cycles(imports) == []


def test_a_cycle_through_a_function_is_found():
    modules = {'p.a', 'p.b', 'p.c'}
    sources = {
        'p.a': 'def f():\n    from p import b',
        'p.b': 'from .c import x',
        'p.c': 'import p.a',
    }
    imports = {name: dependencies(name, source, modules) for name, source in sources.items()}
    assert cycles(imports) == ['p.a -> p.b -> p.c -> p.a']


def test_no_two_layers_import_each_other():
    def below(layer, seen=()):
        assert layer not in seen, f'{" -> ".join([*seen, layer])} goes round in a circle'
        for lower in LAYERS[layer]:
            below(lower, (*seen, layer))

    for layer in LAYERS:
        below(layer)
