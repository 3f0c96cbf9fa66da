"""
Ultralytics' other tasks: recognized as exported, decoded as its own postprocessing decodes.

The outputs' shapes and metadata are real exports'; their values are made up, for an untrained
network finds nothing that could be compared.
"""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families import registry as decoder
from trt_ros.families.family import NetworkDescription
from trt_ros.results.labels import class_names
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZE = 192
THRESHOLD, IOU = 0.3, 0.5


@pytest.fixture
def open_export(ultralytics, picture):
    """Export a network by name; give its head, its outputs for `picture`, and the letterbox."""

    def export(name, families, family, options):
        model = ultralytics.YOLO(f'{name}.yaml')
        path = model.export(format='onnx', imgsz=SIZE, simplify=False, opset=17, **options)
        runner = OnnxRuntimeRunner.open(path)
        names = class_names((), '', runner.metadata, None)
        network = NetworkDescription(
            runner.inputs, runner.outputs, runner.metadata, (SIZE, SIZE), len(names)
        )
        chosen, _ = decoder.choose_family(families, 'auto', network)
        assert chosen.name == family
        tensor, letterbox = Preprocess((SIZE, SIZE), **chosen.preprocess)(picture)
        outputs = runner.infer({'images': tensor})
        return open_head(chosen, network), outputs, letterbox, len(names)

    return export


def invent(shape, classes, extras, *, is_finished, is_upright):
    """Fill an output: scattered boxes of all sizes, of which about a tenth score well."""
    rng = np.random.default_rng(1)
    count = shape[1] if is_finished else shape[2]
    # Ours drops boxes of which nothing lies in the image, which is 108 rows of the input.
    center = rng.uniform((20, 50), (SIZE - 20, SIZE - 50), (count, 2))
    size = rng.uniform(10, 60, (count, 2))
    if is_finished:
        corners = [center - size / 2, center + size / 2] if is_upright else [center, size]
        scores = -np.sort(-rng.uniform(0, 1, count))[:, None]
        labels = rng.integers(0, classes, (count, 1))
        rows = np.hstack([*corners, scores, labels, extras(rng, count)])
    else:
        good = rng.random((count, classes)) < 0.1 / classes
        scores = np.where(good, rng.uniform(0.3, 1, good.shape), rng.uniform(0, 0.2, good.shape))
        rows = np.hstack([center, size, scores, extras(rng, count)]).T
    assert rows[None].shape == shape
    return rows[None].astype(np.float32)


def own_rows(torch, output, letterbox, classes, *, is_finished, is_rotated=False):
    """Suppress and scale boxes as Ultralytics does: (N, 6 + extras)."""
    from ultralytics.utils import nms, ops

    found = nms.non_max_suppression(
        torch.from_numpy(output),
        THRESHOLD,
        IOU,
        max_det=300,
        nc=classes,
        end2end=is_finished,
        rotated=is_rotated,
    )[0]
    found[:, :4] = ops.scale_boxes(
        (SIZE, SIZE), found[:, :4], letterbox.image_wh[::-1], xywh=is_rotated
    )
    return found


THRESHOLDS = Thresholds(score=THRESHOLD, iou=IOU, max_detections=300)


@pytest.fixture(params=[({}, '11n'), ({'end2end': True}, '26n')], ids=['raw', 'finished'])
def decode_invented(request, torch, open_export):
    """Decode invented rows of a task: return what is found, Ultralytics' rows, the letterbox."""
    options, size = request.param

    def decode(task, families, extras, is_rotated=False, **more):
        head, outputs, letterbox, classes = open_export(
            f'yolo{size}-{task}', families, f'yolov8_{task}', options
        )
        is_finished = bool(options)
        rows = invent(
            outputs['output0'].shape,
            classes,
            extras,
            is_finished=is_finished,
            is_upright=not is_rotated,
        )
        own = own_rows(
            torch, rows, letterbox, classes, is_finished=is_finished, is_rotated=is_rotated
        )
        return head({'output0': rows, **more}, letterbox, THRESHOLDS), own, letterbox

    return decode


def test_masks_equal_ultralytics_except_at_edges(torch, decode_invented, assert_same):
    from ultralytics.utils import ops

    prototypes = cv2.resize(np.random.default_rng(2).normal(0, 2, (4, 4, 32)), (48, 48))
    prototypes = prototypes.transpose(2, 0, 1)[None].astype(np.float32)
    found, own, letterbox = decode_invented(
        'seg',
        decoder.SEGMENTERS,
        lambda rng, count: rng.normal(0, 0.6, (count, 32)),
        output1=prototypes,
    )
    assert_same(found.detections, own[:, :4].numpy(), own[:, 4].numpy(), own[:, 5].numpy())
    masks = ops.process_mask_native(
        torch.from_numpy(prototypes[0]), own[:, 6:], own[:, :4], letterbox.image_wh[::-1]
    ).numpy()
    different, union = 0, 0
    for mask, (x, y), theirs in zip(found.masks, found.origins_xy, masks.astype(bool)):
        ours = np.zeros_like(theirs)
        ours[y : y + mask.shape[0], x : x + mask.shape[1]] = mask
        different, union = different + (ours != theirs).sum(), union + (ours | theirs).sum()
    # It interpolates what comes before the sigmoid, and counts pixels from their corners.
    assert union > 10000
    assert different / union < 0.05


def test_keypoints_equal_ultralytics(decode_invented, assert_same):
    from ultralytics.utils import ops

    def keypoints(rng, count):
        return np.concatenate(
            [rng.uniform(30, 160, (count, 17, 2)), rng.random((count, 17, 1))], axis=2
        ).reshape(count, 51)

    found, own, letterbox = decode_invented('pose', decoder.POSES, keypoints)
    assert_same(found.detections, own[:, :4].numpy(), own[:, 4].numpy(), own[:, 5].numpy())
    points = own[:, 6:].reshape(len(own), 17, 3)
    at = ops.scale_coords((SIZE, SIZE), points[..., :2].clone(), letterbox.image_wh[::-1]).numpy()
    ours = found.keypoints[..., :2].clip(0, letterbox.image_wh)  # As it does.
    np.testing.assert_allclose(ours, at, atol=0.5)
    np.testing.assert_allclose(found.keypoints[..., 2], points[..., 2].numpy(), atol=1e-3)


def test_rotated_boxes_equal_ultralytics(decode_invented):
    found, own, _ = decode_invented(
        'obb',
        decoder.ORIENTED,
        lambda rng, count: rng.uniform(-0.7, 2.3, (count, 1)),
        is_rotated=True,
    )
    own = own.numpy()
    assert len(found) == len(own) > 20
    assert found.labels.tolist() == own[:, 5].tolist()
    np.testing.assert_allclose(found.cxcywh, own[:, :4], atol=0.5)
    np.testing.assert_allclose(found.theta, own[:, 6], atol=1e-3)
    np.testing.assert_allclose(found.scores, own[:, 4], atol=1e-3)


def test_class_scores_are_the_network_outputs(open_export):
    head, outputs, letterbox, _ = open_export('yolo11n-cls', decoder.CLASSIFIERS, 'yolov8_cls', {})
    assert head(outputs, letterbox, THRESHOLDS).scores.tolist() == outputs['output0'][0].tolist()


def postprocessed(torch, predictor, output, letterbox, classes=0):
    """Let Ultralytics' predictor make of the output what it shows a user."""
    width, height = letterbox.image_wh
    told = SimpleNamespace(
        args=SimpleNamespace(classes=None),
        batch=[['picture']],
        model=SimpleNamespace(names={index: str(index) for index in range(classes)}),
        _class_map_dtype=getattr(predictor, '_class_map_dtype', None),
    )
    return predictor.postprocess(
        told,
        torch.from_numpy(output),
        torch.zeros(1, 3, SIZE, SIZE),
        [np.zeros((height, width, 3), np.uint8)],
    )[0]


def test_semantic_mask_equals_ultralytics_except_at_edges(torch, open_export):
    from ultralytics.models.yolo.semantic import SemanticSegmentationPredictor

    head, outputs, letterbox, classes = open_export(
        'yolo26n-sem', decoder.SEGMENTERS, 'yolo_semantic', {}
    )
    output = outputs['output0']
    coarse = np.random.default_rng(3).integers(0, classes, (6, 6)).astype(output.dtype)
    output = coarse.repeat(SIZE // 6, axis=0).repeat(SIZE // 6, axis=1).reshape(output.shape)
    found = head({'output0': output}, letterbox).labels
    own = postprocessed(
        torch, SemanticSegmentationPredictor, output, letterbox, classes
    ).semantic_mask
    own = np.asarray(getattr(own, 'data', own)).reshape(found.shape)
    assert len(np.unique(own)) > 5
    assert (found != own).mean() < 0.03  # It takes the cell under a pixel's corner.


def test_depth_equals_ultralytics_within_half_a_pixel(torch, open_export):
    from ultralytics.models.yolo.depth import DepthPredictor

    head, outputs, letterbox, _ = open_export('yolo26n-depth', decoder.DEPTHS, 'yolo_depth', {})
    slope = np.linspace(1, 20, SIZE, dtype=np.float32)
    output = (slope[:, None] + slope[None] ** 1.2).reshape(outputs['output0'].shape)
    found = head({'output0': output}, letterbox).values
    # It puts corner pixels on corner pixels, where this looks at what each pixel covers.
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(output), (180, 320), mode='bilinear'
    )[0, 0].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    own = postprocessed(torch, DepthPredictor, output, letterbox).depth
    own = np.asarray(getattr(own, 'data', own)).reshape(found.shape)
    of_a_pixel = max(np.abs(np.diff(output[0, 0], axis=axis)).max() for axis in (0, 1))
    assert np.abs(found - own).max() <= of_a_pixel
