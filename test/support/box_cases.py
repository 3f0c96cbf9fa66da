"""Random outputs of every family of boxes that the kernels decode, with their NumPy heads."""

from collections.abc import Mapping
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
YOLOV8 = open_as('yolov8', 'head (1, ?, ?)')

Case = tuple[Any, dict[str, np.ndarray], Letterbox]


def case(
    family: str, outputs: dict[str, np.ndarray], letterbox: Letterbox = BOX, **how: Any
) -> Case:
    """Return the head of a family for outputs, and these."""
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
    return (
        rng.normal(-3, 2, (count, classes)).astype(np.float32),
        rng.uniform(0.02, 0.9, (count, 4)).astype(np.float32),
    )


def of_queries(classes: int, seed: int) -> dict[str, np.ndarray]:
    logits, boxes = queries(classes, seed=seed)
    return {'logits': logits[None], 'boxes': boxes[None]}


#: Metadata of Ultralytics.
RTDETR = {'task': 'detect', 'description': 'Ultralytics rtdetr-l'}


def boxes_and_scores(count=2000, classes=6, *, seed=0, scale=640) -> dict[str, np.ndarray]:
    raw = yolov8_head(count, classes, seed=seed, dense=0.3).T
    center, half = raw[:, :2], raw[:, 2:4] / 2
    xyxy = np.hstack([center - half, center + half]) * scale / 640
    return {'boxes': xyxy[None], 'scores': np.ascontiguousarray(raw[None, :, 4:])}


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


def scores_by_class(outputs):
    return outputs | {'scores': np.ascontiguousarray(outputs['scores'].transpose(0, 2, 1))}


def labeled(seed, dtype):
    outputs = boxes_and_scores(classes=1, seed=seed)
    labels = np.random.default_rng(seed).integers(-1, 9, outputs['scores'].shape[:2])
    return {
        'boxes': outputs['boxes'],
        'scores': outputs['scores'][..., 0],
        'labels': labels.astype(dtype),
    }


def mmdetection(seed: int) -> Case:
    rows = finished(seed=seed)
    labels = np.nan_to_num(rows[:, 5], nan=-1).astype(np.int32)
    return case('mmdetection', {'head': rows[None, :, :5].copy(), 'labels': labels[None]})


def tensorflow(seed: int) -> Case:
    rows = finished(seed=seed) / np.array([640] * 4 + [1, 1], np.float32)
    outputs = {
        'detection_boxes': rows[None][..., [1, 0, 3, 2]],
        'detection_scores': rows[None, :, 4].copy(),
        'detection_classes': np.nan_to_num(rows[None, :, 5]) % 90,
        'num_detections': np.array([200], np.float32),
    }
    outputs = {name: np.ascontiguousarray(value) for name, value in outputs.items()}
    return case('tensorflow', outputs)


def paddle(seed: int) -> np.ndarray:
    return np.ascontiguousarray(finished(seed=seed)[:, [5, 4, 0, 1, 2, 3]])


def with_objectness(seed: int, family: str) -> Case:
    """Boxes of three anchors per cell: with landmarks before the class, or keypoints behind it."""
    raw, rng = yolov5_head(seed=seed)[:, :6], np.random.default_rng(seed)
    extras, values = (10, 2) if family == 'yolov5_face' else (51, 3)
    points = rng.uniform(0, 640, (len(raw), extras))
    points[:, values - 1 :: values] = rng.uniform(0, 1, points[:, values - 1 :: values].shape)
    parts = [raw[:, :5], points, raw[:, 5:]] if values == 2 else [raw, points]
    return case(family, {'head': np.hstack(parts)[None].astype(np.float32)}, BOX_SMALL)


def raw_yolo(seed: int, classes: int, family: str) -> Case:
    rng, (height, width) = np.random.default_rng(seed), BOX_RAW.input_hw
    outputs = {}
    for name, stride in (('fine', 8), ('middle', 16), ('coarse', 32)):
        values = rng.normal(0, 1, (1, 3, height // stride, width // stride, 5 + classes))
        values[..., 4] = rng.normal(-1, 2, values.shape[:-1])
        outputs[name] = values.astype(np.float32)
    return case(family, outputs, BOX_RAW)


def cells(letterbox: Letterbox, strides: tuple[int, ...]) -> list[int]:
    """Count the cells of each stride, also those that the input only begins."""
    height, width = letterbox.input_hw
    return [-(-height // stride) * -(-width // stride) for stride in strides]


def some_scores(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Scores of which one in five is above 0.2."""
    high = rng.random(shape) < 0.2
    return np.where(high, rng.uniform(0.2, 1, shape), rng.uniform(0, 0.2, shape)).astype(
        np.float32
    )


def distributions(
    seed: int, bins: int, strides: tuple[int, ...], family: str, *, is_one: bool
) -> Case:
    rng, classes = np.random.default_rng(seed), 3
    outputs = {}
    for kind, size in (('scores', classes), ('sides', 4 * bins)):
        for stride, count in zip(strides, cells(BOX_WIDE, strides)):
            values = some_scores(rng, 1, count, size)
            if kind == 'sides':
                values = rng.normal(0, 2, (1, count, size)).astype(np.float32)
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
            found[f'{kind}_{stride}'] = values.astype(np.float32)
    return found


def scrfd(seed: int, *, is_batched: bool) -> Case:
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
        'boxes': rng.normal(0, 1, (1, count, 4)).astype(np.float32),
        'scores': some_scores(rng, 1, count, 2),
        'points': rng.normal(0, 1, (1, count, 10)).astype(np.float32),
    }
    return case('retinaface', outputs, BOX_WIDE)


def palm(seed: int) -> Case:
    rng, (fine, coarse) = np.random.default_rng(seed), cells(BOX_WIDE, (8, 16))
    count = 2 * fine + 6 * coarse
    rows = rng.normal(0, 20, (1, count, 18))
    rows[..., 2:4] = rng.uniform(10, 80, (1, count, 2))
    logits = rng.normal(-2, 2, (1, count, 1))
    outputs = {'rows': rows.astype(np.float32), 'logits': logits.astype(np.float32)}
    return case('mediapipe_palm', outputs, BOX_WIDE)


def yunet_2022(seed: int) -> Case:
    rng, wide = np.random.default_rng(seed), Letterbox.fit((1280, 720), (192, 320), 'stretch')
    count = sum(24 * 40 // 4**level * anchors for level, anchors in enumerate((3, 2, 2, 3)))
    outputs = {
        'loc': rng.normal(0, 1, (count, 14)).astype(np.float32),
        'conf': some_scores(rng, count, 2),
        'iou': rng.uniform(-0.3, 1.3, (count, 1)).astype(np.float32),
    }
    return case('yunet_2022', outputs, wide)


def centerface(seed: int) -> Case:
    rng, shape = np.random.default_rng(seed), (52, 84)
    outputs = {
        name: rng.normal(size=(1, values, *shape)).astype(np.float32)
        for name, values in (('538', 2), ('539', 2), ('540', 10))
    }
    return case('centerface', {'537': some_scores(rng, 1, 1, *shape), **outputs}, BOX_WIDE)


def blazeface(seed: int) -> Case:
    rng, box = np.random.default_rng(seed), Letterbox.fit((640, 480), (128, 128), 'letterbox')
    rows = rng.normal(0, 20, (1, 896, 16))
    rows[..., 2:4] = rng.uniform(10, 80, (1, 896, 2))
    logits = rng.normal(-2, 2, (1, 896, 1))
    outputs = {'rows': rows.astype(np.float32), 'logits': logits.astype(np.float32)}
    return case('blazeface', outputs, box)


def fastestdet(seed: int) -> Case:
    rng, shape = np.random.default_rng(seed), (13, 21)
    outputs = {'out': some_scores(rng, 1, 8, *shape)}
    outputs['out'][:, 1:5] = rng.normal(-1, 1, (1, 4, *shape))
    return case('fastestdet', outputs, BOX_WIDE)


def detectnet(seed: int) -> Case:
    rng, shape = np.random.default_rng(seed), (13, 21)
    boxes = rng.uniform(0.1, 2, (1, 12, *shape)).astype(np.float32)
    outputs = {'scores': some_scores(rng, 1, 3, *shape), 'boxes': boxes}
    return case('detectnet_v2', outputs, BOX_WIDE)


def centernet(seed: int, *, are_logits: bool, has_offsets: bool) -> Case:
    rng, shape = np.random.default_rng(seed), (52, 84)
    heat = rng.normal(-1, 2, (1, 3, *shape)) if are_logits else some_scores(rng, 1, 3, *shape)
    heat = np.round(heat, 1)  # Neighbors of the same height.
    outputs = {
        'scores': heat.astype(np.float32),
        'sizes': rng.uniform(1, 20, (1, 2, *shape)).astype(np.float32),
        'offsets': rng.uniform(0, 1, (1, 2, *shape)).astype(np.float32),
    }
    if not has_offsets:
        del outputs['offsets']
    return case('centernet', outputs, BOX_WIDE)


def rfdetr_seg(seed: int, image_wh: tuple[int, int] = (160, 121)) -> Case:
    """Blobs as masks, one of them empty; the best one has cells that are not finite."""
    rng, count, letterbox = (
        np.random.default_rng(seed),
        60,
        Letterbox.fit(image_wh, (432, 432), 'stretch'),
    )
    logits, boxes = queries(4, seed=seed, count=count)
    boxes[:, :2] = boxes[:, :2] / 2 + 0.25
    coarse = rng.normal(-1, 3, (count, 9, 9)).repeat(12, axis=1).repeat(12, axis=2)
    masks = coarse + rng.normal(0, 0.2, coarse.shape)
    best, second = np.argsort(-logits.max(axis=1))[:2]
    masks[best, 30:33, 40:50] = np.array([np.nan, np.inf, -np.inf])[:, None]
    masks[second] = -5
    outputs = {'labels': logits + 2, 'dets': boxes, 'masks': masks}
    return case(
        'rfdetr_seg',
        {name: value[None].astype(np.float32) for name, value in outputs.items()},
        letterbox,
    )


def maskformer(
    seed: int, image_wh: tuple[int, int] = (97, 61), classes: int = 70, *, confidence: bool = True
) -> Case:
    """Blobs of classes, some of several queries."""
    rng, count, grid = np.random.default_rng(seed), 21, (9, 13)
    masks = rng.normal(-6, 4, (1, count, *grid)).astype(np.float32)
    logits = rng.normal(0, 1, (1, count, classes + 1)).astype(np.float32)
    logits[0, np.arange(count), rng.integers(0, classes, count)] += 5
    letterbox = Letterbox.fit(image_wh, (36, 52), 'stretch')
    head, outputs, _ = case('maskformer', {'logits': logits, 'masks': masks}, letterbox)
    return head.with_confidence() if confidence else head, outputs, letterbox


def toy(seed: int) -> Case:
    rng, (count,) = np.random.default_rng(seed), cells(BOX_WIDE, (16,))
    rows = rng.normal(-1, 2, (1, count, 8))
    rows[..., :4] = rng.uniform(0, 5, (1, count, 4))
    return case('toy', {'toy_boxes': rows.astype(np.float32)}, BOX_WIDE)


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
    return case('yolox', {'head': np.hstack([boxes, scores])[None].astype(np.float32)}, letterbox)


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
    rng, letterbox = (
        np.random.default_rng(seed),
        Letterbox.fit((300, 333), (256, 192), 'letterbox'),
    )
    rows, columns = np.mgrid[:64, :48]
    x, y = rng.uniform(-0.5, 47.5, count), rng.uniform(-0.5, 63.5, count)
    squares = (columns[None] - x[:, None, None]) ** 2 + (rows[None] - y[:, None, None]) ** 2
    planes = rng.uniform(0.2, 1.2, (count, 1, 1)) * np.exp(-squares / 6)
    planes += rng.normal(0, 0.01, planes.shape)
    planes[-1] = 0.25
    return case('heatmap_pose', {'heatmaps': planes[None].astype(np.float32)}, letterbox)


def simcc(seed: int) -> Case:
    rng, letterbox = (
        np.random.default_rng(seed),
        Letterbox.fit((300, 333), (256, 192), 'letterbox'),
    )
    bins = {
        name: rng.uniform(-0.1, 1.1, (1, 17, 2 * size)) for name, size in zip('xy', (192, 256))
    }
    # Equal scores: the first one counts.
    return case(
        'simcc',
        {key: np.round(value, 2).astype(np.float32) for key, value in bins.items()},
        letterbox,
    )


def hand(seed: int, outputs: int) -> Case:
    rng, letterbox = (
        np.random.default_rng(seed),
        Letterbox.fit((640, 480), (224, 224), 'letterbox'),
    )
    found = {
        'points': rng.uniform(-20, 240, (1, 63)).astype(np.float32),
        'score': rng.uniform(0, 1, (1, 1)).astype(np.float32),
        'side': rng.uniform(0, 1, (1, 1)).astype(np.float32),
    }
    return case('mediapipe_hand', dict(list(found.items())[:outputs]), letterbox)


def pfld(seed: int) -> Case:
    letterbox = Letterbox.fit((640, 480), (112, 112), 'stretch')
    values = np.random.default_rng(seed).uniform(-0.1, 1.1, (1, 196))
    return case('pfld', {'landmarks': values.astype(np.float32)}, letterbox)


def movenet(seed: int, *, is_one: bool) -> Case:
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


def ufld(seed: int, rows: int = 18, lanes: int = 4) -> Case:
    """Lanes side by side, of which "no lane" wins in some rows."""
    rng, letterbox = np.random.default_rng(seed), Letterbox.fit((1640, 590), (288, 800), 'stretch')
    logits = rng.normal(0, 1, (1, 201, rows, lanes))
    for lane in range(lanes):
        logits[0, 40 * lane + rng.integers(0, 5, rows) + 20, np.arange(rows), lane] += 8
        logits[0, -1, :, lane] += rng.normal(3, 4, rows)
    return case('ufld', {'out': logits.astype(np.float32)}, letterbox)


def ufld_v2(seed: int, data: str = 'culane') -> Case:
    """Lanes whose best cell may be the first or the last one, and equal cells."""
    rng = np.random.default_rng(seed)
    rows, columns, fraction = {'culane': (72, 81, 0.6), 'tusimple': (56, 41, 0.8)}[data]
    letterbox = Letterbox.fit((1640, 590), (320, 1600), 'bottom_crop', crop_fraction=fraction)
    found = {}
    for name, cells, count in (('loc_row', 200, rows), ('loc_col', 100, columns)):
        found[name] = np.round(rng.normal(0, 2, (1, cells, count, 4)), 1).astype(np.float32)
    for name, count in (('exist_row', rows), ('exist_col', columns)):
        logits = rng.normal(0, 2, (1, 2, count, 4))
        logits[:, 1] += 1.5
        found[name] = logits.astype(np.float32)
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
    outputs = {'pred_logits': logits, 'pred_curves': curves}
    return case(
        'lstr', {key: value[None].astype(np.float32) for key, value in outputs.items()}, letterbox
    )


#: By name: function of a seed that returns the head, its outputs and the letterbox.
CASES = {
    'yolov8': lambda seed: case('yolov8', {'head': yolov8_head(seed=seed, dense=0.1)[None]}),
    'yolov8, channels last': lambda seed: case(
        'yolov8', {'head': np.ascontiguousarray(yolov8_head(seed=seed, dense=0.1).T)[None]}
    ),
    'yolox': lambda seed: case('yolox', {'head': yolox_head(seed=seed)[None]}, BOX_X),
    'yolov5': lambda seed: case('yolov5', {'head': yolov5_head(seed=seed)[None]}),
    'yolov7 of one class': lambda seed: case(
        'yolov5', {'head': yolov5_head(seed=seed)[None, :, :6].copy()}
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
    'rtdetr of ultralytics, scores': lambda seed: case(
        'rtdetr',
        {
            'head': np.hstack(
                [
                    queries(7, seed=seed)[1],
                    np.random.default_rng(seed).uniform(0, 1, (300, 7)).astype(np.float32),
                ]
            )[None]
        },
        **RTDETR,
    ),
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
    'mmdetection': lambda seed: mmdetection(seed),
    'tensorflow': lambda seed: tensorflow(seed),
    'paddle': lambda seed: case('ppyoloe', {'head': paddle(seed)}),
    'yolov5_face': lambda seed: with_objectness(seed, 'yolov5_face'),
    'yolov7_pose': lambda seed: with_objectness(seed, 'yolov7_pose'),
    'yolov5_raw': lambda seed: raw_yolo(seed, 4, 'yolov5_raw'),
    'yolov7_raw of one class': lambda seed: raw_yolo(seed, 1, 'yolov7_raw'),
    'nanodet_plus': lambda seed: distributions(
        seed, 8, (8, 16, 32, 64), 'nanodet_plus', is_one=True
    ),
    'nanodet of 11 bins': lambda seed: distributions(
        seed, 11, (8, 16, 32), 'nanodet', is_one=True
    ),
    'picodet': lambda seed: distributions(seed, 8, (8, 16, 32, 64), 'picodet', is_one=False),
    'scrfd': lambda seed: scrfd(seed, is_batched=True),
    'scrfd without a batch': lambda seed: scrfd(seed, is_batched=False),
    'yunet': lambda seed: yunet(seed),
    'retinaface': lambda seed: retinaface(seed),
    'mediapipe_palm': lambda seed: palm(seed),
    'yunet_2022': yunet_2022,
    'centerface': centerface,
    'blazeface': blazeface,
    'fastestdet': fastestdet,
    'detectnet_v2': lambda seed: detectnet(seed),
    'centernet': lambda seed: centernet(seed, are_logits=True, has_offsets=True),
    'centernet of probabilities, without offsets': lambda seed: centernet(
        seed, are_logits=False, has_offsets=False
    ),
    'the family of docs/adding_a_decoder.md': toy,
    'movenet of people': lambda seed: movenet(seed, is_one=False),
    'ufld': ufld,
    'ufld_v2_culane': ufld_v2,
    'ufld_v2_tusimple': lambda seed: ufld_v2(seed, 'tusimple'),
    'lstr': lstr,
}

#: Likewise, of the one object that the input shows, whatever the score.
POINT_CASES = {
    'heatmap_pose': heatmaps,
    'simcc': simcc,
    'mediapipe_hand': lambda seed: hand(seed, 3),
    'pfld': pfld,
    'mediapipe_hand without a side': lambda seed: hand(seed, 2),
    'movenet': lambda seed: movenet(seed, is_one=True),
}
