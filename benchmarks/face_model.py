"""A small network for benchmarks, of the shape of Ultra-Light-Fast-Generic-Face RFB-320."""

from pathlib import Path
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUT_HW = (240, 320)
# Per level: cells, anchors per cell and their sizes in pixels.
LEVELS = (
    ((30, 40), (10, 16, 24)),
    ((15, 20), (32, 48)),
    ((8, 10), (64, 96)),
    ((4, 5), (128, 192, 256)),
)


class Graph:
    """An ONNX graph under construction: nodes and random weights, in order."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(1)

    def constant(self, value: np.ndarray) -> str:
        name = f'w{len(self.weights)}'
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def add(self, op: str, *inputs: str, output: str = '', **attributes: object) -> str:
        output = output or f'n{len(self.nodes)}'
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        size: int = 3,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        relu: bool = True,
    ) -> str:
        inside, outside = channels
        fan = inside // groups * size * size
        weight = self._random.normal(
            0, (2 / fan) ** 0.5, (outside, inside // groups, size, size)
        ).astype(np.float32)
        pad = dilation * (size // 2)
        y = self.add(
            'Conv',
            x,
            self.constant(weight),
            self.constant(np.zeros(outside, np.float32)),
            kernel_shape=[size] * 2,
            strides=[stride] * 2,
            dilations=[dilation] * 2,
            pads=[pad] * 4,
            group=groups,
        )
        return self.add('Relu', y) if relu else y

    def separable(
        self, x: str, channels: tuple[int, int], stride: int = 1, relu: bool = True
    ) -> str:
        inside = channels[0]
        y = self.conv(x, (inside, inside), stride=stride, groups=inside)
        return self.conv(y, channels, 1, relu=relu)


def face_model() -> onnx.ModelProto:
    """Build the network: 1×3×240×320 in, scores (1, 4420, 2) and boxes (1, 4420, 4) out."""
    graph = Graph()
    x = graph.conv('input', (3, 16), stride=2)
    for channels, stride in (
        ((16, 32), 1),
        ((32, 32), 2),
        ((32, 32), 1),
        ((32, 64), 2),
        ((64, 64), 1),
        ((64, 64), 1),
    ):
        x = graph.separable(x, channels, stride)
    branches = []
    for dilation in (2, 3, 5):
        y = graph.conv(x, (64, 8), 1)
        y = graph.conv(y, (8, 16))
        branches.append(graph.conv(y, (16, 16), dilation=dilation, relu=False))
    y = graph.conv(graph.add('Concat', *branches, axis=1), (48, 64), 1, relu=False)
    levels = [graph.add('Relu', graph.add('Add', y, graph.conv(x, (64, 64), 1, relu=False)))]
    x = graph.separable(levels[0], (64, 128), 2)
    levels.append(graph.separable(graph.separable(x, (128, 128)), (128, 128)))
    x = graph.separable(levels[1], (128, 256), 2)
    levels.append(graph.separable(x, (256, 256)))
    x = graph.separable(graph.conv(levels[2], (256, 64), 1), (64, 256), 2)
    levels.append(x)
    scores, offsets, anchors = [], [], []
    for y, channels, ((rows, cols), sizes) in zip(levels, (64, 128, 256, 256), LEVELS):
        for parts, width in ((scores, 2), (offsets, 4)):
            head = graph.separable(y, (channels, len(sizes) * width), relu=False)
            head = graph.add('Transpose', head, perm=[0, 2, 3, 1])
            parts.append(
                graph.add('Reshape', head, graph.constant(np.array([1, -1, width], np.int64)))
            )
        cy, cx, size = np.meshgrid(
            (np.arange(rows) + 0.5) / rows, (np.arange(cols) + 0.5) / cols, sizes, indexing='ij'
        )
        anchors.append(np.stack([cx, cy, size / INPUT_HW[1], size / INPUT_HW[0]], -1))
    graph.add('Softmax', graph.add('Concat', *scores, axis=1), output='scores', axis=-1)
    anchor = np.concatenate([each.reshape(-1, 4) for each in anchors])[None].astype(np.float32)
    offset = graph.add('Tanh', graph.add('Concat', *offsets, axis=1))
    halves = graph.constant(np.array([2, 2], np.int64))
    xy, wh = (f'{name}_offset' for name in ('xy', 'wh'))
    graph.nodes.append(helper.make_node('Split', [offset, halves], [xy, wh], axis=2))
    sizes = graph.constant(anchor[..., 2:])
    center = graph.add(
        'Add',
        graph.constant(anchor[..., :2]),
        graph.add('Mul', graph.add('Mul', xy, graph.constant(np.array(0.1, np.float32))), sizes),
    )
    half = graph.add(
        'Mul',
        graph.add('Exp', graph.add('Mul', wh, graph.constant(np.array(0.2, np.float32)))),
        graph.constant(anchor[..., 2:] / 2),
    )
    graph.add(
        'Concat',
        graph.add('Sub', center, half),
        graph.add('Add', center, half),
        output='boxes',
        axis=2,
    )
    count = anchor.shape[1]
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            'face',
            [helper.make_tensor_value_info('input', TensorProto.FLOAT, (1, 3, *INPUT_HW))],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, count, width))
                for name, width in (('scores', 2), ('boxes', 4))
            ],
            graph.weights,
        ),
        opset_imports=[helper.make_opsetid('', 17)],
        ir_version=8,
    )


if __name__ == '__main__':
    onnx.save(face_model(), Path(sys.argv[1]))
