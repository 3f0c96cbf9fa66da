"""
A network of the layers of Depth Anything V2 Small with random weights, as fast as a trained one.

ViT-S/14 of 1370 tokens and a DPT head of 64 channels; 25 million parameters. Source: Yang et al.,
Depth Anything V2, arXiv 2406.09414; Ranftl et al., Vision Transformers for Dense Prediction,
arXiv 2103.13413.

    python benchmarks/depth_model.py depth.onnx
"""

from pathlib import Path
import sys

import numpy as np
from rtdetr_model import TransformerNet

PATCH, SIDE, WIDTH, HEADS, LAYERS = 14, 37, 384, 6, 12
TOKENS = SIDE * SIDE + 1  # With the class token.
LEVELS = {3: 48, 6: 96, 9: 192, 12: 384}  # Blocks whose tokens are used, and their channels.
FUSED = 64


class ViT(TransformerNet):
    """A TransformerNet with normalization before the layers, and steps of a DPT head."""

    def normal(self, *shape: int) -> str:
        return self.constant(self._rng.normal(0, 0.02, shape).astype(np.float32))

    def scaled(self, x: str) -> str:
        """Multiply by LayerScale's factors."""
        return self.add('Mul', x, self.constant(np.full(WIDTH, 0.1, np.float32)))

    def norm(self, x: str) -> str:
        ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        weights = self.constant(ones), self.constant(zeros)
        return self.add('LayerNormalization', x, *weights, axis=-1, epsilon=1e-6)

    def gelu(self, x: str) -> str:
        root, one, half = (self.constant(np.array(v, np.float32)) for v in (2**0.5, 1.0, 0.5))
        shifted = self.add('Add', self.add('Erf', self.add('Div', x, root)), one)
        return self.add('Mul', self.add('Mul', x, shifted), half)

    def block(self, x: str) -> str:
        size, normed = WIDTH // HEADS, self.norm(x)
        query, key, value = (
            self.transpose(
                self.reshape(self.linear(normed, WIDTH, WIDTH), 1, TOKENS, HEADS, size), *order
            )
            for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        )
        scale = self.constant(np.array(size**-0.5, np.float32))
        weights = self.add(
            'Softmax', self.add('Mul', self.add('MatMul', query, key), scale), axis=-1
        )
        mixed = self.transpose(self.add('MatMul', weights, value), 0, 2, 1, 3)
        mixed = self.linear(self.reshape(mixed, 1, TOKENS, WIDTH), WIDTH, WIDTH)
        x = self.add('Add', x, self.scaled(mixed))
        wide = self.gelu(self.linear(self.norm(x), WIDTH, 4 * WIDTH))
        return self.add('Add', x, self.scaled(self.linear(wide, 4 * WIDTH, WIDTH)))

    def larger(self, x: str, factor: int) -> str:
        have = self.channels[x]
        weight = self.normal(have, have, factor, factor)
        return self.add(
            'ConvTranspose', x, weight, kernel_shape=[factor] * 2, strides=[factor] * 2
        )

    def resized(self, x: str, side: int) -> str:
        sizes = self.ints(1, self.channels[x], side, side)
        mode = {'mode': 'linear', 'coordinate_transformation_mode': 'align_corners'}
        return self.add('Resize', x, '', '', sizes, **mode)

    def residual(self, x: str) -> str:
        y = self.conv(self.add('Relu', x), FUSED, 3, act='relu')
        return self.add('Add', x, self.conv(y, FUSED, 3, act=''))


def tokens_of(net: ViT) -> list[str]:
    """Return the feature maps (1, C, SIDE, SIDE) of the blocks in LEVELS."""
    net.channels['images'] = 3
    patches = net.add(
        'Conv',
        'images',
        net.normal(WIDTH, 3, PATCH, PATCH),
        channels=WIDTH,
        kernel_shape=[PATCH] * 2,
        strides=[PATCH] * 2,
    )
    patches = net.transpose(net.reshape(patches, 1, WIDTH, SIDE * SIDE), 0, 2, 1)
    x = net.add('Concat', net.normal(1, 1, WIDTH), patches, axis=1)
    x = net.add('Add', x, net.normal(1, TOKENS, WIDTH))
    maps = []
    for number in range(1, LAYERS + 1):
        x = net.block(x)
        if number in LEVELS:
            cells = net.add('Slice', net.norm(x), net.ints(1), net.ints(TOKENS), net.ints(1))
            maps.append(net.reshape(net.transpose(cells, 0, 2, 1), 1, WIDTH, SIDE, SIDE))
            net.channels[maps[-1]] = WIDTH
    return maps


def depth(path: Path) -> None:
    """Write the network: images (1, 3, 518, 518) to depth (1, 518, 518)."""
    net = ViT()
    levels = [net.conv(x, out, act='') for x, out in zip(tokens_of(net), LEVELS.values())]
    levels[0], levels[1] = net.larger(levels[0], 4), net.larger(levels[1], 2)
    levels[3] = net.conv(levels[3], LEVELS[12], 3, 2, act='')
    levels = [net.conv(x, FUSED, 3, act='') for x in levels]
    sides = [4 * SIDE, 2 * SIDE, SIDE, (SIDE + 1) // 2]
    x = levels[3]
    for number in reversed(range(4)):
        if number < 3:
            x = net.add('Add', x, net.residual(levels[number]))
        side = sides[number - 1] if number else 2 * sides[0]
        x = net.conv(net.resized(net.residual(x), side), FUSED, act='')
    x = net.resized(net.conv(x, FUSED // 2, 3, act=''), SIDE * PATCH)
    x = net.conv(net.conv(x, 32, 3, act='relu'), 1, act='relu')
    size = SIDE * PATCH
    net.save(path, {'depth': (net.reshape(x, 1, size, size), (1, size, size))}, size)


if __name__ == '__main__':
    depth(Path(sys.argv[1]))
