"""3D boxes and points of objects in a depth image."""

from dataclasses import dataclass

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.results.boxes import hull
from trt_ros.vision.depth_points import DepthImage, Intrinsics, deproject

#: An object is sampled on a grid of SAMPLES x SAMPLES points of its box.
SAMPLES = 28
#: Fewer samples than these with a depth of the object are no measurement.
MIN_SAMPLES = 12
#: Samples in the inner half of a box without a mask (width and height) count this many times.
CENTER_WEIGHT = 4

# Bins of the depth histogram: 2 % wide from 5 cm to about 200 m. The noise of depth cameras grows
# with the distance, so that a logarithmic scale has similar peaks near and far.
_NEAREST, _BIN, _BINS = 0.05, 0.02, 416
#: Meters; larger values, such as the maximum of float32, stand for pixels without a depth.
_FARTHEST = 1000.0
_MIN_SHARE = 0.005  # Of the samples in three bins; less is a gap between two surfaces.
_TRIM_XY, _TRIM_Z = 0.01, 0.05  # Share of the points beyond each side of a box.
_SIGNS = np.array([(x, y, z) for z in (-1, 1) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))])


@dataclass(frozen=True)
class Boxes3D:
    """
    The boxes of N objects, parallel to the axes of the optical frame of the depth camera.

    A depth camera sees the front of an object only, so that a box is that of its visible surface.

    :param centers: (N, 3) float32 in meters: the middle of the surface in x and y, and its median
        depth z; NaN without depth.
    :param sizes: (N, 3) float32 in meters, the extent of the surface; NaN without depth.
    :param ranges: (N, 2) float32: the depths in meters that belong to the object; NaN without.
    """

    centers: np.ndarray
    sizes: np.ndarray
    ranges: np.ndarray

    @property
    def has_depth(self) -> np.ndarray:
        """Whether an object has a depth: (N,) bool."""
        return np.asarray(np.isfinite(self.centers[:, 2]))


def box_corners(centers: np.ndarray, sizes: np.ndarray, quaternions: np.ndarray) -> np.ndarray:
    """Compute the corners of boxes in space, (N, 8, 3); the first four have the smaller z."""
    local = _SIGNS * sizes[:, None] / 2
    # Messages may have any length, and 0 for no orientation.
    lengths = np.linalg.norm(quaternions, axis=1, keepdims=True)
    unit = (quaternions / np.where(lengths > 0, lengths, 1))[:, None]
    vector, w = unit[..., :3], unit[..., 3:]
    # Rotation of a vector by a unit quaternion: v + 2 q x (q x v + w v).
    turned = local + 2 * np.cross(vector, np.cross(vector, local) + w * local)
    return np.asarray(centers[:, None] + turned)


def enclosing_boxes(corners: np.ndarray, is_surface: np.ndarray) -> np.ndarray:
    """
    Compute the boxes parallel to the axes in which to look for objects, with z up.

    :param corners: (N, 8, 3) as of box_corners(), in meters.
    :param is_surface: (N,) bool: the depth of these is unknown; both horizontal sides become the
        longer one.
    :returns: (N, 6) x1, y1, z1, x2, y2, z2.
    """
    low, high = corners.min(axis=1), corners.max(axis=1)
    half, center = (high - low) / 2, (low + high) / 2
    half[is_surface, :2] = half[is_surface, :2].max(axis=1, keepdims=True)
    return np.concatenate([center - half, center + half], axis=1)


class DepthScene:
    """
    A depth image, its camera, and the image in which the objects were detected.

    :param camera: of the depth image.
    :param source: of the image with the detections, where its pixels are not those of the depth
        image. Both cameras look from the same place in the same direction: a pixel (u, v) of the
        source is at ((u - cx') fx / fx' + cx, (v - cy') fy / fy' + cy) in the depth image.
    :param instances: (H, W) integers, the image that says to which object a pixel of the source
        belongs: index + 1, 0 for none.
    :param max_range: maximum depth in meters.
    :raises BadFrameError: 'wrong calibration' or 'other size', when sizes do not agree.
    """

    def __init__(
        self,
        depth: DepthImage,
        camera: Intrinsics,
        *,
        source: Intrinsics | None = None,
        instances: np.ndarray | None = None,
        max_range: float = np.inf,
    ) -> None:
        height, width = depth.values.shape
        if camera.image_wh != (width, height):
            raise BadFrameError(
                'wrong calibration',
                f'The depth image is {width} × {height}, but its calibration is for '
                f'{camera.image_wh[0]} × {camera.image_wh[1]}.',
                remedy='Remap depth_info to the camera_info of the depth image.',
            )
        self._source = source or camera
        if instances is not None and instances.shape[::-1] != self._source.image_wh:
            raise BadFrameError(
                'other size',
                f'The image of instances is {instances.shape[1]} × {instances.shape[0]}, but '
                f'{self._source.image_wh[0]} × {self._source.image_wh[1]} is expected.',
                remedy='Set registered to true where it has the pixels of the depth image, else '
                'to false, and remap camera_info to that of the detected images.',
            )
        self._depth, self._camera = depth, camera
        self._instances, self._max_range = instances, max_range

    @property
    def source_wh(self) -> tuple[int, int]:
        """Size of the image with the detections."""
        return self._source.image_wh

    def measure(self, boxes: np.ndarray, indices: np.ndarray) -> Boxes3D:
        """
        Measure objects: the largest surface in each box, without its background.

        The depths of an object are one peak of a histogram: bins side by side, each with at least
        0.5 % of the samples, until a gap. Of several peaks, the one with the most samples is
        the object; without a mask, those in the middle of the box count more. The extent is that
        of its points without the outermost: 1 % on each side in x and y, and 5 % in z, whose noise
        is larger.

        :param boxes: (N, 5) center x, y, width, height in pixels of the source, where pixel 0
            covers 0 to 1, and angle in radians from x towards y.
        :param indices: (N,) indices of the objects in `instances`.
        """
        count = len(boxes)
        cols, rows = _grid(boxes)
        at_col, at_row = _between(cols, rows, self._source, self._camera)
        near_col, near_row, is_valid = _nearest(at_col, at_row, *self._camera.image_wh)
        meters = self._depth.meters((near_row, near_col))
        # False for NaN, too.
        is_valid &= (meters > 0) & (meters <= min(self._max_range, _FARTHEST))
        meters[~is_valid] = _NEAREST
        weights = is_valid.astype(np.float64)
        if self._instances is None:
            inner = slice(SAMPLES // 4, SAMPLES - SAMPLES // 4)
            weights.reshape(count, SAMPLES, SAMPLES)[:, inner, inner] *= CENTER_WEIGHT
        else:
            owners = (
                self._instances[near_row, near_col]
                if self._source == self._camera
                else _pixels(self._instances, cols, rows)
            )
            is_valid &= owners == indices[:, None] + 1
            weights *= is_valid
        is_object = is_valid & _largest_peak(meters, weights)
        seen = np.count_nonzero(is_object, axis=1)
        x, y = deproject(meters, at_col, at_row, self._camera)
        # NaN comes last.
        points = np.sort(np.where(is_object, np.stack([x, y, meters]), np.float32(np.nan)), axis=2)
        low, high = _trimmed(points, seen)
        centers, sizes = (low + high).T / 2, (high - low).T
        whole, every = points[2], np.arange(count)
        last = np.maximum(seen - 1, 0)
        centers[:, 2] = (whole[every, last // 2] + whole[every, seen // 2]) / 2
        ranges = np.stack([whole[:, 0], whole[every, last]], axis=1)
        for each in (centers, sizes, ranges):
            each[seen < MIN_SAMPLES] = np.nan
        return Boxes3D(centers, sizes, ranges)

    def points(self, box: np.ndarray, index: int, near_far: np.ndarray) -> np.ndarray:
        """Return the points of one object, (K, 3) float32 in meters in the optical frame."""
        x, y, width, height, theta = box
        cos, sin = np.cos(theta), np.sin(theta)
        xs, ys = (np.concatenate(hull(box[None])) - 0.5).T
        (left, right), (top, bottom) = _between(xs, ys, self._source, self._camera)
        limit_x, limit_y = self._camera.image_wh
        cols = np.arange(max(int(np.ceil(left)), 0), min(int(right) + 1, limit_x))
        rows = np.arange(max(int(np.ceil(top)), 0), min(int(bottom) + 1, limit_y))
        if not (len(cols) and len(rows)):
            return np.zeros((0, 3), np.float32)
        window = (slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1))
        meters = self._depth.meters(window)
        with np.errstate(invalid='ignore'):
            is_object = (meters >= near_far[0]) & (meters <= near_far[1])
        at_col, at_row = _between(cols[None, :], rows[:, None], self._camera, self._source)
        if self._instances is not None:
            is_object &= _pixels(self._instances, at_col, at_row) == index + 1
        elif theta:
            right_by, down_by = at_col + 0.5 - x, at_row + 0.5 - y
            is_object &= np.abs(cos * right_by + sin * down_by) <= width / 2
            is_object &= np.abs(cos * down_by - sin * right_by) <= height / 2
        in_rows, in_cols = np.nonzero(is_object)
        z = meters[in_rows, in_cols]
        return np.stack([*deproject(z, cols[in_cols], rows[in_rows], self._camera), z], axis=1)


def _between(
    cols: np.ndarray, rows: np.ndarray, one: Intrinsics, other: Intrinsics
) -> tuple[np.ndarray, np.ndarray]:
    """Convert pixels of one camera to those of another at the same place."""
    if one == other:
        return cols, rows
    return (
        (cols - one.cx) * (other.fx / one.fx) + other.cx,
        (rows - one.cy) * (other.fy / one.fy) + other.cy,
    )


def _grid(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples of boxes: columns and rows, (N, SAMPLES * SAMPLES) float64."""
    x, y, width, height, theta = (each[:, None, None] for each in boxes.T)
    cos, sin = np.cos(theta), np.sin(theta)
    steps = (np.arange(SAMPLES) + 0.5) / SAMPLES - 0.5
    across, down = steps * width, steps[:, None] * height
    cols = x - 0.5 + cos * across - sin * down
    rows = y - 0.5 + sin * across + cos * down
    # Boxes are clipped far outside any image, where int32 could overflow.
    shape = len(boxes), SAMPLES * SAMPLES
    return (
        cols.reshape(shape).clip(-1e6, 1e6).astype(np.float32),
        rows.reshape(shape).clip(-1e6, 1e6).astype(np.float32),
    )


def _nearest(
    cols: np.ndarray, rows: np.ndarray, width: int, height: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns and rows of the nearest pixels of an image, and where they are inside it."""
    at_col, at_row = np.rint(cols).astype(np.int32), np.rint(rows).astype(np.int32)
    in_col, in_row = at_col.clip(0, width - 1), at_row.clip(0, height - 1)
    return in_col, in_row, (in_col == at_col) & (in_row == at_row)


def _pixels(image: np.ndarray, cols: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the nearest pixels of an image; 0 outside it."""
    at_col, at_row, is_inside = _nearest(cols, rows, *image.shape[::-1])
    return np.where(is_inside, image[at_row, at_col], 0)


def _largest_peak(meters: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return which samples, (N, K), belong to the peak of their object with the most weight."""
    count = len(meters)
    if not count:
        return np.zeros(meters.shape, bool)
    bins = (np.log(meters / np.float32(_NEAREST)) / np.float32(_BIN)).astype(np.int32)
    # A bin stays empty on both sides, so that no peak crosses from one object to the next.
    bins = bins.clip(1, _BINS - 2) + _BINS * np.arange(count, dtype=np.int32)[:, None]
    counts = np.bincount(bins.ravel(), weights.ravel(), count * _BINS).reshape(count, _BINS)
    smooth = counts.copy()
    smooth[:, 1:] += counts[:, :-1]
    smooth[:, :-1] += counts[:, 1:]
    is_peak = smooth > np.maximum(_MIN_SHARE * counts.sum(axis=1, keepdims=True), 0)
    is_peak[:, [0, -1]] = False
    flat = is_peak.ravel()
    begins = flat.copy()
    begins[1:] &= ~flat[:-1]
    numbers = np.cumsum(begins) * flat  # The number of a bin's peak, from 1; 0 in a gap.
    masses = np.bincount(numbers, counts.ravel())
    masses[0] = -1
    best = numbers.reshape(count, _BINS)[
        np.arange(count), masses[numbers].reshape(count, _BINS).argmax(axis=1)
    ]
    return np.asarray((numbers[bins] == best[:, None]) & (best[:, None] > 0))


def _trimmed(points: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest of (3, N, K) coordinates without the outermost: (3, N)."""
    last = np.maximum(seen - 1, 0)
    trim = np.array([[_TRIM_XY], [_TRIM_XY], [_TRIM_Z]]) * last
    low = np.rint(trim).astype(np.intp)
    high = last - low
    return (
        np.take_along_axis(points, low[..., None], axis=2)[..., 0],
        np.take_along_axis(points, high[..., None], axis=2)[..., 0],
    )
