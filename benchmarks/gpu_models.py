"""
Networks of well-known shapes with random weights: their speed is that of trained ones.

    python benchmarks/gpu_models.py FOLDER      # yolov8s, resnet50, segment and segment_full
"""

import argparse
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save


class Net:
    """Collects the nodes and weights of an ONNX graph; tensors are names with their channels."""

    def __init__(self, seed: int = 0, batch: int | str = 1) -> None:
        self.batch = batch
        self.nodes: list = []
        self.weights: list = []
        self.channels = {'images': 3}
        self._rng = np.random.default_rng(seed)
        self._count = 0

    def constant(self, value: np.ndarray) -> str:
        self._count += 1
        name = f'c{self._count}'
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def add(self, op: str, *inputs: str, channels: int = 0, outputs: int = 1, **attributes):
        self._count += 1
        names = [f't{self._count}_{i}' for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.channels.update(dict.fromkeys(names, channels or self.channels.get(inputs[0], 0)))
        return names[0] if outputs == 1 else names

    def conv(self, x: str, out: int, kernel: int = 1, stride: int = 1, act: str = 'silu') -> str:
        have = self.channels[x]
        scale = (2.0 / (have * kernel * kernel)) ** 0.5
        weight = self.constant(
            self._rng.normal(0, scale, (out, have, kernel, kernel)).astype(np.float32)
        )
        bias = self.constant(self._rng.normal(0, 0.1, out).astype(np.float32))
        y = self.add(
            'Conv',
            x,
            weight,
            bias,
            channels=out,
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
        )
        if act == 'silu':
            return self.add('Mul', y, self.add('Sigmoid', y))
        return self.add('Relu', y) if act == 'relu' else y

    def concat(self, *parts: str) -> str:
        return self.add('Concat', *parts, axis=1, channels=sum(self.channels[p] for p in parts))

    def save(
        self,
        path: Path,
        outputs: dict[str, tuple[str, tuple]],
        input_hw: int | tuple[int, int],
        **metadata: str,
    ) -> None:
        height, width = input_hw if isinstance(input_hw, tuple) else (input_hw, input_hw)
        graph = helper.make_graph(
            [
                *self.nodes,
                *(helper.make_node('Identity', [t], [name]) for name, (t, _) in outputs.items()),
            ],
            path.stem,
            [
                helper.make_tensor_value_info(
                    'images', TensorProto.FLOAT, (self.batch, 3, height, width)
                )
            ],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, (self.batch, *shape[1:]))
                for name, (_, shape) in outputs.items()
            ],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
        helper.set_model_props(model, metadata)
        save(model, path)


def c2f(net: Net, x: str, out: int, repeats: int, shortcut: bool) -> str:
    half = out // 2
    parts = net.add(
        'Split',
        net.conv(x, out),
        net.constant(np.array([half, half])),
        outputs=2,
        axis=1,
        channels=half,
    )
    y = list(parts)
    for _ in range(repeats):
        z = net.conv(net.conv(y[-1], half, 3), half, 3)
        y.append(net.add('Add', y[-1], z) if shortcut else z)
    return net.conv(net.concat(*y), out)


def yolov8s(path: Path, size: int = 640, classes: int = 80, batch: int | str = 1) -> None:
    """Width 0.5, depth 0.33: 11 M parameters; output (batch, 4 + classes, 8400) at 640."""
    net = Net(batch=batch)
    x = net.conv(net.conv('images', 32, 3, 2), 64, 3, 2)
    x = c2f(net, x, 64, 1, True)
    p3 = c2f(net, net.conv(x, 128, 3, 2), 128, 2, True)
    p4 = c2f(net, net.conv(p3, 256, 3, 2), 256, 2, True)
    x = c2f(net, net.conv(p4, 512, 3, 2), 512, 1, True)
    pooled = [net.conv(x, 256)]
    for _ in range(3):
        pooled.append(
            net.add('MaxPool', pooled[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)
        )
    p5 = net.conv(net.concat(*pooled), 512)

    def up(x: str) -> str:
        scales = net.constant(np.array([1, 1, 2, 2], np.float32))
        return net.add('Resize', x, '', scales, mode='nearest')

    n4 = c2f(net, net.concat(up(p5), p4), 256, 1, False)
    n3 = c2f(net, net.concat(up(n4), p3), 128, 1, False)
    n4 = c2f(net, net.concat(net.conv(n3, 128, 3, 2), n4), 256, 1, False)
    n5 = c2f(net, net.concat(net.conv(n4, 256, 3, 2), p5), 512, 1, False)
    boxes, scores, grid, steps = [], [], [], []
    for level, stride in ((n3, 8), (n4, 16), (n5, 32)):
        cells = size // stride
        box = net.conv(net.conv(net.conv(level, 64, 3), 64, 3), 64, act='')
        score = net.conv(net.conv(net.conv(level, 128, 3), 128, 3), classes, act='')
        boxes.append(net.add('Reshape', box, net.constant(np.array([0, 64, cells * cells]))))
        scores.append(
            net.add('Reshape', score, net.constant(np.array([0, classes, cells * cells])))
        )
        rows, cols = np.mgrid[:cells, :cells] + 0.5
        grid.append(np.stack([cols.ravel(), rows.ravel()]))
        steps.append(np.full(cells * cells, stride))
    anchors = sum(len(s) for s in steps)
    # Distances to the four sides: the mean of a softmax over 16 bins each.
    bins = net.add(
        'Reshape', net.add('Concat', *boxes, axis=2), net.constant(np.array([0, 4, 16, anchors]))
    )
    weights = net.constant(np.arange(16, dtype=np.float32).reshape(1, 1, 16, 1))
    sides = net.add(
        'ReduceSum',
        net.add('Mul', net.add('Softmax', bins, axis=2), weights),
        net.constant(np.array([2])),
        keepdims=0,
    )
    near, far = net.add('Split', sides, net.constant(np.array([2, 2])), outputs=2, axis=1)
    center = net.constant(np.concatenate(grid, axis=1)[None].astype(np.float32))
    low, high = net.add('Sub', center, near), net.add('Add', center, far)
    middle = net.add('Mul', net.add('Add', low, high), net.constant(np.array(0.5, np.float32)))
    xywh = net.add(
        'Mul',
        net.add('Concat', middle, net.add('Sub', high, low), axis=1),
        net.constant(np.concatenate(steps).astype(np.float32).reshape(1, 1, -1)),
    )
    # A trained head scores near 0 almost everywhere.
    logits = net.add(
        'Sub', net.add('Concat', *scores, axis=2), net.constant(np.array(6.0, np.float32))
    )
    head = net.add('Concat', xywh, net.add('Sigmoid', logits), axis=1)
    net.save(
        path,
        {'output0': (head, (1, 4 + classes, anchors))},
        size,
        task='detect',
        names=str({i: f'class {i}' for i in range(classes)}),
    )


def resnet50_features(net: Net) -> list[str]:
    """Add the convolutions of a ResNet-50; return its features at strides 4, 8, 16 and 32."""
    features = []
    x = net.conv('images', 64, 7, 2, 'relu')
    x = net.add('MaxPool', x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for width, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = net.conv(net.conv(x, width, act='relu'), width, 3, stride, 'relu')
            y = net.conv(y, width * 4, act='')
            skip = net.conv(x, width * 4, 1, stride, '') if block == 0 else x
            # Half of each, as trained networks' scales are: sums of many blocks stay finite.
            half = net.constant(np.array(0.5, np.float32))
            x = net.add('Relu', net.add('Mul', net.add('Add', y, skip), half))
        features.append(x)
    return features


def resnet50(path: Path, size: int = 224) -> None:
    net = Net()
    pooled = net.add('Flatten', net.add('GlobalAveragePool', resnet50_features(net)[-1]))
    weight = net.constant(np.random.default_rng(1).normal(0, 0.02, (2048, 1000)).astype('f4'))
    net.save(path, {'logits': (net.add('MatMul', pooled, weight), (1, 1000))}, size)


def segment(
    path: Path, input_hw: tuple[int, int] = (640, 640), classes: int = 19, stride: int = 4
) -> None:
    """Semantic segmentation: the first half of a YOLOv8-s, scores of each class at a stride."""
    height, width = input_hw
    net = Net()
    p2 = c2f(net, net.conv(net.conv('images', 32, 3, 2), 64, 3, 2), 64, 1, True)
    p3 = c2f(net, net.conv(p2, 128, 3, 2), 128, 2, True)
    p4 = c2f(net, net.conv(p3, 256, 3, 2), 256, 2, True)
    x = net.conv(p4, classes, act='')
    scales = net.constant(np.array([1, 1, 16 / stride, 16 / stride], np.float32))
    x = net.add('Resize', x, '', scales, mode='linear')
    net.save(path, {'logits': (x, (1, classes, height // stride, width // stride))}, input_hw)


def identity(path: Path, input_hw: tuple[int, int]) -> None:
    """A network that returns the preprocessed image."""
    net = Net()
    net.save(path, {'tensor': (net.add('Identity', 'images'), (1, 3, *input_hw))}, input_hw)


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('folder', type=Path)
    parser.add_argument('--dynamic-batch', action='store_true', help='of yolov8s.onnx')
    parser.add_argument('--size', type=int, default=640, help='input of yolov8s.onnx, in pixels')
    args = parser.parse_args()
    folder = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    yolov8s(folder / 'yolov8s.onnx', args.size, batch='batch' if args.dynamic_batch else 1)
    resnet50(folder / 'resnet50.onnx')
    segment(folder / 'segment.onnx')
    segment(folder / 'segment_full.onnx', classes=21, stride=1)
