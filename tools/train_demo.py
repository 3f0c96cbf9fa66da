"""
Training of the demo models on drawn pictures, and their export to ONNX.

A development tool that the package itself never imports. It needs torch:

    python tools/train_demo.py --out DIR
    python tools/train_demo.py --out DIR --scene robot --minutes 20 --pictures 2000 --batch 16

The second also needs MuJoCo.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
import math
import multiprocessing
import os
from pathlib import Path
import time

import cv2
from demo.robot import world
from demo.scene import CLASSES, TRAINING, draw_scene
import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

STRIDES = (8, 16, 32)
MAX_SHAPES = 8
PICTURE_SIZES_WH = 6 * [(640, 480)] + [(640, 360), (480, 480)]
Picture = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Scene:
    """
    The pictures that a detector is trained on.

    :param channels: of the network, relative to those of shapes.onnx.
    :param is_symmetric: whether pictures may be turned; if not, they are mirrored only.
    :param draw: returns the picture of an index, BGR, with its boxes and labels.
    """

    description: str
    classes: tuple[str, ...]
    input_hw: tuple[int, int]
    channels: float
    is_symmetric: bool
    draw: Callable[[int], Picture]


def draw_shapes(index: int) -> Picture:
    """Draw a picture of the demo."""
    size_wh = PICTURE_SIZES_WH[index % len(PICTURE_SIZES_WH)]
    return draw_scene(np.random.default_rng([TRAINING, index]), size_wh)


def draw_robot(index: int) -> Picture:
    """Draw a picture of the robot demo."""
    from demo.robot.pictures import draw_picture  # Needs MuJoCo.

    return draw_picture(np.random.default_rng([TRAINING, index]))


SCENES = {
    'shapes': Scene('Colored shapes', CLASSES, (320, 320), 1.0, True, draw_shapes),
    'robot': Scene(
        'Objects in front of a robot', world.CLASSES, world.IMAGE_WH[::-1], 0.5, False, draw_robot
    ),
}


# --- The pictures --------------------------------------------------------------------------


def draw_input(scene: Scene, index: int) -> Picture:
    """
    Draw one training picture and preprocess it as the detector node does.

    :returns: (3, H, W) uint8 RGB; (MAX_SHAPES, 4) float32 x1, y1, x2, y2 in its pixels;
        (MAX_SHAPES,) int64 classes, -1 where there is no shape.
    """
    image, xyxy, labels = scene.draw(index)
    pixels, letterbox = Preprocess(scene.input_hw, scale=1.0, dtype='uint8')(
        Frame.from_pixels(image)
    )
    boxes = np.zeros((MAX_SHAPES, 4), np.float32)
    boxes[: len(xyxy)] = xyxy * np.tile(letterbox.scale_xy, 2) + np.tile(letterbox.pad_xy, 2)
    classes = np.full(MAX_SHAPES, -1, np.int64)
    classes[: len(labels)] = labels
    return pixels[0], boxes, classes


def draw_inputs(scene: Scene, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw `count` training pictures on all cores; return the arrays of draw_input, stacked."""
    pixels = np.empty((count, 3, *scene.input_hw), np.uint8)
    boxes = np.empty((count, MAX_SHAPES, 4), np.float32)
    classes = np.empty((count, MAX_SHAPES), np.int64)
    with multiprocessing.get_context('fork').Pool(
        initializer=cv2.setNumThreads, initargs=(1,)
    ) as pool:
        for index, drawn in enumerate(
            pool.imap(partial(draw_input, scene), range(count), chunksize=16)
        ):
            pixels[index], boxes[index], classes[index] = drawn
    return torch.from_numpy(pixels), torch.from_numpy(boxes), torch.from_numpy(classes)


def turn_and_flip(scene: Scene, pixels: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Apply a random symmetry to each picture and its boxes: of a square, or of a mirror."""
    height, width = scene.input_hw
    x1, y1, x2, y2 = boxes.unbind(-1)
    mirrored, upside_down, transposed = torch.rand(3, len(pixels), 1, device=pixels.device) < 0.5

    def pick(chosen: Tensor, changed: Tensor, same: Tensor) -> Tensor:
        return torch.where(chosen[..., None, None], changed, same)

    pixels = pick(mirrored, pixels.flip(3), pixels)
    x1, x2 = torch.where(mirrored, width - x2, x1), torch.where(mirrored, width - x1, x2)
    if not scene.is_symmetric:
        return pixels, torch.stack([x1, y1, x2, y2], -1)
    pixels = pick(upside_down, pixels.flip(2), pixels)
    y1, y2 = (torch.where(upside_down, height - y2, y1), torch.where(upside_down, height - y1, y2))
    pixels = pick(transposed, pixels.transpose(2, 3), pixels)
    straight, swapped = torch.stack([x1, y1, x2, y2], -1), torch.stack([y1, x1, y2, x2], -1)
    return pixels, torch.where(transposed[..., None], swapped, straight)


# --- The network ---------------------------------------------------------------------------


class Conv(nn.Sequential):
    """Convolution, batch normalization and ReLU; the export fuses the first two."""

    def __init__(self, given: int, made: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(given, made, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(made),
            nn.ReLU(inplace=True),
        )


class Block(nn.Module):
    """A residual block: 1x1 convolution to half the channels, then a 3x3 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(Conv(channels, channels // 2, 1), Conv(channels // 2, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus the residual, (B, C, H, W)."""
        return x + self.body(x)


class ShapeNet(nn.Module):
    """A small anchor-free detector: backbone, top-down and bottom-up paths, one shared head."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        c16, c32, c64, c96, c128 = (int(scene.channels * c) for c in (16, 32, 64, 96, 128))
        self.to_8 = nn.Sequential(
            Conv(3, c16, stride=2),
            Conv(c16, c32, stride=2),
            Block(c32),
            Conv(c32, c64, stride=2),
            Block(c64),
            Block(c64),
        )
        self.to_16 = nn.Sequential(Conv(c64, c96, stride=2), Block(c96), Block(c96))
        self.to_32 = nn.Sequential(Conv(c96, c128, stride=2), Block(c128))
        self.lateral = nn.ModuleList(Conv(channels, c64, 1) for channels in (c64, c96, c128))
        self.down_16, self.down_8 = Block(c64), Block(c64)
        self.shrink_16, self.shrink_32 = Conv(c64, c64, stride=2), Conv(c64, c64, stride=2)
        self.up_16, self.up_32 = Block(c64), Block(c64)
        self.box_head = nn.Sequential(Conv(c64, c64), nn.Conv2d(c64, 4, 1))
        self.class_head = nn.Sequential(Conv(c64, c64), nn.Conv2d(c64, len(scene.classes), 1))
        nn.init.constant_(self.class_head[1].bias, -math.log(99))  # Most places hold nothing.
        sides = [[size // stride for size in scene.input_hw] for stride in STRIDES]
        points = [
            (torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).flip(1) + 0.5) * s
            for (rows, columns), s in zip(sides, STRIDES)
        ]
        strides = [torch.full((rows * cols,), float(s)) for (rows, cols), s in zip(sides, STRIDES)]
        self.register_buffer('points', torch.cat(points).T[None])  # (1, 2, A): x, y in pixels
        self.register_buffer('strides', torch.cat(strides)[None, None])  # (1, 1, A)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """
        Predict boxes and class scores.

        :param pixels: (B, 3, H, W) RGB, 0 to 1.
        :returns: (B, 4, A) distances of left, top, right and bottom from each point, in pixels;
            (B, C, A) class scores before the sigmoid.
        """
        at_8 = self.to_8(pixels)
        at_16 = self.to_16(at_8)
        at_32 = self.to_32(at_16)
        at_8, at_16, at_32 = (side(x) for side, x in zip(self.lateral, (at_8, at_16, at_32)))
        at_16 = self.down_16(at_16 + functional.interpolate(at_32, scale_factor=2.0))
        at_8 = self.down_8(at_8 + functional.interpolate(at_16, scale_factor=2.0))
        at_16 = self.up_16(at_16 + self.shrink_16(at_8))
        at_32 = self.up_32(at_32 + self.shrink_32(at_16))
        levels = (at_8, at_16, at_32)
        ltrb = torch.cat([self.box_head(x).flatten(2) for x in levels], 2)
        scores = torch.cat([self.class_head(x).flatten(2) for x in levels], 2)
        return functional.softplus(ltrb.float()) * self.strides, scores.float()


class Deployed(nn.Module):
    """The network with the output layout of YOLOv8: (B, 4 + C, A), cx, cy, w, h, then scores."""

    def __init__(self, network: ShapeNet) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        """Return boxes and scores, (B, 4 + C, A)."""
        ltrb, scores = self.network(pixels)
        left_top, right_bottom = ltrb.split(2, 1)
        center = self.network.points + (right_bottom - left_top) / 2
        return torch.cat([center, left_top + right_bottom, scores.sigmoid()], 1)


# --- Training ------------------------------------------------------------------------------


def overlaps(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the IoU and the generalized IoU (Rezatofighi et al., CVPR 2019) of xyxy boxes."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    both = (high - low).clamp(0).prod(-1)
    either = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - both
    hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
    iou = both / (either + 1e-7)
    return iou, iou - (hull - either) / (hull + 1e-7)


@torch.no_grad()
def assign(
    boxes: Tensor, scores: Tensor, points: Tensor, truth: Tensor, classes: Tensor
) -> tuple[Tensor, Tensor]:
    """
    Assign target scores and boxes to the points.

    Task-aligned assignment (Feng et al., TOOD, ICCV 2021): each shape is assigned to the ten
    points inside it whose score and box fit best; the target score increases with the fit.

    :param boxes: (B, A, 4) predicted; `scores`: (B, A, C), 0 to 1; `points`: (A, 2) pixels.
    :param truth: (B, M, 4) boxes; `classes`: (B, M), -1 where there is none.
    :returns: (B, A, C) target scores; (B, A, 4) target boxes, arbitrary where all scores are 0.
    """
    to_edges = torch.cat([points - truth[:, :, None, :2], truth[:, :, None, 2:] - points], -1)
    within = (to_edges.amin(-1) > 0) & (classes >= 0)[..., None]  # (B, M, A)
    iou, _ = overlaps(truth[:, :, None], boxes[:, None])
    wanted = classes.clamp(0)
    score = scores.transpose(1, 2).gather(1, wanted[..., None].expand(-1, -1, len(points)))
    fit = score.sqrt() * iou.pow(6) * within
    best = torch.zeros_like(within).scatter_(2, fit.topk(10).indices, True) & (fit > 0)
    owner = (iou * best).argmax(1, keepdim=True)  # Each point is assigned to one shape only.
    best &= torch.zeros_like(best).scatter_(1, owner, True)
    fit = fit * best
    fit *= (iou * best).amax(2, keepdim=True) / (fit.amax(2, keepdim=True) + 1e-9)
    owner = owner[:, 0]
    boxes_of_points = truth.gather(1, owner[..., None].expand(-1, -1, 4))
    classes_of_points = functional.one_hot(wanted.gather(1, owner), scores.shape[2])
    return classes_of_points * fit.amax(1)[..., None], boxes_of_points


def loss_of(network: nn.Module, pixels: Tensor, truth: Tensor, classes: Tensor) -> Tensor:
    """Compute the loss: cross entropy of the scores plus 1 - GIoU of the boxes."""
    with torch.autocast('cuda', torch.bfloat16, enabled=pixels.is_cuda):
        ltrb, logits = network(pixels)
    points = network.points[0].T
    ltrb, logits = ltrb.transpose(1, 2), logits.transpose(1, 2)
    boxes = torch.cat([points - ltrb[..., :2], points + ltrb[..., 2:]], -1)
    target_scores, target_boxes = assign(
        boxes.detach(), logits.detach().sigmoid(), points, truth, classes
    )
    weight = target_scores.sum(-1)
    total = weight.sum().clamp(1)
    _, giou = overlaps(boxes, target_boxes)
    entropy = functional.binary_cross_entropy_with_logits(logits, target_scores, reduction='sum')
    return (entropy + 2.5 * ((1 - giou) * weight).sum()) / total


def train(scene: Scene, minutes: float, pictures: int, batch: int, peak_rate: float) -> ShapeNet:
    """Draw the pictures, then train for `minutes`; return the averaged network."""
    started = time.monotonic()
    drawn = draw_inputs(scene, pictures)  # Before CUDA starts, which no fork survives.
    print(f'{pictures} pictures drawn in {time.monotonic() - started:.0f} s', flush=True)
    started = time.monotonic()
    return fit(
        scene, drawn, lambda step: (time.monotonic() - started) / (60 * minutes), batch, peak_rate
    )


def fit(
    scene: Scene,
    drawn: tuple[Tensor, Tensor, Tensor],
    progress_at: Callable[[int], float],
    batch: int,
    peak_rate: float,
    seed: int = 0,
) -> ShapeNet:
    """
    Train a network on pictures; return the averaged one.

    :param drawn: as draw_inputs() returns them.
    :param progress_at: returns the progress before a step; 1 and above end the training.
    """
    torch.manual_seed(seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    pool, boxes, classes = (x.to(device) for x in drawn)
    network = ShapeNet(scene).to(device, memory_format=torch.channels_last)
    average = deepcopy(network).eval()
    print(f'{sum(p.numel() for p in network.parameters())} parameters', flush=True)
    optimizer = torch.optim.AdamW(network.parameters(), peak_rate, weight_decay=0.02)
    started = time.monotonic()
    step = 0
    while (progress := progress_at(step)) < 1:
        rate = peak_rate * min(progress / 0.03 + 0.01, 0.5 + 0.5 * math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group['lr'] = rate
        chosen = torch.randint(len(pool), (batch,), device=device)
        pixels, truth = turn_and_flip(scene, pool[chosen], boxes[chosen])
        pixels = (pixels.float() / 255).contiguous(memory_format=torch.channels_last)
        loss = loss_of(network, pixels, truth, classes[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        optimizer.step()
        with torch.no_grad():  # Batch counts are integers and are not averaged.
            decay = min(0.999, (1 + step) / (10 + step))
            for kept, new in zip(average.state_dict().values(), network.state_dict().values()):
                if kept.is_floating_point():
                    kept.lerp_(new, 1 - decay)
        step += 1
        if step % 100 == 0 or step == 1:
            print(f'step {step}  {progress:4.0%}  loss {loss.item():.3f}', flush=True)
    print(
        f'{step} steps of {batch} pictures in {time.monotonic() - started:.0f} s on '
        f'{torch.cuda.get_device_name() if device.type == "cuda" else "the CPU"}',
        flush=True,
    )
    return average.cpu()


def export(scene: Scene, network: ShapeNet, path: Path) -> None:
    """Write the network as ONNX, with the metadata of Ultralytics exports."""
    torch.onnx.export(
        Deployed(network).eval(),
        (torch.zeros(1, 3, *scene.input_hw),),
        path,
        input_names=['images'],
        output_names=['output0'],
        opset_version=17,
        dynamo=False,
    )
    model = onnx.load(path)
    onnx.helper.set_model_props(
        model,
        {
            'description': f'{scene.description}, a demo model of trt_ros',
            'license': 'Apache-2.0',
            'task': 'detect',
            'stride': str(max(STRIDES)),
            'batch': '1',
            'imgsz': str(list(scene.input_hw)),
            'names': str(dict(enumerate(scene.classes))),
        },
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def main() -> None:
    """Train and export a demo model."""
    parser = ArgumentParser(
        description='Train a demo model.', formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument('--out', type=Path, required=True, help='output folder of the ONNX file')
    parser.add_argument('--scene', choices=SCENES, default='shapes', help='what to detect')
    parser.add_argument('--minutes', type=float, default=2.5, help='training time in minutes')
    parser.add_argument(
        '--pictures', type=int, default=24000, help='number of drawn training pictures'
    )
    parser.add_argument('--batch', type=int, default=128, help='pictures per step')
    parser.add_argument('--rate', type=float, default=2e-3, help='peak learning rate')
    args = parser.parse_args()
    scene = SCENES[args.scene]
    args.out.mkdir(parents=True, exist_ok=True)
    network = train(scene, args.minutes, args.pictures, args.batch, args.rate)
    path = args.out / f'{args.scene}.onnx'
    export(scene, network, path)
    print(f'{path}: {os.path.getsize(path)} bytes')


if __name__ == '__main__':
    main()
