"""Drawing of class masks and depth on pictures."""

from functools import lru_cache

import cv2
import numpy as np

from trt_ros.drawing.style import color_of
from trt_ros.results.depth import Depth
from trt_ros.results.masks import unlabeled


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
    """Return the colors of the first classes: (count, 3) uint8."""
    return np.array([color_of(index) for index in range(count)], np.uint8)


def depth_view(found: Depth) -> np.ndarray:
    """
    Map depth to colors from the minimum (blue) to the maximum (red); non-finite pixels are black.

    :returns: (H, W, 3) uint8 BGR.
    """
    finite = np.isfinite(found.values)
    values = found.values[finite]
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
    share = np.where(finite, found.values - low, 0) / max(high - low, np.finfo(np.float32).tiny)
    colors = cv2.applyColorMap((share * 255).astype(np.uint8), cv2.COLORMAP_TURBO)
    return np.asarray(colors * finite[..., np.newaxis].astype(np.uint8))
