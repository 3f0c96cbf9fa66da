"""
MTCNN as one ONNX file: image pyramid, the three networks, and the steps between them.

A development tool that the package itself never imports. It needs torch, and
`pip install --no-deps facenet-pytorch`, whose weights it exports:

    python tools/export_mtcnn.py mtcnn.onnx --size 480 640

All sizes are fixed: `COUNTS` candidates, best first, reach the first NMS, the second and the third
network; facenet-pytorch has no such limits. The output is that of YOLO26-pose.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

COUNTS, THRESHOLDS, FACTOR = (1024, 256, 64), (0.6, 0.7, 0.7), 0.709
NMS_ROUNDS = 12


def mean_matrices(begin: Tensor, length: Tensor, size: int, pixels: int) -> Tensor:
    """
    Return matrices that average pixels to `size` of them, as the interpolation `area` of torch.

    :param begin: first pixel of each, (K,); `length`: number of pixels, (K,) of at least 1.
    :returns: (K, size, pixels).
    """
    steps = torch.arange(size + 1.0) * length[:, None]
    # Half a pixel more: divisions of TensorRT are not exact.
    first = ((steps[:, :-1] + 0.5) / size).floor()
    last = ((steps[:, 1:] + size - 0.5) / size).floor()
    place = torch.arange(float(pixels)) - begin[:, None, None]
    is_used = (place >= first[..., None]) & (place < last[..., None])
    return is_used.float() / (last - first)[..., None]


def resized(image: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return (K, 3, h, w) of values as the networks take them; `image`: (1, 3, H, W), 0 to 255."""
    return (rows[:, None] @ image @ columns[:, None].transpose(2, 3) - 127.5) / 128


def cropped(image: Tensor, boxes: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the squares of boxes, (K, 3, size, size), and which of them are in the image."""
    height, width = image.shape[2:]
    low = boxes[:, :2].floor().clamp(min=1) - 1
    length = boxes[:, 2:].floor().minimum(torch.tensor([width, height])) - low
    columns, rows = (
        mean_matrices(low[:, axis], length[:, axis].clamp(min=1), size, pixels)
        for axis, pixels in enumerate((width, height))
    )
    return resized(image, rows, columns), (length > 0).all(1)


def kept(boxes: Tensor, valid: Tensor, rivals: Tensor, limit: float, by_least: bool) -> Tensor:
    """
    Return which boxes, best first, no better one suppresses: NMS as a few rounds of products.

    :param rivals: (K, K), whether two boxes are compared.
    :param by_least: divide by the smaller area, in whole pixels, in place of the union.
    """
    extra = int(by_least)
    size = (boxes[:, 2:] - boxes[:, :2] + extra).clamp(min=0)
    area = size[:, 0] * size[:, 1]
    low, high = (
        pick(boxes[:, None, at], boxes[None, :, at])
        for pick, at in ((torch.maximum, slice(2)), (torch.minimum, slice(2, 4)))
    )
    common = (high - low + extra).clamp(min=0).prod(2)
    least = torch.minimum(area[:, None], area)
    whole = least if by_least else area[:, None] + area - common
    is_over = (common > limit * whole) & rivals
    suppresses, left = is_over.float().tril(-1), valid
    for _ in range(NMS_ROUNDS):
        left = valid & ((suppresses @ left.float()[:, None])[:, 0] < 0.5)
    return left


def moved(boxes: Tensor, offsets: Tensor, extra: int) -> Tensor:
    """Return boxes whose sides moved by a part of their size."""
    size = boxes[:, 2:] - boxes[:, :2] + extra
    return boxes + offsets * torch.cat([size, size], 1)


def squares(boxes: Tensor) -> Tensor:
    """Return the squares of the longer sides around boxes."""
    size = boxes[:, 2:] - boxes[:, :2]
    side = size.amax(1, True)
    low = boxes[:, :2] + size / 2 - side / 2
    return torch.cat([low, low + side], 1)


def best(count: int, scores: Tensor, *others: Tensor) -> Sequence[Tensor]:
    """Return the highest scores, and the other values of these."""
    scores, places = scores.topk(min(count, len(scores)))
    return [scores, *(each[places] for each in others)]


class Mtcnn(nn.Module):
    """The networks of facenet-pytorch for one size of images."""

    def __init__(self, input_hw: tuple[int, int], min_face: float = 20.0) -> None:
        from facenet_pytorch.models.mtcnn import ONet, PNet, RNet

        super().__init__()
        self.first, self.second, self.third = PNet(), RNet(), ONet()
        self.scales = []
        scale = 12 / min_face
        while min(input_hw) * scale >= 12:
            self.scales.append(scale)
            scale *= FACTOR

    def forward(self, image: Tensor) -> Tensor:
        """Return faces and landmarks, (1, K, 21), of an image of 0 to 1, (1, 3, H, W)."""
        image = image * 255
        boxes, scores, levels = self._candidates(image)
        same = levels[:, None] == levels
        apart, always = boxes[:, :4], torch.ones_like(same)
        valid = kept(apart, scores >= THRESHOLDS[0], same, 0.5, False)
        valid = kept(apart, valid, always, 0.7, False)
        scores, boxes = best(COUNTS[1], scores * valid, boxes)
        boxes = squares(moved(boxes[:, :4], boxes[:, 4:], 0))

        crops, is_inside = cropped(image, boxes, 24)
        offsets, odds = self.second(crops)
        valid = (scores > 0) & is_inside & (odds[:, 1] > THRESHOLDS[1])
        scores, boxes, offsets = best(len(boxes), odds[:, 1] * valid, boxes, offsets)
        valid = kept(boxes, scores > 0, always[: len(boxes), : len(boxes)], 0.7, False)
        scores, boxes = best(COUNTS[2], scores * valid, squares(moved(boxes, offsets, 1)))

        crops, is_inside = cropped(image, boxes, 48)
        offsets, points, odds = self.third(crops)
        valid = (scores > 0) & is_inside & (odds[:, 1] > THRESHOLDS[2])
        size = boxes[:, 2:] - boxes[:, :2] + 1
        points = points.view(-1, 2, 5).transpose(1, 2) * size[:, None] + boxes[:, None, :2] - 1
        scores, boxes, points = best(
            len(boxes), odds[:, 1] * valid, moved(boxes, offsets, 1), points
        )
        valid = kept(boxes, scores > 0, always[: len(boxes), : len(boxes)], 0.7, True)
        points = torch.cat([points, torch.ones_like(points[..., :1])], 2).flatten(1)
        scores = (scores * valid)[:, None]
        return torch.cat([boxes, scores, torch.zeros_like(scores), points], 1)[None]

    def _candidates(self, image: Tensor) -> Sequence[Tensor]:
        """Return boxes with offsets, (K, 8), scores and levels of the pyramid."""
        parts = []
        height, width = image.shape[2:]
        for level, scale in enumerate(self.scales):
            rows, columns = (
                mean_matrices(
                    torch.zeros(1), torch.tensor([float(each)]), int(each * scale + 1), each
                )
                for each in (height, width)
            )
            offsets, odds = self.first(resized(image, rows, columns))
            cells = torch.cartesian_prod(*(torch.arange(float(n)) for n in odds.shape[2:])).flip(1)
            sides = torch.cat([2 * cells + 1, 2 * cells + 12], 1)
            sides = torch.floor(sides / scale)
            sides = torch.cat([sides, offsets.flatten(2)[0].T], 1)
            parts.append((odds[0, 1].flatten(), sides, torch.full((len(cells),), float(level))))
        scores, boxes, levels = (torch.cat(each) for each in zip(*parts))
        scores, boxes, levels = best(COUNTS[0], scores, boxes, levels)
        return boxes, scores, levels


def main() -> None:
    """Export the networks."""
    parser = ArgumentParser(
        description=__doc__.partition('\n\n')[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument('onnx', type=Path)
    parser.add_argument('--size', type=int, nargs=2, default=(480, 640), metavar=('H', 'W'))
    parser.add_argument('--min-face', type=float, default=20.0, help='pixels')
    given = parser.parse_args()
    torch.onnx.export(
        Mtcnn(given.size, given.min_face).eval(),
        (torch.rand(1, 3, *given.size),),
        str(given.onnx),
        opset_version=17,
        dynamo=False,
        input_names=['images'],
        output_names=['output0'],
    )
    model = onnx.load(given.onnx)
    about = {'task': 'pose', 'names': "{0: 'face'}", 'kpt_shape': '[5, 3]'}
    onnx.helper.set_model_props(model, about)
    onnx.save(model, given.onnx)


if __name__ == '__main__':
    main()
