"""A network whose beginning runs on a GPU, and whose end on the CPU."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from trt_ros.child import Child, memory_limit
from trt_ros.engine.builder.onnx_check import read_network
from trt_ros.engine.builder.onnx_nodes import file_mentions
from trt_ros.engine.builder.onnx_split import DATA_DEPENDENT
from trt_ros.engine.key import total_nbytes
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.plan import is_plan
from trt_ros.progress import Reporter
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.runner import Runner
from trt_ros.tensors import TensorSpec


class SplitRunner(Runner):
    """
    A network in two parts; owns both.

    :param head: takes inputs of the network.
    :param tail: takes outputs of the head, and inputs of the network.
    """

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

    def infer(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run both parts, see `Runner.infer`."""
        known = {**tensors}
        for part in (self.head, self.tail):
            known |= part.infer({spec.name: known[spec.name] for spec in part.inputs})
        return {spec.name: known[spec.name] for spec in self.outputs}

    def diagnostics(self) -> dict[str, str]:
        """Return values for /diagnostics by their key."""
        return self.head.diagnostics()

    def close(self) -> None:
        """Release both parts; may be called twice."""
        self.head.close()
        self.tail.close()


def open_split(
    options: PipelineOptions, build: BuildOptions, report: Reporter, backend: str
) -> SplitRunner | None:
    """
    Open a network of outputs whose shape depends on the data; None for any other network.

    :raises TrtRosError: as `open_tensor_runner`; a ModelError if it cannot be split.
    """
    path = Path(options.model_path).expanduser()
    # Other openers report what is wrong with a file.
    if options.is_bundle or not (path.is_file() and path.stat().st_size) or is_plan(path):
        return None
    if not file_mentions(path, *DATA_DEPENDENT):
        return None
    with TemporaryDirectory(prefix='trt_ros') as name, ExitStack() as undo:
        folder, nbytes = Path(name), total_nbytes(path)
        child = Child(
            'trt_ros.engine.builder.onnx_split:split_model',
            title=f'The split of {path}',
            remedy='Use backend onnxruntime.',
            memory_nbytes=memory_limit(nbytes, base_nbytes=1 << 30, factor=8),
        )
        with closing(child):
            found = child.call(
                {'path': str(path.absolute()), 'folder': name},
                report=report,
                phase='splitting the model',
                timeout_seconds=60.0 + nbytes / 2**22,
            )
        if not found:
            return None
        head = folder / f'{path.stem}.onnx'  # The name of the engine in the cache.
        (folder / 'head.onnx').rename(head)
        runner = open_tensor_runner(
            options, build, report=report, model_path=str(head), backend=backend
        )
        undo.callback(runner.close)
        tail = OnnxRuntimeRunner.open(folder / 'tail.onnx')
        inputs, outputs, _ = read_network(path)
        undo.pop_all()
        return SplitRunner(runner, tail, inputs, outputs, (found['line'],))
