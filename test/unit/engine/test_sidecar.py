"""Sidecars of unknown origin are checked before anything uses them."""

import copy
import json
import random
import shutil

import pytest

from trt_ros.cli import main
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.sidecar import read_sidecar, sidecar_path
from trt_ros.errors import ModelError

VALUES = (None, True, -1, 2**64, 0.5, float('nan'), '', 'x', '\ud800', [], [None], {}, {'': {}})


def places(value, path=()):
    """Yield the path of every value inside a JSON value."""
    items = enumerate(value) if isinstance(value, list) else ()
    items = value.items() if isinstance(value, dict) else items
    for key, each in items:
        yield (*path, key)
        yield from places(each, (*path, key))


def changed(sidecar, path, value):
    """Return a copy with one value replaced, or removed if `value` is Ellipsis."""
    found = copied = copy.deepcopy(sidecar)
    for key in path[:-1]:
        found = found[key]
    if value is ...:
        del found[path[-1]]
    else:
        found[path[-1]] = value
    return copied


@pytest.mark.slow
def test_any_change_of_a_sidecar_is_an_error_or_can_be_inspected(built_cache, tmp_path, capsys):
    shutil.copytree(built_cache, tmp_path / 'cache')
    (engine,), chosen = EngineCache(tmp_path / 'cache').entries(), random.Random(0)
    sidecar = read_sidecar(engine)
    for path in places(sidecar):
        for value in (..., chosen.choice(VALUES)):
            text = json.dumps(changed(sidecar, path, value))
            sidecar_path(engine).write_text(text)
            code = main(['inspect', '--layers', str(engine)])
            assert code in (0, 1), (path, value)  # Raises nothing.
            assert not code or 'Remedy: ' in capsys.readouterr().err


@pytest.mark.parametrize('text', ['[' * 100_000, '1', '[]', 'null', '{"key": ', '9' * 5000, '{}'])
def test_text_that_is_no_sidecar_is_an_error(text, tmp_path):
    sidecar_path(tmp_path / 'net.engine').write_text(text)
    with pytest.raises(ModelError, match='sidecar') as caught:
        read_sidecar(tmp_path / 'net.engine')
    assert caught.value.cause and caught.value.remedy


def test_sidecar_without_end_is_refused_at_once(tmp_path):
    sidecar_path(tmp_path / 'net.engine').symlink_to('/dev/zero')
    with pytest.raises(ModelError, match='Not a regular file'):
        read_sidecar(tmp_path / 'net.engine')
