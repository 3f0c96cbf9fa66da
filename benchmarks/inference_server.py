"""
Time of a run on an inference server of the same host: python benchmarks/inference_server.py.

The server is that of the tests (test/support/kserve_server.py: Python, ONNX Runtime). Its network
does almost nothing, so that the transport of its input and output remains. Rounds alternate.
"""

from contextlib import ExitStack
from pathlib import Path
import statistics
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parents[1] / 'test'))

from support.kserve_server import ServerProcess
from trt_ros.cli import main as trt_ros
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.remote.address import parse_address
from trt_ros.runtime.remote.remote_runner import RemoteRunner
from trt_ros.runtime.runner import Runner

SIZES, ROUNDS, RUNS = (224, 640, 1280), 8, 15


def write_network(path: Path, size: int) -> Path:
    """Write a network from an image to 7 x 8400 values, as of a detector."""
    shape = (1, 3, size, size)
    nodes = [
        helper.make_node('Slice', ['images', 'begin', 'end'], ['corner']),
        helper.make_node('ReduceMean', ['corner'], ['mean'], keepdims=0),
        helper.make_node('Expand', ['mean', 'shape'], ['output0']),
    ]
    numbers = {'begin': [0, 0, 0, 0], 'end': [1, 3, 1, 1], 'shape': [1, 7, 8400]}
    graph = helper.make_graph(
        nodes,
        'net',
        [helper.make_tensor_value_info('images', TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info('output0', TensorProto.FLOAT, (1, 7, 8400))],
        [onnx.numpy_helper.from_array(np.array(each), name) for name, each in numbers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
    onnx.save(model, path)
    return path


def run_ms(runner: Runner, image: np.ndarray) -> list[float]:
    """Return the milliseconds of some runs."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        runner.infer({'images': image})
        times.append(1e3 * (time.perf_counter() - began))
    return times


def measure(folder: Path, size: int, stack: ExitStack) -> None:
    """Print the median time of a run by transport."""
    path = write_network(folder / f'net{size}.onnx', size)
    assert trt_ros(['triton', str(path), '--output', str(folder / 'models')]) == 0
    runners: dict[str, Runner] = {'in this process': OnnxRuntimeRunner.open(path, threads=1)}
    for name, arguments in (('shared memory', ()), ('gRPC', ('--plain',))):
        server = stack.enter_context(ServerProcess(folder / 'models', *arguments))
        address = parse_address(server.address(path.stem))
        runners[name] = RemoteRunner(address, timeout_seconds=10.0)
    image = np.zeros((1, 3, size, size), np.float32)
    times: dict[str, list[float]] = {name: [] for name in runners}
    for number in range(ROUNDS + 1):
        for name, runner in runners.items():
            found = run_ms(runner, image)
            times[name] += found if number else []
    summary = ', '.join(f'{name} {statistics.median(each):.2f}' for name, each in times.items())
    print(f'{image.nbytes / 1e6:.1f} MB, ms: {summary}')
    for runner in runners.values():
        runner.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            with ExitStack() as stack:
                measure(Path(folder), size, stack)


if __name__ == '__main__':
    main()
