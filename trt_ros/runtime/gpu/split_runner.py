"""A network whose beginning runs on a GPU, and whose end on the CPU."""

from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
import hashlib
import io
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from trt_ros.child import Child, memory_limit
from trt_ros.engine.builder.model_file import DATA_DEPENDENT, file_mentions
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.files import make_private
from trt_ros.engine.key import OnnxFile, total_nbytes
from trt_ros.engine.plan import is_plan
from trt_ros.errors import ParameterError
from trt_ros.progress import Reporter
from trt_ros.regular_file import MAX_TEXT_NBYTES, read_regular, write_atomically
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.runner import Runner
from trt_ros.tensors import Arrays, TensorSpec

SCHEMA = 1  # Increase it when the same model would be split in another way.


class SplitRunner(Runner):
    """A network in two parts, head and tail; owns both."""

    arrays_only = True

    def __init__(
        self,
        head: Runner,
        tail: Runner,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        log_lines: tuple[str, ...] = (),
    ) -> None:
        self.head, self.tail, self.inputs, self.outputs = head, tail, inputs, outputs
        self.backend, self.metadata = head.backend, head.metadata
        self.log_lines = (*head.log_lines, *log_lines)

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        between = self.head.infer({spec.name: tensors[spec.name] for spec in self.head.inputs})
        known = {**tensors, **between}
        found = self.tail.infer({spec.name: known[spec.name] for spec in self.tail.inputs})
        # The next run of the head reuses its arrays.
        return {
            name: found[name] if name in found else known[name].copy()
            for name in (spec.name for spec in self.outputs)
        }

    def diagnostics(self) -> dict[str, str]:
        return self.head.diagnostics()

    def close(self) -> None:
        self.head.close()
        self.tail.close()


def open_split(
    options: PipelineOptions, report: Reporter, open_head: Callable[..., Runner]
) -> SplitRunner | None:
    """
    Open a network of outputs whose shape depends on the data; None for any other network.

    :param open_head: opens the network of a `model_path`, on the GPU.
    :raises TrtRosError: as `open_tensor_runner`; a ModelError if it cannot be split.
    """
    path = Path(options.model_path).expanduser()
    # Other openers report what is wrong with a file.
    if options.is_bundle or not (path.is_file() and path.stat().st_size) or is_plan(path):
        return None
    if not file_mentions(path, *DATA_DEPENDENT):
        return None
    with TemporaryDirectory(prefix='trt_ros') as temporary, ExitStack() as undo:
        found, head, tail = _parts(path, options.engine_cache_dir, Path(temporary), report)
        if not found:
            return None
        runner = open_head(model_path=str(head))
        undo.callback(runner.close)
        rest = OnnxRuntimeRunner.open(tail)
        from trt_ros.engine.builder.onnx_check import read_network  # Imports onnx.

        inputs, outputs, _ = read_network(path)
        undo.pop_all()
        return SplitRunner(runner, rest, inputs, outputs, (found['line'],))


def _parts(
    path: Path, engine_cache_dir: str, temporary: Path, report: Reporter
) -> tuple[dict[str, Any], Path, Path]:
    """
    Return what `split_model` reports of a network, and the files of its parts.

    The engine cache keeps them, so that a start parses only a model that it does not know.

    :param temporary: folder for a cache that cannot be written.
    """
    model, folder = OnnxFile.read(path), temporary
    key = json.dumps([SCHEMA, path.stem, model.sha256, model.external])
    with suppress(ParameterError, OSError):
        root = EngineCache(engine_cache_dir).root
        kept = root / '.split' / hashlib.sha256(key.encode()).hexdigest()
        make_private(kept, root)
        if os.access(kept, os.W_OK) or (kept / f'{path.stem}.json').exists():
            folder = kept
    # The head has the name of the engine in the cache.
    done, head, tail = (folder / f'{path.stem}{end}' for end in ('.json', '.onnx', '.tail.onnx'))
    with suppress(OSError, ValueError):
        return json.loads(read_regular(done, MAX_TEXT_NBYTES)), head, tail
    nbytes = total_nbytes(path)
    child = Child(
        'trt_ros.engine.builder.onnx_split:split_model',
        title=f'The split of {path}',
        remedy='Use backend onnxruntime.',
        memory_nbytes=memory_limit(nbytes, base_nbytes=1 << 30, factor=8),
    )
    with closing(child):
        found = child.call(
            {'path': str(path.absolute()), 'head': str(head), 'tail': str(tail)},
            report=report,
            phase='splitting the model',
            timeout_seconds=60.0 + nbytes / 2**22,
        )
    write_atomically(done, io.BytesIO(json.dumps(found).encode()))  # Last: the parts are whole.
    return found, head, tail
