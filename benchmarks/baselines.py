"""
A frame of this package beside what others write: from image bytes to boxes in NumPy.

    python benchmarks/gpu_models.py models
    python benchmarks/baselines.py models/yolov8s.onnx --precisions fp32 fp16
    python benchmarks/baselines.py models/*.onnx --sizes 640x480 1280x720 --ways torch.compile
    python benchmarks/baselines.py policy.onnx --tensors

- *tutorial*: OpenCV, NumPy, TensorRT from pageable memory without a graph.
- *blobFromImage*: OpenCV's blobFromImage into pinned memory; copies and TensorRT in a CUDA graph.
- *torch*: copy, letterbox and normalization by PyTorch, TensorRT and the copy of its outputs, all
  in one CUDA graph.
- *torch.compile*: the same graph, but TorchInductor compiles the preprocessing, and the network in
  place of TensorRT.

All but ours decode with this package's NumPy decoder; depths are resized on the GPU. --tensors: a
network without images, from arrays to arrays, here, with ONNX Runtime, and with torch.compile in a
CUDA graph. All take turns; times in microseconds. Needs PyTorch for CUDA; without a GPU, only
--tensors runs, without TensorRT.
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from itertools import product
from pathlib import Path
import sys
import time
from typing import Any

import cv2
from gpu_frames import ASKED, naive, picture
import numpy as np
import torch
import torch.nn.functional as F
from torch_network import DEVICE, Graph, Network, compiled, compiled_network, prepared

from trt_ros import Pipeline
from trt_ros.engine.options import BuildOptions
from trt_ros.families.registry import TENSORS
from trt_ros.runtime.gpu.measure import open_frames
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox


def tensorrt_network(runner: Any) -> Network:
    """Return the network with TensorRT, which keeps the memory of its outputs."""
    context = runner.engine.handle.create_execution_context()
    types = {'float32': torch.float32, 'float16': torch.float16}
    outputs = {
        each.name: torch.empty(
            tuple(context.get_tensor_shape(each.name)), dtype=types[str(each.dtype)], device='cuda'
        )
        for each in runner.outputs
    }

    def run(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
        tensor = tensor.contiguous()
        context.set_tensor_address(runner.inputs[0].name, tensor.data_ptr())
        for name, output in outputs.items():
            context.set_tensor_address(name, output.data_ptr())
        assert context.execute_async_v3(torch.cuda.current_stream().cuda_stream)
        return outputs

    return run


def with_blob(network: Network, pipeline: GpuPipeline) -> Callable[[Frame], object]:
    height, width = pipeline.shared.preprocess.input_hw
    graph = Graph(network, torch.zeros((1, 3, height, width), device=DEVICE))

    def infer(frame: Frame) -> object:
        box = Letterbox.fit(frame.wh, (height, width), pipeline.shared.preprocess.resize)
        image = frame.data[: frame.nbytes].reshape(frame.height, frame.width, 3)
        canvas = np.full((height, width, 3), 114, np.uint8)
        (left, top), (w, h) = map(int, box.pad_xy), box.inner_wh
        cv2.resize(image, (w, h), canvas[top : top + h, left : left + w])
        graph.inputs[0][:] = cv2.dnn.blobFromImage(canvas, 1 / 255, swapRB=True)
        return pipeline.decoder(graph.run(), box, ASKED)

    return infer


def with_torch(
    network: Network, pipeline: GpuPipeline, frame: Frame, compile_with: Callable[..., Any]
) -> Callable[[Frame], object]:
    preprocess, is_depth = pipeline.shared.preprocess, pipeline.decoder.task == 'depth'
    box = preprocess.letterbox(frame.wh)
    prepare = compile_with(prepared(preprocess, box))

    def resize(depth: torch.Tensor) -> torch.Tensor:
        size = frame.height, frame.width
        return F.interpolate(depth[:, None].float(), size, mode='bilinear')[0, 0]

    resize = compile_with(resize)

    def work(image: torch.Tensor) -> dict[str, torch.Tensor]:
        found = network(prepare(image))
        return {name: resize(each) for name, each in found.items()} if is_depth else found

    source = torch.zeros((1, frame.height, frame.width, 3), dtype=torch.uint8, device=DEVICE)
    graph = Graph(work, source)
    target = graph.inputs[0]

    def infer(frame: Frame) -> object:
        np.copyto(target, frame.data[: frame.nbytes].reshape(target.shape))
        found = graph.run()
        if is_depth:
            return {name: each.copy() for name, each in found.items()}
        return pipeline.decoder(found, box, ASKED)

    return infer


def in_turn(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, np.ndarray]:
    """Return the p50 and p99 of each way in us."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 10):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if number >= 10:
                times[name].append((time.perf_counter() - began) * 1e6)
    return {name: np.percentile(each, [50, 99]) for name, each in times.items()}


def print_rows(what: tuple[str, ...], found: dict[str, np.ndarray]) -> None:
    for name, (p50, p99) in found.items():
        row = *what, name, f'{p50:.0f}', f'{p99:.0f}', f'{p50 / found["ours"][0]:.2f}'
        print(f'| {" | ".join(row)} |', flush=True)


def compare(path: Path, size: str, precision: str, args: argparse.Namespace) -> None:
    """Print the rows of a network, an image size and a precision."""
    frame = picture(*map(int, size.split('x')))
    build = BuildOptions(precision=precision)
    with ExitStack() as stack:
        pipeline = open_frames(path, build, decoder=args.decoder)
        stack.callback(pipeline.close)
        pipeline.warm_up(frame)
        runner = open_tensor_runner(path, build)
        stack.callback(runner.close)
        found = {name: WAYS[name](path, precision, runner, pipeline, frame) for name in args.ways}
        ways: dict[str, Callable[[], object]] = {'ours': lambda: pipeline.infer(frame, ASKED)}
        ways |= {name: lambda way=way: way(frame) for name, way in found.items()}
        print_rows((path.stem, size, precision), in_turn(ways, args.rounds))


def compare_tensors(path: Path, precision: str, rounds: int) -> None:
    """Print the rows of a network of one run without images and states."""
    options = {'families': TENSORS, 'inputs': ['*=tensor:tensors'], 'decoder': 'tensor'}
    with ExitStack() as stack:
        cpu = stack.enter_context(Pipeline.open(path, backend='onnxruntime', **options))
        rng = np.random.default_rng(0)
        inputs = {
            each.name: rng.normal(size=each.shape).astype(each.dtype) for each in cpu.runner.inputs
        }
        sources = [torch.from_numpy(each).to(DEVICE) for each in inputs.values()]
        graph = Graph(compiled_network(path, precision), *sources)

        def torch_run() -> dict[str, np.ndarray]:
            for target, each in zip(graph.inputs, inputs.values()):
                target[:] = each
            return graph.run()

        ways: dict[str, Callable[[], Any]] = {
            'torch.compile': torch_run,
            'ONNX Runtime': lambda: cpu(inputs),
        }
        if DEVICE == 'cuda':
            gpu = stack.enter_context(
                Pipeline.open(
                    path, backend='tensorrt_rtx', gpu_wait='spin', precision=precision, **options
                )
            )
            ways = {'ours': lambda: gpu(inputs), **ways}
        else:
            ways = {'ours': ways.pop('ONNX Runtime'), **ways}
        wanted = cpu(inputs)
        for name, way in ways.items():
            errors = [np.abs(value - wanted[key]).max() for key, value in way().items()]
            print(f'{path.stem}, {name}: at most {max(errors):.2g} from ONNX Runtime')
        print_rows((path.stem, '', precision), in_turn(ways, rounds))


#: The networks of a process, compiled once for all sizes of images.
network_of = cache(compiled_network)

#: Each returns a function of a frame; the arguments are those of compare().
WAYS: dict[str, Callable[..., Callable[[Frame], object]]] = {
    'tutorial': lambda path, precision, runner, pipeline, frame: naive(runner, pipeline),
    'blobFromImage': lambda path, precision, runner, pipeline, frame: with_blob(
        tensorrt_network(runner), pipeline
    ),
    'torch': lambda path, precision, runner, pipeline, frame: with_torch(
        tensorrt_network(runner), pipeline, frame, lambda function: function
    ),
    'torch.compile': lambda path, precision, runner, pipeline, frame: with_torch(
        network_of(path, precision), pipeline, frame, compiled
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('models', type=Path, nargs='+')
    parser.add_argument('--precisions', nargs='+', default=['fp32'])
    parser.add_argument('--sizes', nargs='+', default=['1920x1080'])
    parser.add_argument('--decoder', default='auto')
    parser.add_argument('--ways', nargs='*', choices=WAYS, default=list(WAYS))
    parser.add_argument('--tensors', action='store_true', help='networks without images')
    parser.add_argument('--rounds', type=int, default=200)
    args = parser.parse_args()
    torch.zeros(1, device=DEVICE)
    print('| model | image | precision | | p50 | p99 | ÷ ours |', '|---|' + '---|' * 6, sep='\n')
    if args.tensors:
        for path, precision in product(args.models, args.precisions):
            compare_tensors(path, precision, args.rounds)
        return 0
    for path, precision, size in product(args.models, args.precisions, args.sizes):
        compare(path, size, precision, args)
    return 0


if __name__ == '__main__':
    sys.exit(main())
