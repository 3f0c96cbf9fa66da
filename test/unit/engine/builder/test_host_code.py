"""A plan may bring host code of its own; the library runs it only where the sidecar vouches."""

from __future__ import annotations

from contextlib import nullcontext
import hashlib
import json
import struct
from types import SimpleNamespace

import pytest

from trt_ros.engine import engine as engines
from trt_ros.engine import open as opening
from trt_ros.engine.cache import sidecar_path
from trt_ros.engine.options import BuildOptions
from trt_ros.trt import Library


@pytest.fixture
def runtimes(monkeypatch):
    """Load plans with a library that has no GPU; give the runtimes that it makes."""
    made = []
    handle = SimpleNamespace(num_io_tensors=0, num_optimization_profiles=0)

    def new_runtime(self):
        made.append(
            SimpleNamespace(
                engine_host_code_allowed=False, deserialize_cuda_engine=lambda plan: handle
            )
        )
        return made[-1]

    log = SimpleNamespace(collect=lambda: nullcontext(SimpleNamespace(errors=[])))
    library = Library('tensorrt', SimpleNamespace(), (10, 3, 0, 26), '10.3.0.26', log)
    monkeypatch.setattr(Library, 'new_runtime', new_runtime)
    monkeypatch.setattr(engines, 'measured', lambda *_: nullcontext())
    for module in (engines, opening):
        monkeypatch.setattr(module, 'load_trt', lambda prefer='auto': library)
    return made


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / 'net.engine'
    path.write_bytes(struct.pack('<4s20x4B36x', b'ftrt', 10, 3, 0, 26))
    return path


def describe(plan, **options):
    """Write the sidecar of a plan that was built with these options."""
    sidecar = {
        'library': 'tensorrt',
        'plan_sha256': hashlib.sha256(plan.read_bytes()).hexdigest(),
        'options': json.loads(BuildOptions(**options).to_json()),
    }
    sidecar_path(plan).write_text(json.dumps(sidecar))


def test_a_plan_of_unknown_origin_may_not_run_its_host_code(plan, runtimes):
    opening.open_plan(plan, 0, BuildOptions())
    engines.load_engine(plan)
    engines.load_engine(plan.read_bytes())
    assert [each.engine_host_code_allowed for each in runtimes] == [False] * 3


def test_version_compatible_option_does_not_trust_foreign_plan(plan, runtimes):
    opening.open_plan(plan, 0, BuildOptions(version_compatible=True))
    assert [each.engine_host_code_allowed for each in runtimes] == [False]


@pytest.mark.parametrize('version_compatible', [False, True])
def test_host_code_is_allowed_only_to_an_engine_that_was_built_version_compatible(
    plan, runtimes, version_compatible
):
    describe(plan, version_compatible=version_compatible)
    opening.open_plan(plan, 0, BuildOptions())
    assert [each.engine_host_code_allowed for each in runtimes] == [version_compatible]
