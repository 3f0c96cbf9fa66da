"""
Drawn pictures of the demo: colored shapes on cluttered backgrounds, with their exact boxes.

    PYTHONPATH=tools python -m demo.scene trt_ros/demo/shapes.mp4
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
import math
from pathlib import Path
import sys

import cv2
import numpy as np

from trt_ros.media import write_picture
from trt_ros.video import import_av

CLASSES = ('circle', 'square', 'triangle', 'star', 'cross', 'hexagon')
MIN_VISIBLE = 0.7  # Visible fraction below which a shape is not drawn, or, moving, not annotated.
RATE_HZ = 15.0  # Of the pictures of the moving scene.
TRAINING, HELD_OUT = 1, 2  # First half of the seed, so that the two sets share no picture.


def draw_scene(
    rng: np.random.Generator, size_wh: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Draw one picture with 1 to 8 shapes.

    :returns: (H, W, 3) uint8 BGR; (N, 4) float32 x1, y1, x2, y2 in pixels; (N,) int32 indices
        into CLASSES. A box contains the whole shape, including occluded parts, clipped to the
        picture.
    """
    canvas = Canvas(_backdrop(rng, size_wh))
    wanted = int(rng.integers(1, 9))
    for _ in range(4 * wanted):  # Some do not fit.
        if len(canvas.boxes) < wanted:
            canvas.try_paint(_random_shape(rng, size_wh))
    light = _light(rng, size_wh)
    blur = float(rng.uniform(0.4, 1.6)) if rng.random() < 0.4 else 0.0
    image = _photograph(canvas.image, light, blur, float(rng.uniform(0, 14)), rng)
    return image, canvas.xyxy, canvas.labels


def held_out(count: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the first `count` 640x480 pictures that are not used in training."""
    for index in range(count):
        yield draw_scene(np.random.default_rng([HELD_OUT, index]), (640, 480))


def draw_pictures(folder: Path, seconds: float) -> list[tuple[Path, np.ndarray, np.ndarray]]:
    """Write a moving scene as JPEG files; return path, boxes (N, 4) and labels (N,) of each."""
    scene = MovingScene(9)
    drawn = []
    # Some spare pictures for the time until the nodes have discovered each other.
    for index in range(math.ceil((seconds + 4) * RATE_HZ)):
        image, xyxy, labels = scene.frame(index)
        path = folder / f'{index:05}.jpg'
        write_picture(path, image)
        drawn.append((path, xyxy, labels))
    return drawn


def write_video(path: Path, seconds: float = 6.0) -> None:
    """Write a moving scene without noise, which a small video has no room for."""
    av, scene = import_av(), MovingScene(9)
    with av.open(str(path), 'w') as container:
        stream = container.add_stream('libx264', round(RATE_HZ))
        stream.width, stream.height = scene.size_wh
        stream.pix_fmt, stream.options = 'yuv420p', {'crf': '28', 'preset': 'veryslow'}
        for index in range(round(seconds * RATE_HZ)):
            image, _, _ = scene.frame(index, noise=0.0)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, 'bgr24')))
        container.mux(stream.encode(None))


class MovingScene:
    """A camera view of drifting, turning shapes; deterministic for a seed."""

    def __init__(self, seed: int, size_wh: tuple[int, int] = (640, 480)) -> None:
        rng = np.random.default_rng(seed)
        self.seed, self.size_wh = seed, size_wh
        self._sway = min(size_wh) // 12  # Amplitude of the camera's panning in pixels.
        wide = (size_wh[0] + 2 * self._sway, size_wh[1] + 2 * self._sway)
        self._backdrop = _backdrop(rng, wide)
        self._light = _light(rng, size_wh)
        # One shape per class, each around the center of its own cell, so that shapes never
        # occlude each other for long.
        columns, rows = 3, math.ceil(len(CLASSES) / 3)
        self._cell_wh = (size_wh[0] / columns, size_wh[1] / rows)
        self._shapes = []
        self._paths = []
        for place, label in enumerate(rng.permutation(len(CLASSES))):
            row, column = divmod(place, columns)
            home_xy = ((column + 0.5) * self._cell_wh[0], (row + 0.5) * self._cell_wh[1])
            radius = min(self._cell_wh) * float(rng.uniform(0.2, 0.36))
            self._shapes.append(
                replace(
                    _random_shape(rng, size_wh), label=int(label), center_xy=home_xy, radius=radius
                )
            )
            self._paths.append(
                rng.uniform(0, 2 * np.pi, 3).tolist() + rng.uniform(0.02, 0.04, 3).tolist()
            )

    def frame(self, index: int, noise: float = 5.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw frame `index`, as `draw_scene` does; shapes below MIN_VISIBLE are not annotated."""
        pan_x = self._sway + round(self._sway * math.sin(index / 70))
        pan_y = self._sway + round(self._sway * math.sin(index / 110))
        width, height = self.size_wh
        view = self._backdrop[pan_y : pan_y + height, pan_x : pan_x + width]
        canvas = Canvas(view.copy())
        for shape, (phase_x, phase_y, angle, rate_x, rate_y, spin) in zip(
            self._shapes, self._paths
        ):
            center_xy = (
                shape.center_xy[0] + 0.3 * self._cell_wh[0] * math.sin(phase_x + rate_x * index),
                shape.center_xy[1] + 0.3 * self._cell_wh[1] * math.sin(phase_y + rate_y * index),
            )
            canvas.paint(replace(shape, center_xy=center_xy, angle=angle + spin * index))
        rng = np.random.default_rng([self.seed, index])
        image = _photograph(canvas.image, self._light, 0.5, noise, rng)
        seen = canvas.visible >= MIN_VISIBLE
        return image, canvas.xyxy[seen], canvas.labels[seen]


@dataclass(frozen=True)
class Shape:
    """
    One shape to paint.

    :param center_xy: in pixels; whole numbers are the edges between pixels.
    :param radius: distance from the center to the farthest corner, in pixels.
    :param angle: in radians.
    :param colors: (3, 3) float32 BGR, 0 to 255: both ends of the fill gradient, the border.
    :param border: ratio of border thickness to radius, 0 to 1.
    :param stripes: number of stripes across the fill; 0 is none.
    """

    label: int
    center_xy: tuple[float, float]
    radius: float
    angle: float
    colors: np.ndarray
    border: float = 0.0
    stripes: float = 0.0

    def polygon(self, scale: float = 1.0) -> np.ndarray:
        """Return the corners, (K, 2) float64 x, y in pixels, scaled about the center."""
        turn = np.array(
            [
                [math.cos(self.angle), math.sin(self.angle)],
                [-math.sin(self.angle), math.cos(self.angle)],
            ]
        )
        corners = _OUTLINES[CLASSES[self.label]] @ turn
        return np.asarray(corners * (self.radius * scale) + self.center_xy)


class Canvas:
    """A picture with the topmost shape of each pixel and the boxes of all shapes."""

    def __init__(self, image: np.ndarray) -> None:
        self.image = image
        self.boxes: list[np.ndarray] = []
        self._labels: list[int] = []
        self._areas: list[float] = []
        self._owner = np.full(image.shape[:2], -1, np.int16)

    @property
    def xyxy(self) -> np.ndarray:
        """Boxes of the shapes, (N, 4) float32, in pixels."""
        return np.array(self.boxes, np.float32).reshape(-1, 4)

    @property
    def labels(self) -> np.ndarray:
        """Class indices of the shapes, (N,) int32."""
        return np.array(self._labels, np.int32)

    @property
    def visible(self) -> np.ndarray:
        """Visible fraction of each shape, inside the picture and not occluded, (N,) 0 to 1."""
        owned = np.bincount(self._owner[self._owner >= 0], minlength=len(self.boxes))
        return np.asarray(owned / np.array(self._areas))

    def try_paint(self, shape: Shape) -> None:
        """Paint a shape, unless its contrast is too low or any shape would be too occluded."""
        rows, columns, cover = self._coverage(shape.polygon())
        inside = cover > 0.5
        if inside.sum() < MIN_VISIBLE * _area(shape.polygon()):
            return
        hidden = self._owner[rows, columns][inside]
        left = self.visible - np.bincount(
            hidden[hidden >= 0], minlength=len(self.boxes)
        ) / np.array(self._areas)
        behind = self.image[rows, columns][inside].mean(axis=0)
        contrast = np.linalg.norm(shape.colors[:2] - behind, axis=1).min()
        if (left >= MIN_VISIBLE).all() and contrast >= 70:
            self.paint(shape)

    def paint(self, shape: Shape) -> None:
        """Paint a shape over the existing ones."""
        corners = shape.polygon()
        rows, columns, cover = self._coverage(corners)
        self._owner[rows, columns][cover > 0.5] = len(self.boxes)
        self._blend(rows, columns, cover, self._filling(shape, rows, columns))
        if shape.border:
            rim = cover.copy()
            inner_rows, inner_columns, inner = self._coverage(shape.polygon(1 - shape.border))
            rim[
                inner_rows.start - rows.start : inner_rows.stop - rows.start,
                inner_columns.start - columns.start : inner_columns.stop - columns.start,
            ] -= inner
            self._blend(rows, columns, rim.clip(0, 1), shape.colors[2])
        height, width = self.image.shape[:2]
        low, high = corners.min(axis=0), corners.max(axis=0)
        self.boxes.append(np.clip([*low, *high], 0, [width, height, width, height]))
        self._labels.append(shape.label)
        self._areas.append(_area(corners))

    def _coverage(self, corners: np.ndarray) -> tuple[slice, slice, np.ndarray]:
        """Compute the covered fraction per pixel: rows, columns, (h, w) float32 0 to 1."""
        size = self.image.shape[1::-1]
        x1, y1 = np.clip(np.floor(corners.min(axis=0)), 0, size).astype(int)
        x2, y2 = np.clip(np.ceil(corners.max(axis=0)), 0, size).astype(int)
        cover = np.zeros((y2 - y1, x2 - x1), np.float32)
        if cover.size:
            # At four times the resolution, in 1/16 pixel; coordinates of OpenCV are pixel centers.
            fine = np.zeros((4 * cover.shape[0], 4 * cover.shape[1]), np.uint8)
            points = np.round(((corners - (x1, y1)) * 4 - 0.5) * 16).astype(np.int32)
            cv2.fillPoly(fine, [points], 255, shift=4)
            cover = cv2.resize(fine, cover.shape[::-1], interpolation=cv2.INTER_AREA) / 255.0
        return slice(y1, y2), slice(x1, x2), cover.astype(np.float32)

    def _blend(self, rows: slice, columns: slice, cover: np.ndarray, color: np.ndarray) -> None:
        under = self.image[rows, columns]
        self.image[rows, columns] = under + cover[..., None] * (color - under)

    def _filling(self, shape: Shape, rows: slice, columns: slice) -> np.ndarray:
        """Return the fill gradient across the shape, (h, w, 3) float32."""
        y, x = np.ogrid[rows, columns]
        along = (
            (x - shape.center_xy[0]) * math.cos(shape.angle)
            + (y - shape.center_xy[1]) * math.sin(shape.angle)
        ) / shape.radius
        mix = (along + 1) / 2
        if shape.stripes:
            mix = 0.5 + 0.5 * np.sin(along * np.pi * shape.stripes)
        mix = mix[..., None].astype(np.float32)
        return np.asarray(shape.colors[0] + mix * (shape.colors[1] - shape.colors[0]))


def _ring(*radii: float, corners: int) -> np.ndarray:
    """Return corners at equal angles around the origin, with alternating radii."""
    angles = np.arange(corners) * (2 * np.pi / corners)
    directions = np.stack([np.cos(angles), np.sin(angles)], 1)
    return np.asarray(directions * np.resize(radii, corners)[:, None])


def _plus(arm: float) -> np.ndarray:
    """Return a plus sign of radius 1; its arms are 2 * arm wide before scaling."""
    corner = np.array([[1, -arm], [1, arm], [arm, arm]])
    turns = [np.array([[c, s], [-s, c]]) for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1))]
    return np.asarray(np.concatenate([corner @ turn for turn in turns]) / math.hypot(1, arm))


_OUTLINES = {
    'circle': _ring(1, corners=72),
    'square': _ring(1, corners=4),
    'triangle': _ring(1, corners=3),
    'star': _ring(1, 0.45, corners=10),
    'cross': _plus(0.3),
    'hexagon': _ring(1, corners=6),
}


def _area(corners: np.ndarray) -> float:
    x, y = corners.T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def _color(rng: np.random.Generator, saturation: tuple[float, float]) -> np.ndarray:
    hsv = np.array([[[rng.uniform(0, 360), rng.uniform(*saturation), rng.uniform(0.4, 1)]]])
    return np.asarray(cv2.cvtColor(hsv.astype(np.float32), cv2.COLOR_HSV2BGR)[0, 0] * 255)


def _random_shape(rng: np.random.Generator, size_wh: tuple[int, int]) -> Shape:
    first = _color(rng, (0.45, 1))
    second = first * float(rng.uniform(0.55, 1)) if rng.random() < 0.7 else _color(rng, (0.45, 1))
    return Shape(
        label=int(rng.integers(len(CLASSES))),
        center_xy=(rng.uniform(0, size_wh[0]), rng.uniform(0, size_wh[1])),
        # Log-uniform: 20 to 40 pixels is as likely as 40 to 80.
        radius=min(size_wh) / 480 * float(np.exp(rng.uniform(np.log(20), np.log(110)))),
        angle=float(rng.uniform(0, 2 * np.pi)),
        colors=np.stack([first, second, _color(rng, (0, 1)) * rng.uniform(0, 1)]),
        border=float(rng.uniform(0.05, 0.2)) if rng.random() < 0.4 else 0.0,
        stripes=float(rng.uniform(2, 7)) if rng.random() < 0.25 else 0.0,
    )


def _clouds(rng: np.random.Generator, size_wh: tuple[int, int], cells: int) -> np.ndarray:
    """Return smooth noise, `cells` random values per side, (H, W) float32, about -0.5 to 0.5."""
    seeds = rng.random((cells, cells), np.float32) - 0.5
    return np.asarray(cv2.resize(seeds, size_wh, interpolation=cv2.INTER_CUBIC))


def _backdrop(rng: np.random.Generator, size_wh: tuple[int, int]) -> np.ndarray:
    """Draw a background with colors, texture and clutter, (H, W, 3) uint8 BGR."""
    cells = int(rng.integers(2, 7))
    colors = rng.random((cells, cells, 3), np.float32) * 230
    gray = colors.mean(axis=2, keepdims=True)
    colors = gray + (colors - gray) * float(rng.uniform(0.2, 0.9))
    texture = _clouds(rng, size_wh, 24) * float(rng.uniform(0, 70))
    texture += _clouds(rng, size_wh, 90) * float(rng.uniform(0, 50))
    if rng.random() < 0.3:
        texture += _tiles(rng, size_wh)
    image = cv2.resize(colors, size_wh, interpolation=cv2.INTER_CUBIC)
    image += texture[..., None]
    image = image.clip(0, 255).astype(np.uint8)
    for _ in range(int(rng.integers(0, 25))):
        _clutter(rng, image)
    return np.asarray(image)


def _tiles(rng: np.random.Generator, size_wh: tuple[int, int]) -> np.ndarray:
    """Return a pattern of bars or a checkerboard to add, (H, W) float32."""
    pitch_x, pitch_y = rng.uniform(12, 60, 2)
    y, x = np.ogrid[: size_wh[1], : size_wh[0]]
    slant = float(rng.uniform(-0.5, 0.5))
    pattern = ((x + slant * y) // pitch_x % 2).astype(np.float32)
    if rng.random() < 0.5:
        pattern = abs(pattern - (y - slant * x) // pitch_y % 2).astype(np.float32)
    return np.asarray((pattern - 0.5) * float(rng.uniform(10, 60)))


def _clutter(rng: np.random.Generator, image: np.ndarray) -> None:
    """Draw a line, a bar, an arc, a dot, a letter or a scribble, none of which is a class."""
    height, width = image.shape[:2]
    color = _color(rng, (0, 0.8)).tolist()
    x, y = int(rng.integers(width)), int(rng.integers(height))
    thickness = int(rng.integers(1, 5))
    kind = rng.integers(6)
    if kind == 0:
        end = (int(rng.integers(width)), int(rng.integers(height)))
        cv2.line(image, (x, y), end, color, thickness, cv2.LINE_AA)
    elif kind == 1:
        long, angle = float(rng.uniform(40, 260)), float(rng.uniform(0, 180))
        bar = cv2.boxPoints(((x, y), (long, long * float(rng.uniform(0.05, 0.2))), angle))
        cv2.fillPoly(image, [bar.astype(np.int32)], color, cv2.LINE_AA)
    elif kind == 2:
        axes = (int(rng.integers(10, 90)), int(rng.integers(10, 90)))
        start = float(rng.uniform(0, 360))
        cv2.ellipse(
            image,
            (x, y),
            axes,
            float(rng.uniform(0, 180)),
            start,
            start + float(rng.uniform(60, 200)),
            color,
            thickness,
            cv2.LINE_AA,
        )
    elif kind == 3:
        cv2.circle(image, (x, y), int(rng.integers(1, 7)), color, -1, cv2.LINE_AA)
    elif kind == 4:
        cv2.putText(
            image,
            chr(rng.integers(ord('A'), ord('Z') + 1)),
            (x, y),
            cv2.FONT_HERSHEY_SIMPLEX,
            float(rng.uniform(0.5, 2.5)),
            color,
            thickness,
            cv2.LINE_AA,
        )
    else:
        steps = np.array([x, y]) + rng.normal(0, 22, (7, 2)).cumsum(axis=0)
        cv2.polylines(image, [steps.astype(np.int32)], False, color, thickness, cv2.LINE_AA)


def _light(rng: np.random.Generator, size_wh: tuple[int, int]) -> np.ndarray:
    """Return the illumination per pixel, (H, W, 1) float32 around 1."""
    low, high = np.sort(rng.uniform(0.5, 1.3, 2))
    clouds = _clouds(rng, size_wh, 2)[..., None] + 0.5
    return np.asarray(low + (high - low) * clouds, np.float32)


def _photograph(
    image: np.ndarray, light: np.ndarray, blur: float, noise: float, rng: np.random.Generator
) -> np.ndarray:
    """Apply illumination, blur and noise (both as sigmas) to a picture; return uint8."""
    seen = image * light
    if blur:
        seen = cv2.GaussianBlur(seen, (0, 0), blur)
    grain = rng.standard_normal(image.shape[:2], np.float32)[..., None] * noise
    return np.asarray((seen + grain).clip(0, 255), np.uint8)


if __name__ == '__main__':
    write_video(Path(sys.argv[1]))
