"""Drawing of boxes, keypoints, tracks and masks on pictures."""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
import zlib

import cv2
import numpy as np

from trt_ros.drawing.labels import (
    DEFAULT_STYLE,
    Color,
    Label,
    Style,
    color_of,
    draw_labels,
    drawn_name,
    ink,
)
from trt_ros.results.arrays import Depth
from trt_ros.results.boxes import Objects
from trt_ros.results.masks import unlabeled
from trt_ros.results.poses import limbs


def draw_detections(pixels: np.ndarray, found: Objects, *, style: Style = DEFAULT_STYLE) -> None:
    """
    Draw every box with its class name, id and score, in place; the best box on top.

    A box has the color of its id, or of its class if it has no id.

    :param pixels: (H, W, 3) BGR or (H, W, 4) BGRA, uint8, C-contiguous and writable.
    """
    corners, thickness = _corners(found), style.thickness(pixels)
    labels = object_labels(found.labels, found.scores, found.class_names, found.ids_as_text())
    for label, box in reversed(list(zip(labels, corners))):
        cv2.polylines(pixels, [box], True, ink(pixels, label.color), thickness)
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    draw_labels(pixels, labels, boxes, style)


def object_labels(
    labels: np.ndarray, scores: np.ndarray, class_names: Sequence[str], ids: Sequence[str] = ()
) -> list[Label]:
    """Return name, id and score of objects, each in the color of its class or id."""
    found = []
    for index, (label, score) in enumerate(zip(labels.tolist(), scores.tolist())):
        name, color = drawn_name(class_names, label), color_of(label)
        if ids and ids[index]:
            name, color = f'{name} {ids[index]}', color_of_id(ids[index])
        found.append(Label(f'{name} {score:.2f}', color))
    return found


def color_of_id(track_id: str) -> Color:
    """Return the color of a track: constant."""
    return color_of(zlib.crc32(track_id.encode()) % 1024)


def draw_keypoints(
    pixels: np.ndarray,
    keypoints: np.ndarray,
    names: Sequence[str] = (),
    *,
    min_visibility: float,
    style: Style = DEFAULT_STYLE,
) -> None:
    """
    Draw keypoints as dots, in place, each in the color of its index, with the limbs of COCO.

    :param pixels: (H, W, 3) BGR or (H, W, 4) BGRA, uint8, C-contiguous and writable.
    :param keypoints: (N, K, 3): x, y in pixels, and visibility; see `Poses`.
    :param names: of the keypoints, by which limbs are found; () uses those that K implies.
    :param min_visibility: minimum visibility of a drawn keypoint, 0 to 1.
    """
    radius = max(2, round(min(pixels.shape[:2]) / 160))
    width = style.line_width or max(1, radius // 2)
    pairs = limbs(names, keypoints.shape[1])
    for each in keypoints:
        shown = {
            index: (round(x), round(y))
            for index, (x, y, visibility) in enumerate(each.tolist())
            if visibility >= min_visibility and abs(x) < 1e6 and abs(y) < 1e6
        }
        for first, second in pairs:
            if first in shown and second in shown:
                color = ink(pixels, color_of(first))
                cv2.line(pixels, shown[first], shown[second], color, width)
        for index, point in shown.items():
            cv2.circle(pixels, point, radius, ink(pixels, color_of(index)), cv2.FILLED)


class Trails:
    """The centers of tracked boxes over the last seconds, for one camera."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[int, int, int]]] = {}
        self._newest_ns = 0

    def add(self, found: Objects, stamp_ns: int, seconds: float) -> None:
        """Add the boxes of an image and forget older points; a time that goes back forgets all."""
        if stamp_ns < self._newest_ns:
            self._points.clear()
        self._newest_ns = stamp_ns
        centers = _corners(found).mean(axis=1).round().astype(int).tolist()
        for track_id, (x, y) in zip(found.ids_as_text(), centers):
            if track_id:
                self._points.setdefault(track_id, deque()).append((stamp_ns, x, y))
        for track_id, points in list(self._points.items()):
            while points and stamp_ns - points[0][0] > seconds * 1e9:
                points.popleft()
            if not points:
                del self._points[track_id]

    def draw(self, pixels: np.ndarray, style: Style = DEFAULT_STYLE) -> None:
        """Draw a line through the points of each track, in place, in the color of its id."""
        for track_id, points in self._points.items():
            line = np.array([(x, y) for _, x, y in points], np.int32)
            color = ink(pixels, color_of_id(track_id))
            cv2.polylines(pixels, [line], False, color, style.thickness(pixels))


def _corners(found: Objects) -> np.ndarray:
    corners = np.clip(np.nan_to_num(found.corners()), -1e6, 1e6)
    return np.asarray(np.rint(corners).astype(np.int32))


def draw_mask(
    pixels: np.ndarray,
    classes: np.ndarray,
    *,
    opacity: float,
    background: int | None = None,
    shift: int = 0,
) -> None:
    """
    Blend each pixel with the color of its class, in place; those without a class stay.

    :param pixels: (H, W, 3) BGR or (H, W, 4) BGRA, uint8, C-contiguous and writable.
    :param classes: (H, W) unsigned integers, see `ClassMask`.
    :param opacity: 0 (only the image) to 1 (only the classes).
    :param background: class whose pixels stay, too; None: no class.
    :param shift: added to the classes to choose their colors.
    """
    shown = classes != unlabeled(classes.dtype)
    if background is not None:
        shown &= classes != background
    indices = np.where(shown, classes, 0).astype(np.intp)
    indices += shift
    colors = _palette(max(int(indices.max()), 0) + 1).take(indices, axis=0, mode='clip')
    if pixels.shape[2] == 4:
        layer = np.dstack([colors, np.full(classes.shape, round(255 * opacity), np.uint8)])
    else:
        layer = cv2.addWeighted(pixels, 1 - opacity, colors, opacity, 0)
    np.copyto(pixels, layer, where=shown[..., np.newaxis])


@lru_cache(maxsize=8)
def _palette(count: int) -> np.ndarray:
    return np.array([color_of(index) for index in range(count)], np.uint8)


def depth_view(found: Depth) -> np.ndarray:
    """Map depth from blue to red, (H, W, 3) uint8 BGR; non-finite pixels are black."""
    finite = np.isfinite(found.values)
    values = found.values[finite]
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
    share = np.where(finite, found.values - low, 0) / max(high - low, np.finfo(np.float32).tiny)
    colors = cv2.applyColorMap((share * 255).astype(np.uint8), cv2.COLORMAP_TURBO)
    return np.asarray(colors * finite[..., np.newaxis].astype(np.uint8))
