"""
A network of ONNX in PyTorch, and CUDA graphs of it, as an experienced user writes them.

The network is compiled by TorchInductor with its weights as constants (`freezing`), so that
layouts are chosen once; images are prepared and boxes selected by compiled functions, too. All of
them are captured in one CUDA graph with the copies from and to pinned memory, as by the mode
`reduce-overhead`, but without its checks per call. Without a GPU nothing is captured: the code
can be tried, and its results compared.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
import onnxruntime
import torch
from torch._inductor import config as inductor
import torch.nn.functional as F

from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.thresholds import Thresholds

DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'
DTYPES = {'fp16': torch.float16, 'bf16': torch.bfloat16}
#: Runs a network on device memory: from its inputs, in order or by name, to its outputs by name.
Network = Callable[..., dict[str, torch.Tensor]]
#: Rounds of suppression, enough where no chain of boxes that suppress each other is longer.
ROUNDS = 8

torch.set_float32_matmul_precision('high')
torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
torch._dynamo.config.recompile_limit = 64  # Of all networks and sizes of one process.
inductor.freezing = True


class Graph:
    """A function of device memory, captured with the copies from and to pinned memory."""

    def __init__(self, work: Network, *sources: torch.Tensor) -> None:
        is_pinned = DEVICE == 'cuda'
        hosts = [
            torch.zeros(each.shape, dtype=each.dtype, pin_memory=is_pinned) for each in sources
        ]
        self.inputs, self.work, self.sources = [each.numpy() for each in hosts], work, sources
        self._replay: Callable[[], None] | None = None
        if not is_pinned:
            return
        self._stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.stream(self._stream):
            for _ in range(3):
                found = work(*sources)
            self._stream.synchronize()
            results = {
                name: torch.empty(each.shape, dtype=_host_dtype(each), pin_memory=True)
                for name, each in found.items()
            }
            with torch.cuda.graph(graph, stream=self._stream):
                for source, host in zip(sources, hosts):
                    source.copy_(host, non_blocking=True)
                for name, each in work(*sources).items():
                    results[name].copy_(each.to(results[name].dtype), non_blocking=True)
        self._replay = graph.replay
        self._outputs = {name: each.numpy() for name, each in results.items()}

    def run(self) -> dict[str, np.ndarray]:
        """Run on `inputs`, and return the outputs, which the next run overwrites."""
        if self._replay is None:
            with torch.no_grad():
                for source, host in zip(self.sources, self.inputs):
                    source.copy_(torch.from_numpy(host))
                found = self.work(*self.sources).items()
            return {name: each.to(_host_dtype(each)).numpy() for name, each in found}
        with torch.cuda.stream(self._stream):
            self._replay()
        self._stream.synchronize()
        return self._outputs


def _host_dtype(tensor: torch.Tensor) -> torch.dtype:
    return torch.float32 if tensor.is_floating_point() else tensor.dtype


class OnnxNetwork(torch.nn.Module):
    """The nodes of an ONNX file, one operator of PyTorch each, without its objects."""

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        super().__init__()
        graph = folded(path)
        self.dtype, self.constants, self.weights = dtype, {}, {}
        for number, each in enumerate(graph.initializer):
            value = torch.from_numpy(numpy_helper.to_array(each).copy())
            if value.is_floating_point():
                self.weights[each.name] = f'weight_{number}'
                self.register_buffer(f'weight_{number}', value.to(DEVICE, dtype))
            else:
                self.constants[each.name] = value.tolist()
        self.nodes = [
            (
                each.op_type,
                list(each.input),
                list(each.output),
                {a.name: onnx.helper.get_attribute_value(a) for a in each.attribute},
            )
            for each in graph.node
        ]
        self.given = [each.name for each in graph.input]
        self.wanted = [each.name for each in graph.output]

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> dict[str, torch.Tensor]:
        values: dict[str, Any] = {**self.constants, '': None}
        values |= {name: getattr(self, key) for name, key in self.weights.items()}
        named = {**dict(zip(self.given, inputs)), **named}
        values |= {name: each.to(self.dtype) for name, each in named.items()}
        for kind, names, outputs, attributes in self.nodes:
            given = [values[each] for each in names]
            found = run_node(kind, given, attributes, len(outputs))
            values.update(zip(outputs, found))
        return {name: values[name] for name in self.wanted}


def compiled_network(path: Path, precision: str, mode: str = 'default') -> Network:
    """Return the network by TorchInductor; float32 is that with TF32."""
    network = OnnxNetwork(path, DTYPES.get(precision, torch.float32)).eval()
    return compiled(network, mode)


def compiled(work: Callable[..., Any], mode: str = 'default') -> Callable[..., Any]:
    """Compile a function of fixed shapes."""
    return torch.no_grad()(torch.compile(work, dynamic=False, fullgraph=True, mode=mode))


def folded(path: Path) -> onnx.GraphProto:
    """Return the graph of a file after ONNX Runtime's basic optimizations."""
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = f'{folder}/folded.onnx'
        options.log_severity_level = 3  # It warns that the file depends on the machine.
        onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
        return onnx.load(options.optimized_model_filepath).graph


def run_node(
    kind: str, x: list[Any], attributes: Mapping[str, Any], count: int
) -> Sequence[torch.Tensor]:
    """Run a node of the networks of these benchmarks; other attributes than theirs fail."""
    if kind == 'Split':
        axis = attributes['axis']
        return torch.split(x[0], x[1] if len(x) > 1 else x[0].shape[axis] // count, axis)
    if kind in WITH_ATTRIBUTES:
        return (WITH_ATTRIBUTES[kind](*x, **attributes),)
    return (PLAIN[kind](*x),)


def _conv(x, weight, bias=None, *, pads=(0, 0), strides=1, group=1, dilations=1, **_):
    return F.conv2d(x, weight, bias, strides, pads[:2], dilations, group)


def _conv_transpose(x, weight, bias=None, *, strides, pads=(0, 0), **_):
    assert not any(pads)
    return F.conv_transpose2d(x, weight, bias, strides)


def _max_pool(x, *, kernel_shape, strides, pads, **_):
    return F.max_pool2d(x, kernel_shape, strides, pads[:2])


def _slice(x, starts, ends, axes=None, steps=None):
    places = [slice(None)] * x.dim()
    for number, axis in enumerate(axes or range(len(starts))):
        step = steps[number] if steps else 1
        places[axis] = slice(starts[number], min(ends[number], x.shape[axis]), step)
    return x[tuple(places)]


def _resize(
    x,
    _roi=None,
    scales=None,
    sizes=None,
    *,
    mode=b'nearest',
    coordinate_transformation_mode=b'',
    **_,
):
    if mode == b'nearest':
        return F.interpolate(x, scale_factor=2.0, mode='nearest')
    assert coordinate_transformation_mode == b'align_corners'
    return F.interpolate(x, sizes[2:], mode='bilinear', align_corners=True)


def _layer_norm(x, scale, bias=None, *, axis, epsilon, **_):
    assert axis == -1
    return F.layer_norm(x, x.shape[-1:], scale, bias, epsilon)


def _gemm(x, weight, bias, *, transA=0, transB=0, alpha=1.0, beta=1.0):
    assert alpha == beta == 1 and not transA
    return torch.addmm(bias, x, weight.T if transB else weight)


#: Operators by kind, whose arguments have the names of ONNX's attributes.
WITH_ATTRIBUTES: dict[str, Callable[..., torch.Tensor]] = {
    'Conv': _conv,
    'ConvTranspose': _conv_transpose,
    'MaxPool': _max_pool,
    'Resize': _resize,
    'LayerNormalization': _layer_norm,
    'Gemm': _gemm,
    'Concat': lambda *x, axis: torch.cat(x, axis),
    'ReduceSum': lambda x, axes, keepdims=1, **_: x.sum(axes, keepdim=bool(keepdims)),
    'Softmax': lambda x, axis=-1: x.softmax(axis),
    'Elu': lambda x, alpha=1.0: F.elu(x, alpha),
    'Gather': lambda x, index, axis=0: x.select(axis, index),
    'Transpose': lambda x, perm: x.permute(perm),
    'Reshape': lambda x, shape, **_: x.reshape([d or x.shape[i] for i, d in enumerate(shape)]),
}
PLAIN: dict[str, Callable[..., torch.Tensor]] = {
    'Mul': torch.mul, 'Add': torch.add, 'Sub': torch.sub, 'Div': torch.div, 'Slice': _slice,
    'Sigmoid': torch.sigmoid, 'Relu': torch.relu, 'Tanh': torch.tanh, 'Erf': torch.erf,
    'Max': torch.maximum, 'Min': torch.minimum, 'Sign': torch.sign, 'Sum': lambda *x: sum(x),
    'Unsqueeze': lambda x, axes: x.unsqueeze(*axes), 'Softplus': F.softplus,
    'MatMul': torch.matmul, 'Identity': torch.clone,
    'Flatten': lambda x: x.flatten(1),
    'GlobalAveragePool': lambda x: x.mean((2, 3), keepdim=True),
}  # fmt: skip


class Normalized:
    """The normalization of pixels, (N, 3, H, W) float32 BGR, for a network's input."""

    def __init__(self, preprocess: Preprocess) -> None:
        self.is_rgb = preprocess.channel_order == 'rgb'
        self.gain, self.bias = (
            torch.from_numpy(each).to(DEVICE)[:, None, None]
            for each in (preprocess.gain, preprocess.bias)
        )

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels.flip(1) if self.is_rgb else pixels) * self.gain - self.bias


def prepared(preprocess: Preprocess, box: Letterbox) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the preprocessing of images, (N, H, W, 3) uint8 BGR, for a network's input."""
    (left, top), (w, h), (rows, cols) = map(int, box.pad_xy), box.inner_wh, box.input_hw
    sides = max(left, 0), max(cols - left - w, 0), max(top, 0), max(rows - top - h, 0)
    normalized, pad_value = Normalized(preprocess), float(preprocess.pad_value)

    def prepare(images: torch.Tensor) -> torch.Tensor:
        pixels = images.permute(0, 3, 1, 2).float()
        inner = F.interpolate(pixels, (h, w), mode='bilinear', align_corners=False)
        inner = inner[:, :, max(-top, 0) : rows - top, max(-left, 0) : cols - left]
        return normalized(F.pad(inner, sides, value=pad_value))

    return prepare


def boxes_of(
    head: torch.Tensor, box: Letterbox
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return corners in image pixels, scores and labels of (N, 4 + C, A) outputs of a YOLOv8."""
    (left, top), (scale_x, scale_y), (width, height) = box.pad_xy, box.scale_xy, box.image_wh
    x, y, w, h = head[:, :4].float().unbind(1)
    corners = [
        ((each - pad) / scale).clamp(0, side)
        for sign in (-0.5, 0.5)
        for each, pad, scale, side in (
            (x + sign * w, left, scale_x, width),
            (y + sign * h, top, scale_y, height),
        )
    ]
    scores, labels = head[:, 4:].float().max(1)
    return torch.stack(corners, 2), scores, labels


def best_boxes(
    corners: torch.Tensor,
    scores: torch.Tensor,
    labels: torch.Tensor,
    asked: Thresholds,
    *,
    candidates: int,
    count: int,
) -> dict[str, torch.Tensor]:
    """
    Suppress boxes of one class as NMS does, with shapes that are known beforehand, as graphs need.

    :param corners: (A, 4), with `scores` and `labels`, (A,).
    :param candidates: maximum number of boxes of the scores that are asked for.
    :returns: `count` boxes, best scores first; those of a score of 0 are none.
    """
    best, order = torch.where(scores > asked.score, scores, 0).topk(candidates)
    corners, labels = corners[order], labels[order]
    low = torch.maximum(corners[:, None, :2], corners[None, :, :2])
    high = torch.minimum(corners[:, None, 2:], corners[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    areas = (corners[:, 2:] - corners[:, :2]).prod(1)
    overlaps = shared > asked.iou * (areas[:, None] + areas[None] - shared)
    ranks = torch.arange(candidates, device=scores.device)
    suppresses = overlaps & (labels[:, None] == labels[None]) & (ranks[:, None] < ranks[None])
    kept = is_box = best > 0
    for _ in range(ROUNDS):
        kept = is_box & ~(suppresses & kept[:, None]).any(0)
    best, order = torch.where(kept, best, 0).topk(count)
    return {'boxes': corners[order], 'scores': best, 'labels': labels[order]}


def cropped(preprocess: Preprocess) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the preprocessing of squares around boxes, (N, 4), of an image, (H, W, 3) uint8."""
    rows, cols = preprocess.input_hw
    assert rows == cols
    normalized, pad_value = Normalized(preprocess), float(preprocess.pad_value)

    def crop(image: torch.Tensor, corners: torch.Tensor) -> torch.Tensor:
        height, width = image.shape[:2]
        center = (corners[:, :2] + corners[:, 2:]) / 2
        side = (corners[:, 2:] - corners[:, :2]).amax(1, keepdim=True).clamp(min=1.0)
        steps = (torch.arange(rows, device=image.device) + 0.5) / rows - 0.5
        x = (center[:, :1] + side * steps)[:, None].expand(-1, rows, -1)
        y = (center[:, 1:] + side * steps)[:, :, None].expand(-1, -1, cols)
        grid = torch.stack([x * (2 / width) - 1, y * (2 / height) - 1], 3)
        pixels = (image.permute(2, 0, 1)[None].float() - pad_value).expand(len(grid), -1, -1, -1)
        return normalized(F.grid_sample(pixels, grid, align_corners=False) + pad_value)

    return crop
