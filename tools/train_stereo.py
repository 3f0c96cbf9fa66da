"""
Training of a small stereo network on drawn pairs of known disparity, and its export to ONNX.

A development tool that the package itself never imports. It needs torch:

    python tools/train_stereo.py stereo.onnx --minutes 10
    python tools/train_stereo.py stereo.onnx --minutes 3 --batch 32 --pairs 4000 --device cuda
    python tools/train_stereo.py big.onnx --weights stereo.onnx --minutes 0 --size 576 960 \
        --disparities 192

The last one exports trained weights for another size of images, which they do not depend on.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
import multiprocessing
from pathlib import Path
import time

import cv2
import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from trt_ros import Frame, Pipeline
from trt_ros.families.registry import DEPTHS
from trt_ros.vision.depth_points import depth_of_disparity

GROUPS = 8
TRAINED_HW, TRAINED_DISPARITIES = (96, 160), 40


def draw_texture(rng: np.random.Generator, size: int = 256) -> np.ndarray:
    """Return a random surface, (size, size, 3) float32 of 0 to 1: noise of several sizes, dots."""
    total = np.zeros((size, size, 3), np.float32)
    for cell in rng.choice([1, 2, 4, 8, 16, 32], rng.integers(2, 5), replace=False):
        noise = rng.random((size // cell + 2, size // cell + 2, 3), np.float32)
        noise = noise * rng.random() + noise.mean(-1, keepdims=True)
        total += rng.random() * cv2.resize(noise, (size, size), interpolation=cv2.INTER_LINEAR)
    for _ in range(rng.integers(0, 12)):
        x, y, radius = map(int, rng.integers(0, size, 3))
        cv2.circle(
            total, (x, y), radius // 8 + 1, rng.random(3).tolist(), int(rng.integers(-1, 4))
        )
    total -= total.min()
    return np.asarray(total / total.max() * rng.uniform(0.5, 1), np.float32)


class Surface:
    """
    A slanted surface: a rectangle or an ellipse, or without an edge.

    Columns and rows are those of the left image.
    """

    def __init__(self, rng: np.random.Generator, hw: tuple[int, int], base: float) -> None:
        self.texture, self.base, self.middle = draw_texture(rng), base, (hw[1] / 2, hw[0] / 2)
        self.slope = rng.uniform(-0.08, 0.08, 2) if rng.random() < 0.7 else (0.0, 0.0)
        self.center, self.radii = rng.uniform(0, hw[::-1]), rng.uniform(8, 50, 2)
        self.is_round, self.turn = rng.random() < 0.5, rng.uniform(0, 3.14)

    def disparity(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the disparity of columns and rows."""
        u, v = x - self.middle[0], y - self.middle[1]
        return np.asarray(self.base + self.slope[0] * u + self.slope[1] * v)

    def source(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the column that a column of the right image shows."""
        at_0 = self.disparity(np.zeros_like(x), y)
        return np.asarray((x + at_0) / (1 - self.slope[0]), np.float32)

    def color(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the colors of columns and rows."""
        return cv2.remap(self.texture, x, y, cv2.INTER_LINEAR, None, cv2.BORDER_WRAP)

    def covers(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return whether columns and rows are on the surface."""
        across, down = x - self.center[0], y - self.center[1]
        u = (across * np.cos(self.turn) + down * np.sin(self.turn)) / self.radii[0]
        v = (down * np.cos(self.turn) - across * np.sin(self.turn)) / self.radii[1]
        return np.asarray((u * u + v * v if self.is_round else np.maximum(abs(u), abs(v))) < 1)


Pair = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def draw_pair(
    rng: np.random.Generator, hw: tuple[int, int] = TRAINED_HW, most: int = TRAINED_DISPARITIES
) -> Pair:
    """
    Render surfaces, of which the nearest one hides the others.

    :returns: left and right image, (3, H, W) float32 of 0 to 1; the disparity of each pixel of the
        left one, (1, H, W) float32; and whether the right one shows what it shows, (1, H, W) bool.
    """
    height, width = hw
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    images = np.zeros((2, height, width, 3), np.float32)
    near = np.zeros((2, height, width), np.float32)
    for index in range(rng.integers(2, 7)):
        base = rng.uniform(3, most / 2 if index == 0 else most - 2)
        surface = Surface(rng, hw, base)
        for side, columns in enumerate((x, surface.source(x, y))):
            disparity = surface.disparity(columns, y)
            is_first = (disparity > near[side]) & (disparity > 0.5) & (disparity < most)
            is_first &= surface.covers(columns, y) | (index == 0)
            images[side][is_first] = surface.color(columns, y)[is_first]
            near[side][is_first] = disparity[is_first]
    match = np.rint(x - near[0]).astype(int)
    other = np.take_along_axis(near[1], np.clip(match, 0, width - 1), axis=1)
    is_visible = (match >= 0) & (near[0] > 0) & (abs(other - near[0]) < 0.5)
    return (*images.transpose(0, 3, 1, 2), near[:1], is_visible[None])


def _conv(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, dilation: int = 1
) -> nn.Module:
    pad = kernel // 2 * dilation
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, pad, dilation), nn.ReLU(True))


class Stereo(nn.Module):
    """
    Correlations of features for all shifts at half resolution, their expected shift, a refinement.

    :param disparities: pixels; a multiple of 2.
    """

    def __init__(self, disparities: int = TRAINED_DISPARITIES) -> None:
        super().__init__()
        self.disparities = disparities
        self.features = nn.Sequential(
            _conv(3, 32, 5, 2),
            _conv(32, 32),
            _conv(32, 32, dilation=2),
            nn.Conv2d(32, 32, 3, 1, 1),
        )
        self.within = nn.ModuleList(nn.Conv2d(GROUPS, GROUPS, 3, 1, 1) for _ in range(3))
        self.across = nn.ModuleList(
            nn.Conv2d(GROUPS, outputs, (3, 1), 1, (1, 0)) for outputs in (GROUPS, GROUPS, 1)
        )
        self.refine = nn.Sequential(
            _conv(5, 24),
            *(_conv(24, 24, dilation=dilation) for dilation in (1, 2, 4, 1)),
            nn.Conv2d(24, 2, 3, 1, 1),
        )

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return disparity and confidence, (N, 1, H, W), of images of 0 to 1, (N, 3, H, W)."""
        shifts, width = self.disparities // 2, left.shape[3] // 2
        ours, theirs = (
            functional.normalize(self.features(each - 0.5), dim=1) for each in (left, right)
        )
        # One operator for all shifts: TensorRT needs minutes for one each.
        at = torch.arange(shifts, device=left.device)
        columns = torch.arange(width, device=left.device) + shifts - 1 - at[:, None]
        moved = functional.pad(theirs, (shifts - 1, 0, 0, 0))[..., columns].transpose(2, 3)
        volume = (ours[:, :, None] * moved).unflatten(1, (GROUPS, 32 // GROUPS)).sum(2)
        likeness = 20 * volume.sum(1)
        # The two parts of 3-D convolutions, which are slow on the CPU.
        height = left.shape[2] // 2
        for within, across in zip(self.within, self.across):
            planes = volume.transpose(1, 2).reshape(-1, GROUPS, height, width)
            planes = within(planes).relu().view(-1, shifts, GROUPS, height, width)
            volume = across(planes.transpose(1, 2).reshape(-1, GROUPS, shifts, height * width))
            if across.out_channels > 1:
                volume = volume.relu().view(-1, GROUPS, shifts, height, width)
        odds = (likeness + volume.view(-1, shifts, height, width)).softmax(1)
        at = at.to(left.dtype).view(1, -1, 1, 1)
        coarse = torch.cat([2 * (odds * at).sum(1, True), odds.amax(1, True)], 1)
        coarse = functional.interpolate(coarse, scale_factor=2, mode='bilinear')
        found = self.refine(torch.cat([left, coarse / TRAINED_DISPARITIES], 1))
        return (coarse[:, :1] + found[:, :1]).relu(), found[:, 1:].sigmoid()


def _draw(seed: int) -> Pair:
    return draw_pair(np.random.default_rng(seed))


def draw_pairs(seeds: range) -> list[np.ndarray]:
    """Return the parts of pairs of these seeds, (N, .., H, W), drawn by all processors."""
    with multiprocessing.get_context('spawn').Pool(
        initializer=cv2.setNumThreads, initargs=(1,)
    ) as pool:
        return [np.stack(each) for each in zip(*pool.map(_draw, seeds, chunksize=8))]


def train(network: Stereo, pairs: list[np.ndarray], given: Namespace) -> None:
    """Train a network on pairs, with noise and a brightness of its own for each image."""
    rng, began, step = np.random.default_rng(0), time.monotonic(), 0
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    *images, disparities, visibilities = (
        torch.from_numpy(each).to(given.device) for each in pairs
    )
    while (passed := (time.monotonic() - began) / (60 * given.minutes)) < 1:
        optimizer.param_groups[0]['lr'] = 2e-3 * min(1, step / 50) * (1 - passed) + 1e-5
        chosen = torch.from_numpy(rng.integers(0, len(disparities), given.batch)).to(given.device)
        channels = rng.permutation(3).tolist()
        left, right = (
            (each[chosen][:, channels] * rng.uniform(0.95, 1.05)).clamp(0, 1) for each in images
        )
        noisy = [each + 0.01 * torch.randn_like(each) for each in (left, right)]
        disparity, visible = disparities[chosen], visibilities[chosen]
        found, confidence = network(*noisy)
        loss = functional.smooth_l1_loss(found[visible], disparity[visible], beta=0.2)
        if step % 100 == 0:
            print(f'{step}: loss {loss.item():.3f}', flush=True)
        loss = loss + 0.2 * functional.binary_cross_entropy(confidence, visible.float())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        step += 1


def errors_of(path: str, pairs: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """
    Return the errors of depth by trt_ros where both cameras see a surface, relative to the depth.

    :returns: those where the network is confident, and the share of these.
    """
    found, inputs = [], ('left=image:left', 'right=image:right')
    options = {'inputs': inputs, 'mean': (0.0,), 'std': (1.0,), 'backend': 'onnxruntime'}
    with Pipeline.open(path, families=DEPTHS, **options) as pipeline:
        for *images, _, _ in zip(*pairs):
            bgr = [
                np.rint(each[::-1] * 255).astype(np.uint8).transpose(1, 2, 0) for each in images
            ]
            frames = [Frame.from_pixels(np.ascontiguousarray(each)) for each in bgr]
            found.append(pipeline(dict(zip(('left', 'right'), frames))))
    disparity, visible = (each[:, 0] for each in pairs[2:])
    is_used = visible & (np.stack([each.confidence for each in found]) > 0.5)
    depth = depth_of_disparity(np.stack([each.values for each in found]), 1.0, 1.0)
    return abs(depth[is_used] * disparity[is_used] - 1), float(is_used.sum() / visible.sum())


def main() -> None:
    """Train and export a network."""
    parser = ArgumentParser(
        description=__doc__.partition('\n\n')[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument('onnx', type=Path)
    parser.add_argument('--minutes', type=float, default=8.0, help='duration of the training')
    parser.add_argument('--batch', type=int, default=4)
    parser.add_argument('--pairs', type=int, default=800, help='number of drawn pairs')
    parser.add_argument('--device', default='cpu', help='cpu, or cuda')
    parser.add_argument('--weights', type=Path, help='ONNX file of a training, to continue')
    parser.add_argument('--size', type=int, nargs=2, default=TRAINED_HW, metavar=('H', 'W'))
    parser.add_argument('--disparities', type=int, default=TRAINED_DISPARITIES)
    given = parser.parse_args()
    torch.manual_seed(0)
    network = Stereo()
    if given.weights:
        weights = onnx.load(given.weights).graph.initializer
        found = {each.name: torch.tensor(onnx.numpy_helper.to_array(each)) for each in weights}
        network.load_state_dict({name: found[name] for name in network.state_dict()})
    if given.minutes:
        train(network.to(given.device), draw_pairs(range(given.pairs)), given)
    network.cpu().disparities = given.disparities
    example = torch.zeros(1, 3, *given.size)
    names = {'input_names': ['left', 'right'], 'output_names': ['disparity', 'confidence']}
    torch.onnx.export(
        network, (example, example), str(given.onnx), opset_version=17, dynamo=False, **names
    )
    print(f'{given.onnx}: {given.onnx.stat().st_size / 1e3:.0f} kB')
    if tuple(given.size) == TRAINED_HW:
        errors, seen = errors_of(str(given.onnx), draw_pairs(range(10**6, 10**6 + 64)))
        share = (errors < 0.01).mean()
        print(
            f'64 other pairs: median error of depth {np.median(errors):.2%}, {share:.1%} of '
            f'pixels below 1 %; confident in {seen:.1%} of the visible ones'
        )


if __name__ == '__main__':
    main()
