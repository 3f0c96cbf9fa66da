"""First load and run of an untrusted model, in the child process of a CheckedRunner."""

# Each import lengthens the first start of a model.
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from trt_ros.child import Events, limit_memory, too_large
from trt_ros.errors import MemoryLimitError
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner, load_onnxruntime
from trt_ros.tensors import refuse_large

_runner: OnnxRuntimeRunner | None = None


def check_in_child(request: Mapping[str, Any], events: Events) -> Any:
    """Load the model of the first request, run it for each further one."""
    global _runner
    load_onnxruntime()
    nbytes = request['memory_nbytes']
    limit_memory(nbytes)
    try:
        if _runner is not None:
            with open(f'/proc/self/fd/{request["tensors_fd"]}', 'rb') as file:
                arrays = np.load(file)
                _runner.infer(
                    {name: arrays[f'arr_{index}'] for index, name in enumerate(request['names'])}
                )
            return None
        _runner = OnnxRuntimeRunner.open(request['path'])
    except (MemoryError, MemoryLimitError) as error:
        raise too_large(f'The check of {request["path"]}', nbytes) from error
    refuse_large(_runner.inputs)
    return {
        'inputs': [asdict(spec) for spec in _runner.inputs],
        'outputs': [asdict(spec) for spec in _runner.outputs],
        'metadata': dict(_runner.metadata),
    }
