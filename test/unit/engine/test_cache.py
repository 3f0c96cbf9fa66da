"""Engines are built once, found again, and never believed without proof."""

import errno
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import threading

import pytest

from trt_ros.engine.cache import EngineCache, default_cache_dir, kernel_folder
from trt_ros.engine.files import LOCK, locked, make_private
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.sidecar import read_sidecar, sidecar_path
from trt_ros.errors import ModelError, ParameterError
from trt_ros.progress import CancelledError, Reporter

pytestmark = pytest.mark.slow  # Most build an engine, a second each.

OPTIONS = BuildOptions()


@pytest.fixture
def cache(tmp_path):
    return EngineCache(tmp_path / 'cache')


@pytest.fixture
def filled(cache, built_cache):
    """Return a cache with the engine of `models.conv()`."""
    shutil.copytree(built_cache, cache.root)
    return cache


def files(cache):
    return sorted(path.name for path in cache.root.rglob('*') if path.is_file())


def test_an_engine_is_built_once_private_to_its_owner_and_then_found(cache, models, rtx):
    assert list(cache.entries()) == []
    path = models.conv(name='My model')
    old = os.umask(0)
    try:
        first = cache.get_or_build(path, BuildOptions(precision='fp16'), rtx)
    finally:
        os.umask(old)
    for each in (first.path, sidecar_path(first.path), *list(first.path.parents)[:4]):
        assert each.stat().st_mode & 0o077 == 0, each
    again = cache.get_or_build(path, BuildOptions(precision='fp16'), rtx)
    assert (first.build_reason, again.build_reason) == ('not built yet', '')
    assert again.path == first.path
    assert again.sidecar == json.loads(json.dumps(first.sidecar))
    folder = first.path.relative_to(cache.root).parent
    assert str(folder) == 'My_model/fp16/bs1'
    assert first.path.name.startswith(f'My_model-tensorrt_rtx{rtx.version_text}-')
    assert list(cache.entries()) == [first.path]


CONTENTS = """
    key plan_sha256 plan_nbytes built_at onnx options library tensorrt tensorrt_bindings gpu driver
    cuda_driver cuda_runtime os arch python packages inputs outputs metadata profiles parser_errors
    parser_warnings build_warnings build_seconds ignored_options dla_fallback layers
    layer_precisions layers_from
"""


def test_sidecar_contains_everything_for_support_and_leftovers_are_removed(filled, models, rtx):
    sidecar = read_sidecar(filled.get_or_build(models.conv(), OPTIONS, rtx).path)
    assert sidecar.keys() >= set(CONTENTS.split())
    assert sidecar['tensorrt'] == rtx.version_text
    assert sidecar['onnx']['nbytes'] == models.conv().stat().st_size
    assert sidecar['build_seconds'] > 0
    entry = filled.get_or_build(models.conv(), OPTIONS, rtx)
    (entry.path.parent / f'.{entry.path.name}.99999.part').write_bytes(b'half')
    filled.get_or_build(models.conv(), OPTIONS, rtx)
    assert files(filled) == sorted(['.lock', entry.path.name, f'{entry.path.name}.json'])


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize(
    ('damage', 'said'),
    [
        (truncate, 'is damaged'),
        (flip, 'its SHA-256 differs'),
        (lambda path: path.write_bytes(b'ftrt' + path.read_bytes()[4:]), 'was built by'),
        (lambda path: path.write_bytes(b''), 'not a TensorRT engine'),
        (lambda path: sidecar_path(path).unlink(), 'The sidecar of'),
        (lambda path: sidecar_path(path).write_text('{"plan_sha256": ""}'), 'is incomplete'),
        (lambda path: path.chmod(0o666), 'Other users can write to'),
    ],
)
def test_damage_of_an_entry_is_named(filled, damage, said):
    (path,) = filled.entries()
    assert filled.problem(path) == ''
    damage(path)
    assert said in filled.problem(path)


def change_key(path):
    """Change what the name of the file does not hold: its 16 digits are the first ones."""
    sidecar = read_sidecar(path)
    key = sidecar['key']
    sidecar['key'] = key[:-1] + ('0' if key[-1] != '0' else '1')
    sidecar_path(path).write_text(json.dumps(sidecar))


@pytest.mark.parametrize(
    ('damage', 'said'), [(truncate, 'is damaged'), (change_key, 'its cache key differs')]
)
def test_damaged_entry_is_rebuilt_once_and_logged(filled, models, rtx, caplog, damage, said):
    path = models.conv()
    entry = filled.get_or_build(path, OPTIONS, rtx)
    damage(entry.path)
    again = filled.get_or_build(path, OPTIONS, rtx)
    assert said in again.build_reason
    assert read_sidecar(entry.path)['key'] == entry.sidecar['key']
    assert any(f'Rebuilding {entry.path.name}' in line for line in caplog.messages)
    assert filled.problem(again.path) == ''
    assert filled.get_or_build(path, OPTIONS, rtx).build_reason == ''


def test_another_model_or_option_gets_its_own_engine_with_the_reason(filled, models, rtx):
    first = filled.get_or_build(models.conv(), OPTIONS, rtx)
    other = filled.get_or_build(models.conv(), BuildOptions(weight_streaming_budget_mib=1), rtx)
    assert other.build_reason == 'changed options: weight_streaming_budget_mib'
    second = filled.get_or_build(models.conv(seed=2), OPTIONS, rtx)
    assert second.build_reason == 'the model has changed'
    assert first.path != second.path
    assert filled.get_or_build(models.conv(), OPTIONS, rtx).path == first.path


@pytest.mark.parametrize('writer', ['write_atomically', 'write_sidecar'])
def test_a_full_disk_leaves_no_part_of_a_pair(cache, models, rtx, monkeypatch, writer):
    def fail(path, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(f'trt_ros.engine.cache.{writer}', fail)
    with pytest.raises(ParameterError, match='No space left on device'):
        cache.get_or_build(models.conv(), OPTIONS, rtx)
    assert files(cache) == ['.lock']


def test_a_full_disk_leaves_the_engine_that_was_to_be_replaced(filled, models, rtx, monkeypatch):
    entry = filled.get_or_build(models.conv(), OPTIONS, rtx)

    def fail(path, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr('trt_ros.engine.cache.write_atomically', fail)
    with pytest.raises(ParameterError, match='No space left on device'):
        filled.get_or_build(models.conv(), OPTIONS, rtx, force=True)
    assert filled.problem(entry.path) == ''


def test_clock_and_locale_do_not_matter_and_force_rebuilds(filled, models, rtx, monkeypatch):
    entry = filled.get_or_build(models.conv(), OPTIONS, rtx)
    for each in (entry.path, sidecar_path(entry.path), models.conv()):
        os.utime(each, (2**33, 2**33))  # The year 2242
    monkeypatch.setenv('LC_ALL', 'de_DE.UTF-8')
    monkeypatch.setenv('TZ', 'Pacific/Kiritimati')
    assert filled.get_or_build(models.conv(), OPTIONS, rtx).build_reason == ''
    monkeypatch.setenv('LC_ALL', 'C')
    monkeypatch.setenv('PYTHONUTF8', '0')
    assert filled.get_or_build(models.conv(), OPTIONS, rtx, force=True).build_reason == 'forced'
    assert list(filled.entries()) == [entry.path]


def test_a_model_that_changes_during_the_build_is_not_kept(cache, models, rtx):
    other = models.conv(seed=5).read_bytes()
    path = models.conv()
    new = path.with_suffix('.new')

    def change(progress):
        if progress.phase == 'parsing the model':
            new.write_bytes(other)
            new.replace(path)  # At once: the build may be reading it.

    with pytest.raises(ModelError, match='changed during the build'):
        cache.get_or_build(path, OPTIONS, rtx, report=Reporter(change))
    assert list(cache.entries()) == []


ASK = """
import sys
from pathlib import Path
from trt_ros.trt import load_trt
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.options import BuildOptions
print('ready', flush=True)
sys.stdin.readline()
entry = EngineCache(sys.argv[2]).get_or_build(
    Path(sys.argv[1]), BuildOptions(), load_trt('tensorrt_rtx'))
print(entry.build_reason or 'found', flush=True)
"""


def test_of_two_processes_one_builds(cache, models, rtx):
    path = models.conv(layers=60)
    both = [
        subprocess.Popen(
            [sys.executable, '-c', ASK, str(path), str(cache.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for one in both:
        assert one.stdout.readline() == 'ready\n'
    for one in both:
        one.stdin.write('\n')
        one.stdin.flush()
    said = sorted(one.communicate(timeout=300)[0].strip() for one in both)
    assert said == ['found', 'not built yet']


def test_waiting_for_another_process_can_be_cancelled(cache, models, rtx):
    folder = cache.root / 'conv' / 'auto'
    make_private(folder, cache.root)
    cancelled = threading.Event()

    def told(progress):
        if progress.phase.startswith('waiting for another node or process'):
            cancelled.set()

    with locked(folder, Reporter()), pytest.raises(CancelledError):
        cache.get_or_build(models.conv(), OPTIONS, rtx, report=Reporter(told, cancelled))


def test_engine_in_read_only_cache_is_used(filled, models, rtx):
    entry = filled.get_or_build(models.conv(), OPTIONS, rtx)
    lock = entry.path.parents[1] / LOCK
    lock.unlink()
    lock.mkdir()  # As on a read-only disk, but for root too: the lock cannot be opened.
    again = filled.get_or_build(models.conv(), OPTIONS, rtx)
    assert (again.path, again.build_reason) == (entry.path, '')
    flip(entry.path)
    with pytest.raises(ParameterError, match=r'cannot be written(?s:.*)engine_in_memory'):
        filled.get_or_build(models.conv(), OPTIONS, rtx)
    with pytest.raises(ParameterError, match=r'written(?s:.*)engine_cache_dir') as caught:
        filled.get_or_build(models.conv(seed=1), OPTIONS, rtx)
    assert isinstance(caught.value.__cause__, OSError)


def test_the_default_place_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert default_cache_dir() == tmp_path / 'trt_ros'
    monkeypatch.setenv('XDG_CACHE_HOME', 'not/absolute')
    assert default_cache_dir() == Path.home() / '.cache' / 'trt_ros'
    assert EngineCache().root == default_cache_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can become another user')
def test_a_user_without_a_home_has_no_default_place(monkeypatch, tmp_path):
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    monkeypatch.delenv('HOME', raising=False)
    os.setreuid(2**31 - 9, 0)  # Known to no password file; with the rights of root.
    try:
        with pytest.raises(ParameterError, match='default folder of the engine cache'):
            default_cache_dir()
        assert kernel_folder() is None  # Compiled at each start, and no error.
        assert kernel_folder(tmp_path / 'cache') == tmp_path / 'cache' / 'kernels'
    finally:
        os.setreuid(0, 0)


def test_kernels_lie_in_the_engine_cache_and_only_where_nobody_else_can_write(tmp_path, caplog):
    root = tmp_path / 'cache'
    assert kernel_folder(root) == root / 'kernels'
    (root / 'kernels').chmod(0o777)
    caplog.set_level('INFO')
    assert kernel_folder(root) is None
    assert 'compiled at each start' in caplog.text and 'Other users can write to' in caplog.text
    (tmp_path / 'file').touch()
    assert kernel_folder(tmp_path / 'file') is None


def test_folder_in_place_of_an_engine_is_named_and_left(filled, models, rtx):
    path = models.conv()
    entry = filled.get_or_build(path, OPTIONS, rtx)
    entry.path.unlink()
    entry.path.mkdir()
    with pytest.raises(ParameterError, match='is a folder, not a file') as caught:
        filled.get_or_build(path, OPTIONS, rtx)
    assert str(entry.path) in caught.value.remedy and entry.path.is_dir()
