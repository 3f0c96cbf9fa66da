"""Which layer may import which, and where a foreign library has its door."""

import ast
from collections.abc import Iterator, Mapping, Set
from functools import cache
from graphlib import CycleError, TopologicalSorter
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
yaml: ros nodes launching results model cli exporting recording
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


def imported(source: str, package: str, modules: Set[str] = frozenset()) -> Iterator[str]:
    """
    Name every module that a source text imports, wherever in it; relative ones in full.

    `from package import module` is a module of the package where it is one of `modules`.
    """
    for node in import_nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            continue
        parents = package.split('.')[: len(package.split('.')) - node.level + 1]
        base = '.'.join([*(parents if node.level else []), *filter(None, [node.module])])
        for full in (f'{base}.{alias.name}' for alias in node.names):
            yield full if base == 'trt_ros' or full in modules else base


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


def check_for_cycles(sources: Mapping[str, str], packages: Set[str] = frozenset()) -> None:
    """
    Find no import cycle of modules, by dotted name, also within functions.

    :raises CycleError: that names the modules of the first one found.
    """
    imports = {}
    for name, source in sources.items():
        package = name if name in packages else name.rpartition('.')[0]
        found = set(imported(source, package, sources.keys()))
        imports[name] = found & sources.keys() - {name}
    TopologicalSorter(imports).prepare()


def test_no_modules_and_no_layers_import_each_other():
    files = {module_name(path): path for path in PACKAGE.rglob('*.py')}
    packages = {name for name, path in files.items() if path.name == '__init__.py'}
    check_for_cycles({name: path.read_text() for name, path in files.items()}, packages)
    TopologicalSorter(LAYERS).prepare()


def test_a_cycle_through_a_function_is_found():
    sources = {
        'p.a': 'def f():\n    from p import b',
        'p.b': 'from .c import x',
        'p.c': 'import p.a',
    }
    with pytest.raises(CycleError) as found:
        check_for_cycles(sources)
    assert set(found.value.args[1]) == sources.keys()
