"""
A frame of this package beside what others write: from image bytes to boxes in NumPy.

    python benchmarks/gpu_models.py models
    python benchmarks/baselines.py models/yolov8s.onnx --precisions fp32 fp16
    python benchmarks/baselines.py models/*.onnx --sizes 640x480 1280x720 --ways torch.compile

- *tutorial*: OpenCV, NumPy, TensorRT from pageable memory without a graph.
- *blobFromImage*: OpenCV's blobFromImage into pinned memory; copies and TensorRT in a CUDA graph.
- *torch*: copy, letterbox and normalization by PyTorch, TensorRT and the copy of its outputs, all
  in one CUDA graph.
- *torch.compile*: the same graph with the network compiled by TorchInductor in place of TensorRT.

All but ours decode with this package's NumPy decoder. All take turns; times in microseconds. Needs
PyTorch for CUDA.
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from itertools import product
from pathlib import Path
import sys
from tempfile import TemporaryDirectory
import time
from typing import Any

import cv2
from gpu_frames import ASKED, naive, picture
import numpy as np
import onnx
from onnx import numpy_helper
import onnxruntime
import torch
import torch.nn.functional as F

from trt_ros.engine.options import BuildOptions
from trt_ros.runtime.gpu.measure import open_frames
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox

#: Runs a network on device memory: from its input to its outputs by name.
Network = Callable[[torch.Tensor], dict[str, torch.Tensor]]


class Graph:
    """A function of device memory, captured with the copies from and to pinned memory."""

    def __init__(self, source: torch.Tensor, work: Network) -> None:
        self.pinned = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
        self.graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                outputs = work(source)
            stream.synchronize()
            hosts = {
                name: torch.empty(each.shape, dtype=torch.float32, pin_memory=True)
                for name, each in outputs.items()
            }
            with torch.cuda.graph(self.graph, stream=stream):
                source.copy_(self.pinned, non_blocking=True)
                for name, each in work(source).items():
                    hosts[name].copy_(each.float(), non_blocking=True)
        self.work = work  # Owns what the graph uses.
        self.stream, self.outputs = stream, {name: each.numpy() for name, each in hosts.items()}

    def run(self) -> dict[str, np.ndarray]:
        with torch.cuda.stream(self.stream):
            self.graph.replay()
        self.stream.synchronize()
        return self.outputs


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
        context.set_tensor_address(runner.inputs[0].name, tensor.data_ptr())
        for name, output in outputs.items():
            context.set_tensor_address(name, output.data_ptr())
        assert context.execute_async_v3(torch.cuda.current_stream().cuda_stream)
        return outputs

    return run


def compiled_network(path: Path, precision: str) -> Network:
    """Return the network by PyTorch and TorchInductor; float32 is that with TF32."""
    torch.set_float32_matmul_precision('high')
    torch.backends.cudnn.allow_tf32 = True
    torch.compiler.reset()
    dtype = {'fp16': torch.float16, 'bf16': torch.bfloat16}.get(precision, torch.float32)
    graph = folded(path)
    constants = {}
    for each in graph.initializer:
        value = torch.from_numpy(numpy_helper.to_array(each).copy())
        constants[each.name] = (
            value.to('cuda', dtype) if value.is_floating_point() else value.tolist()
        )
    nodes = [  # Without objects of ONNX, which TorchDynamo cannot trace.
        (
            each.op_type,
            [name for name in each.input if name],
            list(each.output),
            {a.name: onnx.helper.get_attribute_value(a) for a in each.attribute},
        )
        for each in graph.node
    ]
    given, wanted = graph.input[0].name, [each.name for each in graph.output]

    def run(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
        values: dict[str, Any] = {**constants, given: tensor.to(dtype)}
        for kind, inputs, outputs, attributes in nodes:
            found = run_node(kind, [values[each] for each in inputs], attributes)
            values.update(zip(outputs, found, strict=True))
        return {name: values[name] for name in wanted}

    return torch.no_grad()(torch.compile(run, dynamic=False, fullgraph=True))


def folded(path: Path) -> onnx.GraphProto:
    """Return the graph of a file after ONNX Runtime's basic optimizations."""
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = f'{folder}/folded.onnx'
        options.log_severity_level = 3  # It warns that the file depends on the machine.
        onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
        return onnx.load(options.optimized_model_filepath).graph


def run_node(kind: str, x: list[Any], attributes: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Run a node of `gpu_models.py` or the demo."""
    match kind:
        case 'Conv':
            pads, strides = attributes.get('pads', [0, 0]), attributes.get('strides', 1)
            groups = attributes.get('group', 1)
            return (F.conv2d(*x, stride=strides, padding=pads[:2], groups=groups),)
        case 'MaxPool':
            size, strides, pads = (attributes[e] for e in ('kernel_shape', 'strides', 'pads'))
            return (F.max_pool2d(x[0], size, strides, pads[:2]),)
        case 'Split':
            return torch.split(x[0], x[1], attributes['axis'])
        case 'Concat':
            return (torch.cat(x, attributes['axis']),)
        case 'Resize':
            return (F.interpolate(x[0], scale_factor=2.0, mode='nearest'),)
        case 'Gemm':
            return (torch.addmm(x[2], x[0], x[1].T if attributes.get('transB') else x[1]),)
        case 'ReduceSum':
            return (x[0].sum(x[1], keepdim=bool(attributes.get('keepdims', 1))),)
        case 'Softmax':
            return (x[0].softmax(attributes['axis']),)
        case 'Reshape':
            return (x[0].reshape([d or x[0].shape[i] for i, d in enumerate(x[1])]),)
    plain = {
        'Mul': torch.mul, 'Add': torch.add, 'Sub': torch.sub, 'Sigmoid': torch.sigmoid,
        'Relu': torch.relu, 'MatMul': torch.matmul, 'Identity': torch.clone,
        'Div': torch.div, 'Softplus': F.softplus, 'Flatten': lambda e: e.flatten(1),
        'GlobalAveragePool': lambda e: e.mean((2, 3), keepdim=True),
    }  # fmt: skip
    return (plain[kind](*x),)


def with_blob(network: Network, pipeline: GpuPipeline) -> Callable[[Frame], object]:
    height, width = pipeline.shared.preprocess.input_hw
    graph = Graph(torch.zeros((1, 3, height, width), device='cuda'), network)
    target = graph.pinned.numpy()

    def infer(frame: Frame) -> object:
        box = Letterbox.fit(frame.wh, (height, width), pipeline.shared.preprocess.resize)
        image = frame.data[: frame.nbytes].reshape(frame.height, frame.width, 3)
        canvas = np.full((height, width, 3), 114, np.uint8)
        (left, top), (w, h) = map(int, box.pad_xy), box.inner_wh
        cv2.resize(image, (w, h), canvas[top : top + h, left : left + w])
        target[:] = cv2.dnn.blobFromImage(canvas, 1 / 255, swapRB=True)
        return pipeline.decoder(graph.run(), box, ASKED)

    return infer


def with_torch(network: Network, pipeline: GpuPipeline, frame: Frame) -> Callable[[Frame], object]:
    height, width = pipeline.shared.preprocess.input_hw
    box = Letterbox.fit(frame.wh, (height, width), pipeline.shared.preprocess.resize)
    (left, top), (w, h) = map(int, box.pad_xy), box.inner_wh
    canvas = torch.full((1, 3, height, width), 114 / 255, device='cuda')

    def work(image: torch.Tensor) -> dict[str, torch.Tensor]:
        pixels = image.permute(2, 0, 1)[None].flip(1).float()
        inner = F.interpolate(pixels, (h, w), mode='bilinear', align_corners=False)
        inner = inner[:, :, max(-top, 0) : height - top, max(-left, 0) : width - left]
        canvas[:, :, max(top, 0) : top + h, max(left, 0) : left + w] = inner / 255
        return network(canvas)

    source = torch.zeros((frame.height, frame.width, 3), dtype=torch.uint8, device='cuda')
    graph = Graph(source, work)
    target = graph.pinned.numpy()

    def infer(frame: Frame) -> object:
        np.copyto(target, frame.data[: frame.nbytes].reshape(target.shape))
        return pipeline.decoder(graph.run(), box, ASKED)

    return infer


def compare(path: Path, size: str, precision: str, chosen: list[str], rounds: int) -> None:
    """Print the rows of a network, an image size and a precision."""
    frame = picture(*map(int, size.split('x')))
    build = BuildOptions(precision=precision)
    with ExitStack() as stack:
        pipeline = open_frames(path, build)
        stack.callback(pipeline.close)
        pipeline.warm_up(frame)
        runner = open_tensor_runner(path, build)
        stack.callback(runner.close)
        ways = {'ours': lambda each: pipeline.infer(each, ASKED)}
        ways |= {name: WAYS[name](path, precision, runner, pipeline, frame) for name in chosen}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 10):
            for name, way in ways.items():
                began = time.perf_counter()
                way(frame)
                if number >= 10:
                    times[name].append((time.perf_counter() - began) * 1e6)
    ours = np.median(times['ours'])
    for name, each in times.items():
        p50, p99 = np.percentile(each, [50, 99])
        row = path.stem, size, precision, name, f'{p50:.0f}', f'{p99:.0f}', f'{p50 / ours:.2f}'
        print(f'| {" | ".join(row)} |', flush=True)


#: Each returns a function of a frame; the arguments are those of compare().
WAYS: dict[str, Callable[..., Callable[[Frame], object]]] = {
    'tutorial': lambda path, precision, runner, pipeline, frame: naive(runner, pipeline),
    'blobFromImage': lambda path, precision, runner, pipeline, frame: with_blob(
        tensorrt_network(runner), pipeline
    ),
    'torch': lambda path, precision, runner, pipeline, frame: with_torch(
        tensorrt_network(runner), pipeline, frame
    ),
    'torch.compile': lambda path, precision, runner, pipeline, frame: with_torch(
        compiled_network(path, precision), pipeline, frame
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('models', type=Path, nargs='+')
    parser.add_argument('--precisions', nargs='+', default=['fp32'])
    parser.add_argument('--sizes', nargs='+', default=['1920x1080'])
    parser.add_argument('--ways', nargs='+', choices=WAYS, default=list(WAYS))
    parser.add_argument('--rounds', type=int, default=200)
    args = parser.parse_args()
    torch.zeros(1, device='cuda')
    print('| model | image | precision | | p50 | p99 | ÷ ours |', '|---|' + '---|' * 6, sep='\n')
    for path, precision, size in product(args.models, args.precisions, args.sizes):
        compare(path, size, precision, args.ways, args.rounds)
    return 0


if __name__ == '__main__':
    sys.exit(main())
