"""Random outputs of every family of boxes that the kernels decode, with their NumPy heads."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox

BOX = Letterbox.fit((1920, 1080), (640, 640), 'letterbox')
BOX_X = Letterbox.fit((1280, 720), (416, 416), 'letterbox_topleft')
BOX_SMALL = Letterbox.fit((960, 540), (320, 320), 'letterbox')
#: An input that is no multiple of the largest stride.
BOX_WIDE = Letterbox.fit((1280, 720), (208, 336), 'letterbox')
BOX_RAW = Letterbox.fit((1280, 720), (192, 320), 'letterbox')
BOX_POSE = Letterbox.fit((300, 333), (256, 192), 'letterbox')
YOLOV8 = open_as('yolov8', 'head (1, ?, ?)')

Case = tuple[Any, dict[str, np.ndarray], Letterbox]


def case(
    family: str, outputs: dict[str, np.ndarray], letterbox: Letterbox = BOX, **how: Any
) -> Case:
    """Return the head of a family for outputs, float64 rounded to float32, and these."""
    outputs = {
        name: np.ascontiguousarray(value, np.float32 if value.dtype == np.float64 else None)
        for name, value in outputs.items()
    }
    return open_as(family, outputs, hw=letterbox.input_hw, **how), outputs, letterbox


def yolov8_head(anchors=8400, classes=80, *, seed=0, dense=0.02) -> np.ndarray:
    """Random boxes in clusters, so that many overlap; a share of the scores is high."""
    rng = np.random.default_rng(seed)
    clusters = rng.uniform(20, 620, (40, 2))
    center = clusters[rng.integers(0, 40, anchors)] + rng.normal(0, 8, (anchors, 2))
    size = rng.uniform(10, 120, (anchors, 2))
    scores = rng.uniform(0, 0.2, (anchors, classes))
    high = rng.random(anchors) < dense
    scores[high, rng.integers(0, min(classes, 3), high.sum())] = rng.uniform(0.3, 1, high.sum())
    return np.concatenate([center, size, scores], axis=1).T.astype(np.float32)


def yolox_head(input_hw=(416, 416), classes=3, *, seed=0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    anchors = sum((input_hw[0] // s) * (input_hw[1] // s) for s in (8, 16, 32))
    return np.concatenate(
        [
            rng.normal(0, 1, (anchors, 2)),
            rng.normal(1, 0.7, (anchors, 2)),
            rng.uniform(0, 1, (anchors, 1 + classes)),
        ],
        axis=1,
    ).astype(np.float32)


def yolov5_head(*, seed=0) -> np.ndarray:
    raw = yolov8_head(6300, 5, seed=seed, dense=0.3).T
    return np.insert(raw, 4, np.random.default_rng(seed).uniform(0, 1, len(raw)), axis=1)


def finished(*, seed=0, count=300) -> np.ndarray:
    """x1, y1, x2, y2, score, class; best first, the unused rows zero."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 560, (count, 2))
    scores = np.sort(rng.uniform(0, 1, count))[::-1]
    labels = rng.integers(0, 5000, count)
    rows = np.column_stack([corner, corner + rng.uniform(5, 200, (count, 2)), scores, labels])
    rows[-40:] = 0
    rows[7, 5], rows[9, 5] = -1, np.nan
    return rows.astype(np.float32)


def queries(classes, *, seed=0, count=300) -> tuple[np.ndarray, np.ndarray]:
    """Logits (Q, C) and boxes (Q, 4) cx, cy, w, h, 0 to 1."""
    rng = np.random.default_rng(seed)
    found = rng.normal(-3, 2, (count, classes)), rng.uniform(0.02, 0.9, (count, 4))
    return found[0].astype(np.float32), found[1].astype(np.float32)


def of_queries(classes: int, seed: int) -> dict[str, np.ndarray]:
    logits, boxes = queries(classes, seed=seed)
    return {'logits': logits[None], 'boxes': boxes[None]}


#: Metadata of Ultralytics.
RTDETR = {'task': 'detect', 'description': 'Ultralytics rtdetr-l'}


def boxes_and_scores(count=2000, classes=6, *, seed=0, scale=640) -> dict[str, np.ndarray]:
    raw = yolov8_head(count, classes, seed=seed, dense=0.3).T
    center, half = raw[:, :2], raw[:, 2:4] / 2
    xyxy = np.hstack([center - half, center + half]) * scale / 640
    return {'boxes': xyxy[None], 'scores': raw[None, :, 4:]}


def assert_same(got, want, *, pixels=1e-2, scores=1e-6) -> None:
    """Check that two results are equal, of which at least one thing was found."""
    assert len(got) == len(want) > 0
    assert type(got) is type(want)
    if hasattr(want, 'keypoints'):
        np.testing.assert_allclose(got.keypoints, want.keypoints, atol=pixels)
        assert (got.regions is None) == (want.regions is None)
        got, want = got.detections, want.detections
    np.testing.assert_allclose(got.scores, want.scores, rtol=scores)
    assert got.labels.tolist() == want.labels.tolist()
    np.testing.assert_allclose(got.xyxy, want.xyxy, atol=pixels)


def assert_painted(got, want, *, scores=0, share=2e-5) -> None:
    """
    Compare all images; pixels whose probability is 0.5 to within rounding may differ.

    :param share: how many of the pixels.
    """
    assert len(got) == len(want)
    assert got.detections.labels.tolist() == want.detections.labels.tolist()
    np.testing.assert_allclose(got.detections.scores, want.detections.scores, rtol=scores)
    np.testing.assert_allclose(got.detections.xyxy, want.detections.xyxy, atol=1e-3)
    owners, labels = np.arange(1, len(want) + 1, dtype=np.uint16), want.detections.labels + 1
    for values in (owners, labels.astype(np.uint8), labels.astype(np.uint16), 7 * owners):
        painted, expected = got.paint(values), want.paint(values)
        assert (painted.shape, painted.dtype) == (expected.shape, expected.dtype)
        wrong = np.count_nonzero(painted != expected)
        assert wrong <= max(3, share * expected.size), f'{wrong} of {expected.size} pixels'
    assert [mask.shape for mask in got.masks] == [mask.shape for mask in want.masks]
    np.testing.assert_array_equal(got.origins_xy, want.origins_xy)
    for mask, expected in zip(got.masks, want.masks):
        assert np.count_nonzero(mask != expected) <= max(1, 1e-4 * mask.size)


def assert_same_classes(got, want) -> None:
    """Compare class masks; two scores may be equal but for rounding."""
    assert got.labels.dtype == want.labels.dtype
    same = got.labels == want.labels
    assert np.mean(~same) <= 1e-3
    assert (got.confidence is None) == (want.confidence is None)
    if want.confidence is not None:
        assert abs(got.confidence.astype(int) - want.confidence)[same].max() <= 1


def rounded(values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Round to a dtype: as the GPU's memory holds it, and as float32."""
    if dtype == 'float32':
        return values, values
    if dtype == 'float16':
        return values.astype(np.float16), values.astype(np.float16).astype(np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def all_rounded(
    outputs: Mapping[str, np.ndarray], dtype: str
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Round the float32 outputs; see `rounded`."""
    pairs = {
        name: rounded(value, dtype) if value.dtype == np.float32 else (value, value)
        for name, value in outputs.items()
    }
    first, second = ({name: pair[part] for name, pair in pairs.items()} for part in (0, 1))
    return first, second


def scores_by_class(outputs):
    return outputs | {'scores': outputs['scores'].transpose(0, 2, 1)}


def labeled(seed, dtype):
    outputs = boxes_and_scores(classes=1, seed=seed)
    labels = np.random.default_rng(seed).integers(-1, 9, outputs['scores'].shape[:2])
    return outputs | {'scores': outputs['scores'][..., 0], 'labels': labels.astype(dtype)}


def mmdetection(seed: int) -> Case:
    rows = finished(seed=seed)
    labels = np.nan_to_num(rows[:, 5], nan=-1).astype(np.int32)
    return case('mmdetection', {'head': rows[None, :, :5], 'labels': labels[None]})


def tensorflow(seed: int) -> Case:
    rows = finished(seed=seed) / np.array([640] * 4 + [1, 1], np.float32)
    outputs = {
        'detection_boxes': rows[None][..., [1, 0, 3, 2]],
        'detection_scores': rows[None, :, 4],
        'detection_classes': np.nan_to_num(rows[None, :, 5]) % 90,
        'num_detections': np.array([200], np.float32),
    }
    return case('tensorflow', outputs)


def with_objectness(seed: int, family: str) -> Case:
    """Boxes of three anchors per cell: with landmarks before the class, or keypoints behind it."""
    raw, rng = yolov5_head(seed=seed)[:, :6], np.random.default_rng(seed)
    extras, values = (10, 2) if family == 'yolov5_face' else (51, 3)
    points = rng.uniform(0, 640, (len(raw), extras))
    points[:, values - 1 :: values] = rng.uniform(0, 1, points[:, values - 1 :: values].shape)
    parts = [raw[:, :5], points, raw[:, 5:]] if values == 2 else [raw, points]
    return case(family, {'head': np.hstack(parts)[None]}, BOX_SMALL)


def raw_yolo(seed: int, classes: int, family: str) -> Case:
    rng, (height, width) = np.random.default_rng(seed), BOX_RAW.input_hw
    outputs = {}
    for name, stride in (('fine', 8), ('middle', 16), ('coarse', 32)):
        values = rng.normal(0, 1, (1, 3, height // stride, width // stride, 5 + classes))
        values[..., 4] = rng.normal(-1, 2, values.shape[:-1])
        outputs[name] = values
    return case(family, outputs, BOX_RAW)


def cells(letterbox: Letterbox, strides: tuple[int, ...]) -> list[int]:
    """Count the cells of each stride, also those that the input only begins."""
    height, width = letterbox.input_hw
    return [-(-height // stride) * -(-width // stride) for stride in strides]


def some_scores(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Scores of which one in five is above 0.2."""
    high = rng.random(shape) < 0.2
    return np.where(high, rng.uniform(0.2, 1, shape), rng.uniform(0, 0.2, shape))


def distributions(
    seed: int, bins: int, strides: tuple[int, ...], family: str, *, is_one: bool
) -> Case:
    rng, classes = np.random.default_rng(seed), 3
    outputs = {}
    for kind, size in (('scores', classes), ('sides', 4 * bins)):
        for stride, count in zip(strides, cells(BOX_WIDE, strides)):
            values = some_scores(rng, 1, count, size)
            if kind == 'sides':
                values = rng.normal(0, 2, (1, count, size))
            outputs[f'{kind}_{stride}'] = values
    if is_one:
        each = list(outputs.values())
        parts = [np.concatenate(each[: len(strides)], 1), np.concatenate(each[len(strides) :], 1)]
        outputs = {'head': np.concatenate(parts, axis=2)}
    return case(family, outputs, BOX_WIDE, class_count=classes)


def per_stride(rng: np.random.Generator, per_cell: int, **sizes: int) -> dict[str, np.ndarray]:
    """Outputs of faces: scores, objectness, boxes or landmarks at three strides."""
    found = {}
    for kind, size in sizes.items():
        for stride, count in zip((8, 16, 32), cells(BOX_WIDE, (8, 16, 32))):
            shape = (1, count * per_cell, size)
            values = rng.normal(1, 1, shape) if size > 1 else some_scores(rng, *shape)
            found[f'{kind}_{stride}'] = values
    return found


def scrfd(seed: int, *, is_batched: bool = True) -> Case:
    outputs = per_stride(np.random.default_rng(seed), 2, scores=1, boxes=4, points=10)
    if not is_batched:
        outputs = {name: value[0] for name, value in outputs.items()}
    return case('scrfd', outputs, BOX_WIDE)


def yunet(seed: int) -> Case:
    outputs = per_stride(np.random.default_rng(seed), 1, cls=1, obj=1, bbox=4, kps=10)
    return case('yunet', outputs, BOX_WIDE)


def retinaface(seed: int) -> Case:
    rng, count = np.random.default_rng(seed), 2 * sum(cells(BOX_WIDE, (8, 16, 32)))
    outputs = {
        'boxes': rng.normal(0, 1, (1, count, 4)),
        'scores': some_scores(rng, 1, count, 2),
        'points': rng.normal(0, 1, (1, count, 10)),
    }
    return case('retinaface', outputs, BOX_WIDE)


def with_points(seed: int, family: str, count: int, values: int, letterbox: Letterbox) -> Case:
    """Boxes in pixels of the input, keypoints behind them, and logits: those of MediaPipe."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 20, (1, count, values))
    rows[..., 2:4] = rng.uniform(10, 80, (1, count, 2))
    return case(family, {'rows': rows, 'logits': rng.normal(-2, 2, (1, count, 1))}, letterbox)


def palm(seed: int) -> Case:
    fine, coarse = cells(BOX_WIDE, (8, 16))
    return with_points(seed, 'mediapipe_palm', 2 * fine + 6 * coarse, 18, BOX_WIDE)


def blazeface(seed: int) -> Case:
    box = Letterbox.fit((640, 480), (128, 128), 'letterbox')
    return with_points(seed, 'blazeface', 896, 16, box)


def yunet_2022(seed: int) -> Case:
    rng, wide = np.random.default_rng(seed), Letterbox.fit((1280, 720), (192, 320), 'stretch')
    count = sum(24 * 40 // 4**level * anchors for level, anchors in enumerate((3, 2, 2, 3)))
    outputs = {
        'loc': rng.normal(0, 1, (count, 14)),
        'conf': some_scores(rng, count, 2),
        'iou': rng.uniform(-0.3, 1.3, (count, 1)),
    }
    return case('yunet_2022', outputs, wide)


def centerface(seed: int) -> Case:
    rng, shape = np.random.default_rng(seed), (52, 84)
    sizes = (('538', 2), ('539', 2), ('540', 10))
    outputs = {name: rng.normal(size=(1, values, *shape)) for name, values in sizes}
    return case('centerface', {'537': some_scores(rng, 1, 1, *shape), **outputs}, BOX_WIDE)


def fastestdet(seed: int) -> Case:
    rng, shape = np.random.default_rng(seed), (13, 21)
    outputs = {'out': some_scores(rng, 1, 8, *shape)}
    outputs['out'][:, 1:5] = rng.normal(-1, 1, (1, 4, *shape))
    return case('fastestdet', outputs, BOX_WIDE)


def detectnet(seed: int) -> Case:
    rng, shape = np.random.default_rng(seed), (13, 21)
    boxes = rng.uniform(0.1, 2, (1, 12, *shape))
    outputs = {'scores': some_scores(rng, 1, 3, *shape), 'boxes': boxes}
    return case('detectnet_v2', outputs, BOX_WIDE)


def centernet(seed: int, *, is_whole: bool = True) -> Case:
    """Return logits, sizes and offsets; or probabilities and sizes."""
    rng, shape = np.random.default_rng(seed), (52, 84)
    heat = rng.normal(-1, 2, (1, 3, *shape)) if is_whole else some_scores(rng, 1, 3, *shape)
    outputs = {
        'scores': np.round(heat, 1),  # Neighbors of the same height.
        'sizes': rng.uniform(1, 20, (1, 2, *shape)),
    }
    if is_whole:
        outputs['offsets'] = rng.uniform(0, 1, (1, 2, *shape))
    return case('centernet', outputs, BOX_WIDE)


def rfdetr_seg(seed: int, image_wh: tuple[int, int] = (160, 121)) -> Case:
    """Blobs as masks, one of them empty; the best one has cells that are not finite."""
    rng, count = np.random.default_rng(seed), 60
    logits, boxes = queries(4, seed=seed, count=count)
    boxes[:, :2] = boxes[:, :2] / 2 + 0.25
    coarse = rng.normal(-1, 3, (count, 9, 9)).repeat(12, axis=1).repeat(12, axis=2)
    masks = coarse + rng.normal(0, 0.2, coarse.shape)
    best, second = np.argsort(-logits.max(axis=1))[:2]
    masks[best, 30:33, 40:50] = np.array([np.nan, np.inf, -np.inf])[:, None]
    masks[second] = -5
    outputs = {'labels': logits[None] + 2, 'dets': boxes[None], 'masks': masks[None]}
    return case('rfdetr_seg', outputs, Letterbox.fit(image_wh, (432, 432), 'stretch'))


def maskformer(
    seed: int, image_wh: tuple[int, int] = (97, 61), classes: int = 70, *, confidence: bool = True
) -> Case:
    """Blobs of classes, some of several queries."""
    rng, count, grid = np.random.default_rng(seed), 21, (9, 13)
    masks = rng.normal(-6, 4, (1, count, *grid))
    logits = rng.normal(0, 1, (1, count, classes + 1)).astype(np.float32)
    logits[0, np.arange(count), rng.integers(0, classes, count)] += 5
    letterbox = Letterbox.fit(image_wh, (36, 52), 'stretch')
    head, outputs, _ = case('maskformer', {'logits': logits, 'masks': masks}, letterbox)
    return head.with_confidence() if confidence else head, outputs, letterbox


def toy(seed: int) -> Case:
    rng, (count,) = np.random.default_rng(seed), cells(BOX_WIDE, (16,))
    rows = rng.normal(-1, 2, (1, count, 8))
    rows[..., :4] = rng.uniform(0, 5, (1, count, 4))
    return case('toy', {'toy_boxes': rows}, BOX_WIDE)


def crowd() -> Case:
    """More candidates than are sorted at once, which nearly all suppress each other."""
    rng, letterbox = np.random.default_rng(0), Letterbox.fit((1024, 1024), (1024, 1024), 'stretch')
    rows = []
    for stride in (8, 16, 32):
        count = (1024 // stride) ** 2
        sizes = np.log(rng.uniform(400, 700, (count, 2)) / stride)
        rows.append(np.hstack([rng.uniform(0, 1, (count, 2)), sizes]))
    boxes = np.concatenate(rows)
    scores = np.hstack([np.ones((len(boxes), 1)), rng.uniform(0.3, 1, (len(boxes), 1))])
    return case('yolox', {'head': np.hstack([boxes, scores])[None]}, letterbox)


def spoiled(outputs: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Put NaN and both infinities at random places of every output of floats."""
    rng, found = np.random.default_rng(seed), {}
    for name, value in outputs.items():
        found[name] = value.copy()
        if value.dtype.kind == 'f' and value.size > 1:
            places = rng.choice(value.size, min(30, value.size // 4), replace=False)
            found[name].flat[places] = np.resize([np.nan, np.inf, -np.inf], len(places))
    return found


def heatmaps(seed: int, count: int = 17) -> Case:
    """Blobs between the cells, some on edges, one map of equal values."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:64, :48]
    x, y = rng.uniform(-0.5, 47.5, count), rng.uniform(-0.5, 63.5, count)
    squares = (columns[None] - x[:, None, None]) ** 2 + (rows[None] - y[:, None, None]) ** 2
    planes = rng.uniform(0.2, 1.2, (count, 1, 1)) * np.exp(-squares / 6)
    planes += rng.normal(0, 0.01, planes.shape)
    planes[-1] = 0.25
    return case('heatmap_pose', {'heatmaps': planes[None]}, BOX_POSE)


def simcc(seed: int) -> Case:
    rng, sizes = np.random.default_rng(seed), {'x': 192, 'y': 256}
    bins = {name: rng.uniform(-0.1, 1.1, (1, 17, 2 * size)) for name, size in sizes.items()}
    # Equal scores: the first one counts.
    return case('simcc', {key: np.round(value, 2) for key, value in bins.items()}, BOX_POSE)


def hand(seed: int, names: tuple[str, ...] = ('score', 'side')) -> Case:
    rng = np.random.default_rng(seed)
    found = {'points': rng.uniform(-20, 240, (1, 63))}
    found |= {name: rng.uniform(0, 1, (1, 1)) for name in names}
    return case('mediapipe_hand', found, Letterbox.fit((640, 480), (224, 224), 'letterbox'))


def pfld(seed: int) -> Case:
    letterbox = Letterbox.fit((640, 480), (112, 112), 'stretch')
    values = np.random.default_rng(seed).uniform(-0.1, 1.1, (1, 196))
    return case('pfld', {'landmarks': values}, letterbox)


def movenet(seed: int, *, is_one: bool = True) -> Case:
    rng = np.random.default_rng(seed)
    found = rng.uniform(-0.1, 1.1, (1, 1, 17, 3) if is_one else (1, 6, 56)).astype(np.float32)
    if is_one:
        found[..., 2] = np.clip(found[..., 2], 0, 1)
        return case('movenet', {'output_0': found}, BOX_WIDE)
    found[..., 2:51:3] = rng.uniform(0, 1, (1, 6, 17))
    found[..., 51:53] = rng.uniform(0, 0.5, (1, 6, 2))
    found[..., 53:55] = found[..., 51:53] + rng.uniform(0.1, 0.5, (1, 6, 2))
    found[..., 55] = np.round(rng.uniform(0.4, 1, (1, 6)), 1)
    return case('movenet', {'output_0': found}, BOX_WIDE)


def ufld(seed: int) -> Case:
    """Lanes side by side, of which "no lane" wins in some rows."""
    rng, letterbox = np.random.default_rng(seed), Letterbox.fit((1640, 590), (288, 800), 'stretch')
    rows, lanes = 18, 4
    logits = rng.normal(0, 1, (1, 201, rows, lanes))
    for lane in range(lanes):
        logits[0, 40 * lane + rng.integers(0, 5, rows) + 20, np.arange(rows), lane] += 8
        logits[0, -1, :, lane] += rng.normal(3, 4, rows)
    return case('ufld', {'out': logits}, letterbox)


def ufld_v2(seed: int, data: str = 'culane') -> Case:
    """Lanes whose best cell may be the first or the last one, and equal cells."""
    rng = np.random.default_rng(seed)
    rows, columns, fraction = {'culane': (72, 81, 0.6), 'tusimple': (56, 41, 0.8)}[data]
    letterbox = Letterbox.fit((1640, 590), (320, 1600), 'bottom_crop', crop_fraction=fraction)
    found = {}
    for name, cells, count in (('loc_row', 200, rows), ('loc_col', 100, columns)):
        found[name] = np.round(rng.normal(0, 2, (1, cells, count, 4)), 1)
    for name, count in (('exist_row', rows), ('exist_col', columns)):
        logits = rng.normal(0, 2, (1, 2, count, 4))
        logits[:, 1] += 1.5
        found[name] = logits
    return case(f'ufld_v2_{data}', found, letterbox)


def lstr(seed: int) -> Case:
    count = 20
    rng, letterbox = np.random.default_rng(seed), Letterbox.fit((1280, 720), (360, 640), 'stretch')
    curves = np.column_stack(
        [
            *(rng.uniform(low, high, count) for low, high in ((0.3, 0.5), (0.7, 1.1))),
            rng.normal(0, 0.02, count),
            rng.uniform(-1, 0, count),
            rng.normal(0, 0.05, count),
            rng.uniform(0.2, 0.8, count),
            rng.normal(0, 0.5, (2, count)).T,
        ]
    )
    logits = rng.normal(0, 1, (count, 3)) + np.array([0, 1.5, 0])
    outputs = {'pred_logits': logits[None], 'pred_curves': curves[None]}
    return case('lstr', outputs, letterbox)


def ultralytics_rtdetr(seed: int) -> Case:
    scores = np.random.default_rng(seed).uniform(0, 1, (300, 7))
    return case('rtdetr', {'head': np.hstack([queries(7, seed=seed)[1], scores])[None]}, **RTDETR)


#: By name: function of a seed that returns the head, its outputs and the letterbox.
CASES = {
    'yolov8': lambda seed: case('yolov8', {'head': yolov8_head(seed=seed, dense=0.1)[None]}),
    'yolov8, channels last': lambda seed: case(
        'yolov8', {'head': yolov8_head(seed=seed, dense=0.1).T[None]}
    ),
    'yolox': lambda seed: case('yolox', {'head': yolox_head(seed=seed)[None]}, BOX_X),
    'yolov5': lambda seed: case('yolov5', {'head': yolov5_head(seed=seed)[None]}),
    'yolov7 of one class': lambda seed: case(
        'yolov5', {'head': yolov5_head(seed=seed)[None, :, :6]}
    ),
    'yolov10': lambda seed: case('yolov10', {'head': finished(seed=seed)[None]}),
    'rtdetr of ultralytics, finished': lambda seed: case(
        'rtdetr',
        {'head': finished(seed=seed)[None] / np.array([640] * 4 + [1, 1], np.float32)},
        **{**RTDETR, 'head': 'RTDETRDecoder'},
    ),
    'rtdetr': lambda seed: case('rtdetr', of_queries(80, seed)),
    'rfdetr of C classes and none': lambda seed: case(
        'rfdetr', of_queries(8, seed), class_count=7
    ),
    'rtdetr of ultralytics, scores': ultralytics_rtdetr,
    'detr': lambda seed: case('detr', of_queries(92, seed)),
    'boxes': lambda seed: case('boxes', boxes_and_scores(seed=seed)),
    'boxes_normalised': lambda seed: case(
        'boxes_normalised', boxes_and_scores(seed=seed, scale=1)
    ),
    'ssd': lambda seed: case('ssd', boxes_and_scores(seed=seed, scale=1)),
    'boxes with scores by class': lambda seed: case(
        'ppyoloe', scores_by_class(boxes_and_scores(seed=seed))
    ),
    'boxes with labels': lambda seed: case('boxes', labeled(seed, np.int64)),
    'boxes with labels as numbers': lambda seed: case('boxes', labeled(seed, np.float32)),
    'efficient_nms': lambda seed: case(
        'efficient_nms', labeled(seed, np.int32) | {'count': np.array([[700]], np.int32)}
    ),
    'without a batch': lambda seed: case(
        'boxes', {name: value[0] for name, value in labeled(seed, np.int64).items()}
    ),
    'mmdetection': mmdetection,
    'tensorflow': tensorflow,
    'paddle': lambda seed: case('ppyoloe', {'head': finished(seed=seed)[:, [5, 4, 0, 1, 2, 3]]}),
    'yolov5_face': partial(with_objectness, family='yolov5_face'),
    'yolov7_pose': partial(with_objectness, family='yolov7_pose'),
    'yolov5_raw': partial(raw_yolo, classes=4, family='yolov5_raw'),
    'yolov7_raw of one class': partial(raw_yolo, classes=1, family='yolov7_raw'),
    'nanodet_plus': partial(
        distributions, bins=8, strides=(8, 16, 32, 64), family='nanodet_plus', is_one=True
    ),
    'nanodet of 11 bins': partial(
        distributions, bins=11, strides=(8, 16, 32), family='nanodet', is_one=True
    ),
    'picodet': partial(
        distributions, bins=8, strides=(8, 16, 32, 64), family='picodet', is_one=False
    ),
    'scrfd': scrfd,
    'scrfd without a batch': partial(scrfd, is_batched=False),
    'yunet': yunet,
    'retinaface': retinaface,
    'mediapipe_palm': palm,
    'yunet_2022': yunet_2022,
    'centerface': centerface,
    'blazeface': blazeface,
    'fastestdet': fastestdet,
    'detectnet_v2': detectnet,
    'centernet': centernet,
    'centernet of probabilities, without offsets': partial(centernet, is_whole=False),
    'the family of docs/adding_a_decoder.md': toy,
    'movenet of people': partial(movenet, is_one=False),
    'ufld': ufld,
    'ufld_v2_culane': ufld_v2,
    'ufld_v2_tusimple': partial(ufld_v2, data='tusimple'),
    'lstr': lstr,
}

#: Likewise, of the one object that the input shows, whatever the score.
POINT_CASES = {
    'heatmap_pose': heatmaps,
    'simcc': simcc,
    'mediapipe_hand': hand,
    'pfld': pfld,
    'mediapipe_hand without a side': partial(hand, names=('score',)),
    'movenet': movenet,
}
