"""A plan may bring host code of its own; the library runs it only where the sidecar vouches."""

import hashlib
import json
import os
import struct
from types import SimpleNamespace

import pytest

from trt_ros.engine import engine as engines
from trt_ros.engine import open as opening
from trt_ros.engine.builder.config import load_plugins
from trt_ros.engine.cache import runtime_cache
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.sidecar import sidecar_path
from trt_ros.errors import BackendError, ParameterError


def describe(plan, **options):
    """Write the sidecar of a plan that was built with these options."""
    sidecar = {
        'library': 'tensorrt',
        'plan_sha256': hashlib.sha256(plan.read_bytes()).hexdigest(),
        'options': json.loads(BuildOptions(**options).to_json()),
    }
    sidecar_path(plan).write_text(json.dumps(sidecar))


def test_a_plan_of_unknown_origin_may_not_run_its_host_code(plan, library):
    opening.open_plan(plan, 0, BuildOptions())
    engines.load_engine(plan)
    engines.load_engine(plan.read_bytes())
    opening.open_plan(plan, 1, BuildOptions(version_compatible=True))
    assert library.host_code == [False] * 4


@pytest.mark.parametrize('version_compatible', [False, True])
def test_host_code_is_allowed_only_to_an_engine_that_was_built_version_compatible(
    plan, library, version_compatible
):
    describe(plan, version_compatible=version_compatible)
    opening.open_plan(plan, 0, BuildOptions())
    assert library.host_code == [version_compatible]


def test_plugins_of_a_sidecar_load_only_if_the_user_lists_them(plan, library, tmp_path):
    plugin = tmp_path / 'plugin.so'
    plugin.touch()
    describe(plan, plugins=(str(plugin),))
    for plugins in ((), ('other.so',)):
        with pytest.raises(ParameterError, match='needs the plugin library') as caught:
            opening.open_plan(plan, 0, BuildOptions(plugins=plugins))
        assert 'parameter plugins' in caught.value.remedy
    assert library.plugins == []
    opening.open_plan(plan, 0, BuildOptions(plugins=(str(plugin),)))
    assert library.plugins == [str(plugin)]


def test_plugins_of_a_tensorrt_rtx_engine_are_refused(plan, library):
    plan.write_bytes(struct.pack('<4s12xQ8x4B36x', b'vtrt', 64, 1, 5, 0, 0)[:64].ljust(64, b'\0'))
    describe(plan, plugins=('plugin.so',))
    with pytest.raises(ParameterError, match='needs the plugin library') as caught:
        opening.open_plan(plan, 0, BuildOptions(plugins=('plugin.so',)))
    assert 'tensorrt_rtx has no plugins' in caught.value.cause
    assert library.plugins == []


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can give files away')
@pytest.mark.parametrize('file', ['engine', 'sidecar', 'plugin'])
def test_files_of_another_user_are_not_run(plan, library, tmp_path, file):
    plugin = tmp_path / 'plugin.so'
    plugin.touch()
    describe(plan, plugins=(str(plugin),), version_compatible=True)
    planted = {'engine': plan, 'sidecar': sidecar_path(plan), 'plugin': plugin}[file]
    os.chown(planted, 12345, -1)
    tmp_path.chmod(0o1777)
    with pytest.raises(ParameterError, match='is not secure') as caught:
        opening.open_plan(plan, 0, BuildOptions(plugins=(str(plugin),)))
    assert 'belongs to another user' in caught.value.cause
    assert (library.plugins, library.loaded) == ([], 0)


def test_planted_kernels_of_an_engine_are_not_used(plan, library, rtx):
    plan.write_bytes(struct.pack('<4s12xQ4B36x', b'vtrt', 64, *rtx.version))
    cache = runtime_cache(rtx, plan, 0)
    cache.save(b'kernels')
    assert opening.open_plan(plan, 0, BuildOptions()).runtime_cache.path == cache.path
    cache.path.chmod(0o666)
    assert opening.open_plan(plan, 0, BuildOptions()).runtime_cache is None


def test_plugins_in_python_are_registered_once_or_refused_with_the_reason(tmp_path):
    library, registered = SimpleNamespace(), tmp_path / 'registered'
    good, bad = tmp_path / 'good.py', tmp_path / 'bad.py'
    good.write_text(f'with open({str(registered)!r}, "a") as file: file.write(__name__)')
    bad.write_text('import nothing_of_this_name')
    for _ in range(2):
        load_plugins(library, [str(good)])
    assert registered.read_text() == 'trt_ros_plugins'
    with pytest.raises(BackendError, match=r'(?s)bad\.py cannot be registered.*nothing_of_this'):
        load_plugins(library, [str(bad)])
