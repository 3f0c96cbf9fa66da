"""
A network of the layers of RT-DETR-R50 with random weights: its speed is that of a trained one.

ResNet-50, hybrid encoder of 256 channels, 300 queries, six decoder layers of deformable
attention; 42 million parameters. Source: Zhao et al., DETRs Beat YOLOs on Real-time Object
Detection, arXiv 2304.08069, without the "vd" stem and with deployed RepVGG blocks.

    python benchmarks/rtdetr_model.py rtdetr.onnx
"""

from itertools import pairwise
from pathlib import Path
import sys

from gpu_models import Net, resnet50_features
import numpy as np

WIDTH, HEADS, POINTS, QUERIES, LAYERS = 256, 8, 4, 300, 6
STRIDES = (8, 16, 32)


class TransformerNet(Net):
    """A Net with layers on tokens, (1, N, C)."""

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def linear(self, x: str, have: int, out: int) -> str:
        weight = self._rng.normal(0, have**-0.5, (have, out)).astype(np.float32)
        bias = self.constant(np.zeros(out, np.float32))
        return self.add('Add', self.add('MatMul', x, self.constant(weight)), bias)

    def mlp(self, x: str, *widths: int) -> str:
        for number, (have, out) in enumerate(pairwise(widths)):
            x = self.linear(self.add('Relu', x) if number else x, have, out)
        return x

    def norm(self, x: str) -> str:
        ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        return self.add(
            'LayerNormalization', x, self.constant(ones), self.constant(zeros), axis=-1
        )

    def reshape(self, x: str, *shape: int) -> str:
        return self.add('Reshape', x, self.ints(*shape))

    def transpose(self, x: str, *perm: int) -> str:
        return self.add('Transpose', x, perm=list(perm))

    def attention(self, x: str, count: int) -> str:
        """Self-attention of HEADS heads and its norm."""
        size = WIDTH // HEADS
        parts = [
            self.transpose(self.reshape(self.linear(x, WIDTH, WIDTH), 1, count, HEADS, size), *p)
            for p in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        ]
        scale = self.constant(np.array(size**-0.5, np.float32))
        weights = self.add(
            'Softmax', self.add('Mul', self.add('MatMul', *parts[:2]), scale), axis=-1
        )
        mixed = self.transpose(self.add('MatMul', weights, parts[2]), 0, 2, 1, 3)
        mixed = self.linear(self.reshape(mixed, 1, count, WIDTH), WIDTH, WIDTH)
        return self.norm(self.add('Add', x, mixed))

    def feed_forward(self, x: str) -> str:
        return self.norm(self.add('Add', x, self.mlp(x, WIDTH, 4 * WIDTH, WIDTH)))


def fuse(net: TransformerNet, *parts: str) -> str:
    """Two levels to one: a cross-stage block of three convolutions."""
    both = net.concat(*parts)
    x = net.conv(both, WIDTH)
    for _ in range(3):
        x = net.conv(x, WIDTH, 3)
    return net.add('Add', x, net.conv(both, WIDTH))


def encode(net: TransformerNet, size: int) -> list[str]:
    """Return the levels of the hybrid encoder, (1, WIDTH, H, W), of strides 8, 16 and 32."""
    c3, c4, c5 = (net.conv(each, WIDTH, act='') for each in resnet50_features(net)[1:])
    side = size // STRIDES[-1]
    tokens = net.transpose(net.reshape(c5, 1, WIDTH, side * side), 0, 2, 1)
    tokens = net.feed_forward(net.attention(tokens, side * side))
    c5 = net.reshape(net.transpose(tokens, 0, 2, 1), 1, WIDTH, side, side)
    net.channels[c5] = WIDTH

    def up(x: str) -> str:
        scales = net.constant(np.array([1, 1, 2, 2], np.float32))
        return net.add('Resize', x, '', scales, mode='nearest')

    p5 = net.conv(c5, WIDTH)
    p4 = net.conv(fuse(net, up(p5), c4), WIDTH)
    n3 = fuse(net, up(p4), c3)
    n4 = fuse(net, net.conv(n3, WIDTH, 3, 2), p4)
    return [n3, n4, fuse(net, net.conv(n4, WIDTH, 3, 2), p5)]


def sample(net: TransformerNet, x: str, boxes: str, memory: str, sides: list[int]) -> str:
    """Deformable attention: HEADS x POINTS bilinear samples around each box in each level."""
    levels, size = len(sides), WIDTH // HEADS
    values = net.add(
        'Split',
        net.transpose(net.linear(memory, WIDTH, WIDTH), 0, 2, 1),
        net.ints(*(side * side for side in sides)),
        axis=2,
        outputs=levels,
    )
    offsets = net.linear(x, WIDTH, HEADS * levels * POINTS * 2)
    offsets = net.reshape(offsets, QUERIES, HEADS, levels * POINTS, 2)
    center, wh = (
        net.reshape(part, QUERIES, 1, 1, 2)
        for part in net.add('Split', boxes, net.ints(2, 2), axis=2, outputs=2)
    )
    step = net.constant(np.array(0.5 / POINTS, np.float32))
    places = net.add('Add', center, net.add('Mul', net.add('Mul', offsets, wh), step))
    two, one = (net.constant(np.array(value, np.float32)) for value in (2.0, 1.0))
    grid = net.transpose(net.add('Sub', net.add('Mul', places, two), one), 1, 0, 2, 3)
    grids = net.add('Split', grid, net.ints(*[POINTS] * levels), axis=2, outputs=levels)
    samples = [
        net.add(
            'GridSample',
            net.reshape(value, HEADS, size, side, side),
            part,
            mode='bilinear',
            padding_mode='zeros',
        )
        for value, part, side in zip(values, grids, sides)
    ]
    weights = net.reshape(
        net.linear(x, WIDTH, HEADS * levels * POINTS), 1, QUERIES, HEADS, levels * POINTS
    )
    weights = net.reshape(
        net.transpose(net.add('Softmax', weights, axis=-1), 0, 2, 1, 3), HEADS, 1, QUERIES, -1
    )
    mixed = net.add('Mul', net.add('Concat', *samples, axis=3), weights)
    mixed = net.add('ReduceSum', mixed, net.ints(3), keepdims=0)
    mixed = net.transpose(net.reshape(mixed, 1, WIDTH, QUERIES), 0, 2, 1)
    return net.norm(net.add('Add', x, net.linear(mixed, WIDTH, WIDTH)))


def rtdetr(path: Path, size: int = 640, classes: int = 80) -> None:
    """Write the network; outputs `logits` (1, 300, classes) and `pred_boxes` (1, 300, 4)."""
    net = TransformerNet()
    sides = [size // stride for stride in STRIDES]
    levels = [
        net.reshape(net.conv(level, WIDTH, act=''), 1, WIDTH, side * side)
        for level, side in zip(encode(net, size), sides)
    ]
    memory = net.transpose(net.add('Concat', *levels, axis=2), 0, 2, 1)
    encoded = net.norm(net.linear(memory, WIDTH, WIDTH))
    best = net.add('ReduceMax', net.linear(encoded, WIDTH, classes), axes=[2], keepdims=0)
    _, chosen = net.add('TopK', best, net.ints(QUERIES), axis=1, outputs=2)
    chosen = net.add('Tile', net.reshape(chosen, 1, QUERIES, 1), net.ints(1, 1, WIDTH))
    x = net.add('GatherElements', encoded, chosen, axis=1)
    boxes = net.add('Sigmoid', net.mlp(x, WIDTH, WIDTH, WIDTH, 4))
    for _ in range(LAYERS):
        x = net.add('Add', x, net.mlp(boxes, 4, 2 * WIDTH, WIDTH))
        x = sample(net, net.attention(x, QUERIES), boxes, memory, sides)
        x = net.feed_forward(x)
        moved = net.add('Add', boxes, net.mlp(x, WIDTH, WIDTH, WIDTH, 4))
        boxes = net.add('Sigmoid', moved)
    # A trained head scores near 0 almost everywhere.
    six = net.constant(np.array(6.0, np.float32))
    logits = net.add('Sub', net.linear(x, WIDTH, classes), six)
    net.save(
        path,
        {'logits': (logits, (1, QUERIES, classes)), 'pred_boxes': (boxes, (1, QUERIES, 4))},
        size,
    )


if __name__ == '__main__':
    rtdetr(Path(sys.argv[1]))
