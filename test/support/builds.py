"""Engine builds in the process of the test: none has to start, and to load TensorRT."""

import json
import os
from pathlib import Path
from typing import Any

from trt_ros.child import Events
from trt_ros.engine.builder.child import describe_onnx, run_build
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.plan import PlanHeader, parse_plan_header
from trt_ros.trt import Library


class _Unread(Events):
    def __init__(self) -> None:
        pass

    def __call__(self, **event: Any) -> None:
        pass


def build_here(onnx: Path, library: Library, **options: Any) -> tuple[dict[str, Any], PlanHeader]:
    """Return the report of a build, and the header of the plan, which is complete."""
    with open(os.memfd_create('plan'), 'w+b') as file:
        request = {
            'onnx': str(onnx),
            'options': BuildOptions(**options).to_json(),
            'library': library.name,
            'plan_fd': file.fileno(),
        }
        report = run_build(request, _Unread())
        file.seek(0)
        plan = file.read()
    header = parse_plan_header(plan[:64])
    assert header.nbytes == len(plan)
    return json.loads(json.dumps(report)), header


def describe_here(onnx: Path, library: Library) -> dict[str, Any]:
    """Return what the library would build of a model, or raise TrtRosError."""
    return describe_onnx({'path': str(onnx), 'library': library.name}, _Unread())
