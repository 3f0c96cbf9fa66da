"""NMS cut off a network: the decoder after it finds what the whole network found."""

from contextlib import closing

import numpy as np
import onnx
import pytest

from support.networks.nms import (
    CHOSEN,
    EFFICIENT,
    HEADS,
    PICK,
    PICKED,
    PLUGIN,
    SIZE,
    SUPPRESS,
    TWO_NMS,
    WEIGHTS,
    C,
    efficient,
    write_nms,
)
from support.save_network import save_text
from trt_ros.decode.choice import choose_decoder
from trt_ros.engine.builder.onnx_check import read_onnx
from trt_ros.engine.builder.onnx_cut_nms import UncuttableError, cut_nms, write_cut
from trt_ros.families.family import NetworkDescription
from trt_ros.results.boxes import Detections
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.tensors import CUT_NMS
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

IMAGE_SIZE = (64, 48)


def cut(path):
    return cut_nms(path, read_onnx(path)[0])


@pytest.fixture
def run(tmp_path):
    """Run an ONNX file, or a model, on a random image; give inputs, outputs and metadata."""

    def run(model, seed=0, **others):
        if hasattr(model, 'graph'):
            onnx.save(model, tmp_path / 'cut.onnx')
            model = tmp_path / 'cut.onnx'
        image = np.random.default_rng(seed).random((1, 3, SIZE, SIZE), np.float32)
        with closing(OnnxRuntimeRunner.open(model, threads=1)) as runner:
            outputs = runner.infer({'images': image, **others})
            return (runner.inputs, runner.outputs), outputs, runner.metadata

    return run


def detect(ran, *, score_threshold=0.1, max_detections=100):
    (inputs, outputs), arrays, metadata = ran
    decoder = choose_decoder('auto', NetworkDescription(inputs, outputs, metadata, (SIZE, SIZE)))
    found = decoder(
        arrays,
        Letterbox.fit(IMAGE_SIZE, (SIZE, SIZE), 'letterbox'),
        Thresholds(score=score_threshold, iou=0.99, max_detections=max_detections),
    )
    return decoder, found


def assert_equal(found, expected):
    assert found.labels.tolist() == expected.labels.tolist()
    np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(found.xyxy, expected.xyxy)


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize(('score_threshold', 'max_detections'), [(0.1, 100), (0.9, 100), (0, 5)])
def test_cut_network_finds_same_boxes_as_whole_network(
    tmp_path, run, seed, score_threshold, max_detections
):
    path = write_nms(tmp_path, CHOSEN, SUPPRESS)
    limits = {'score_threshold': score_threshold, 'max_detections': max_detections}
    whole, expected = detect(run(path, seed), **limits)
    decoder, found = detect(run(cut(path)[0], seed), **limits)
    assert (whole.name, decoder.name) == ('onnx_nms', 'onnx_nms')
    assert whole.preprocess == decoder.preprocess
    assert decoder.class_count == C
    assert min(len(expected), max_detections) > 3
    assert_equal(found, expected)


@pytest.mark.parametrize(
    ('head', 'inputs', 'end'),
    [
        ('', 'all', ''),
        ('', 'all, most_iou', ''),
        ('', 'all, , least', ''),
        ('k = Add (two, three)', 'k, most_iou, least', 'at most 5 per class'),
        # The largest number of boxes is no limit: torchvision exports its NMS so.
        ('', 'endless, most_iou, least', ': IoU 0.3, scores above 0.2'),
    ],
)
def test_omitted_and_computed_thresholds_apply(tmp_path, run, head, inputs, end):
    suppress = f'{head}\n chosen = NonMaxSuppression (boxes, scores, {inputs})'
    path = write_nms(tmp_path, CHOSEN, suppress)
    model, log_line = cut(path)
    assert log_line.endswith(end)
    assert_equal(detect(run(model))[1], detect(run(path))[1])


@pytest.mark.parametrize('are_centers', [False, True], ids=['corners', 'centers'])
def test_layers_that_gather_selected_boxes_are_cut_too(tmp_path, run, are_centers):
    suppress, heads = SUPPRESS, HEADS
    if are_centers:
        suppress = suppress.replace('Suppression', 'Suppression <center_point_box = 1>')
        heads = heads.replace('Sub (wide, four)', 'Identity (wide)')  # No size is below zero.
    path = write_nms(tmp_path, PICKED, suppress + PICK, heads=heads)
    (_, outputs), answers, _ = run(path)
    assert [spec.name for spec in outputs] == ['out_boxes', 'out_scores', 'out_labels']
    first, second = np.split(answers['out_boxes'], 2, axis=1)
    if are_centers:
        first, second = first - second / 2, first + second / 2
    letterbox = Letterbox.fit(IMAGE_SIZE, (SIZE, SIZE), 'letterbox')
    corners = letterbox.to_image(np.hstack([np.minimum(first, second), np.maximum(first, second)]))
    keep = np.flatnonzero((corners[:, :2] < corners[:, 2:]).all(axis=1))
    keep = keep[np.argsort(-answers['out_scores'][keep])]
    _, found = detect(run(cut(path)[0]))
    scores, labels = (answers[f'out_{name}'][keep] for name in ('scores', 'labels'))
    assert_equal(found, Detections(corners[keep], scores, labels))


def test_yolov3_keeps_size_input_and_row_order(tmp_path, run):
    tail = f"""
        first = ReduceMean <keepdims = 0> (image_shape)
        moved = Div (wide, first)
        grown = Mul (moved, first)
        boxes = Sub (grown, four)
        {SUPPRESS}
    """
    heads = HEADS.replace('boxes = Sub (wide, four)\n', '')
    path = write_nms(tmp_path, CHOSEN, tail, heads=heads, inputs=', float[1,2] image_shape')
    shape = np.float32([[SIZE, SIZE]])
    whole, expected = detect(run(path, image_shape=shape))
    decoder, found = detect(run(cut(path)[0], image_shape=shape))
    assert whole.name == decoder.name == 'yolov3'
    assert decoder.constant_inputs.keys() == {'image_shape'}
    assert_equal(found, expected)


@pytest.mark.parametrize(
    ('attributes', 'like'),
    [
        ({}, SUPPRESS),
        ({'box_coding': 1}, SUPPRESS.replace(' (', ' <center_point_box = 1> (', 1)),
        (
            {'score_activation': 1},
            'logistic = Sigmoid (scores)\n' + SUPPRESS.replace('scores', 'logistic'),
        ),
    ],
)
def test_efficient_nms_is_cut_like_onnx_own(tmp_path, run, attributes, like):
    """ONNX Runtime has no such plugin; the same done by NonMaxSuppression is known to be right."""
    path = write_nms(tmp_path, EFFICIENT, efficient(**attributes))
    outputs = CHOSEN.replace('scores', 'logistic') if 'logistic' in like else CHOSEN
    same = write_nms(tmp_path, outputs, like.replace('most,', 'all,'), name='same')
    decoder, found = detect(run(cut(path)[0]), max_detections=20)
    assert decoder.name == 'efficient_nms'
    _, expected = detect(run(cut(same)[0]), max_detections=20)
    # Of its 20 some lie beside the image, and are dropped only then.
    assert 10 < len(found) <= len(expected)
    first = (each[: len(found)] for each in (expected.xyxy, expected.scores, expected.labels))
    assert_equal(found, Detections(*first))


@pytest.mark.parametrize('background', ['1', '[1]'])  # A list, as YOLOv7 writes it.
def test_a_background_class_is_never_found(tmp_path, run, background):
    path = write_nms(tmp_path, EFFICIENT, efficient(background_class=background))
    _, found = detect(run(cut(path)[0]))
    assert set(found.labels.tolist()) == {0, 2}


@pytest.mark.parametrize(
    ('operator', 'outputs', 'attributes'),
    [
        (
            'BatchedNMS_TRT',
            EFFICIENT,
            'iouThreshold = 0.3, scoreThreshold = 0.2, keepTopK = 20, '
            'backgroundLabelId = -1, isNormalized = 0',
        ),
        (
            'TRTBatchedNMS',
            'float[1,20,5] dets, int32[1,20] labels',
            'iou_threshold = 0.3, score_threshold = 0.2, keep_topk = 20, '
            'background_label_id = -1, '
            'is_normalized = 0',
        ),
    ],
)
def test_batched_nms_is_cut_like_efficient_nms(tmp_path, run, operator, outputs, attributes):
    names = PLUGIN if operator == 'BatchedNMS_TRT' else 'dets, labels = '
    tail = f"""
        shared = Unsqueeze (boxes, two)
        {names} {operator} <{attributes}> (shared, rows_of_scores)"""
    same = write_nms(tmp_path, EFFICIENT, efficient(), name='same')
    _, expected = detect(run(cut(same)[0]))
    _, found = detect(run(cut(write_nms(tmp_path, outputs, tail))[0]))
    assert len(found) > 10
    assert_equal(found, expected)


def test_normalized_boxes_are_scaled_to_the_input(tmp_path, run):
    tail = """shared = Unsqueeze (shaped, two)
        {} BatchedNMS_TRT <iouThreshold = 0.3, scoreThreshold = 0.2> (shared, rows_of_scores)"""
    path = write_nms(tmp_path, EFFICIENT, tail.format(PLUGIN))
    _, found = detect(run(cut(path)[0]))
    assert found.xyxy.max() > 30


REFUSED = [
    (*TWO_NMS, 'more than one: NonMaxSuppression chosen and NonMaxSuppression other'),
    # YOLOv7's --max-wh and Ultralytics' nms=True: what is chosen is not what competes.
    (
        PICKED,
        """best = ReduceMax <axes = [1], keepdims = 1> (scores)
        moved = Add (boxes, forty)
        chosen = NonMaxSuppression (moved, best, most, most_iou, least)"""
        + PICK,
        'GatherND .* reads boxes, which is neither its boxes nor its scores',
    ),
    (
        PICKED.replace('out_boxes', 'large'),
        SUPPRESS + PICK + 'large = Mul (out_boxes, scale)',
        'Mul .* computes with the boxes',
    ),
    (
        PICKED.replace('float[n] out_scores', 'bool[n] out_scores'),
        SUPPRESS + PICK.replace('out_scores =', 'kept =') + 'out_scores = Greater (kept, scale)',
        'Greater .* computes with the boxes',
    ),
    (
        CHOSEN.replace('float[1,3,200] scores', 'float[1,2,2] masks'),
        SUPPRESS + '\n masks = ReduceMean <axes = [1], keepdims = 0> (images)',
        'another output, masks',
    ),
    (
        CHOSEN,
        'level = ReduceMean <keepdims = 0> (images)\n' + SUPPRESS.replace('least', 'level'),
        'Its input level is computed by the network',
    ),
    (CHOSEN, 'chosen = NonMaxSuppression (boxes, scores)', 'selects nothing'),
    (EFFICIENT, PLUGIN + 'BatchedNMS_TRT (boxes)', 'lacks boxes or scores'),
    (EFFICIENT, efficient(class_agnostic=1), 'different classes suppress'),
    (EFFICIENT, efficient('(boxes, rows_of_scores, boxes)'), 'relative to anchors'),
    (
        EFFICIENT,
        'four_axes = Unsqueeze (boxes, two)\n'
        'own = Concat <axis = 2> (four_axes, four_axes)\n' + efficient('(own, rows_of_scores)'),
        'Each class has its own boxes',
    ),
]


@pytest.mark.parametrize(('outputs', 'tail', 'said'), REFUSED)
def test_refuses_cuts_that_change_results_with_cause_and_remedy(tmp_path, outputs, tail, said):
    path = write_nms(tmp_path, outputs, tail)
    with pytest.raises(UncuttableError, match=f'Cause: .*{said}') as error:
        cut(path)
    assert 'cannot be cut off' in error.value.problem
    assert error.value.remedy.startswith('Export the model without NMS')


def test_several_images_are_refused(tmp_path):
    inputs = 'float[2,9,4] boxes, float[2,3,9] scores'
    text = f'({inputs}) => (int64[n,3] chosen) <{WEIGHTS}> {{ {SUPPRESS} }}'
    with pytest.raises(UncuttableError, match='several images'):
        cut(save_text(tmp_path / 'two.onnx', text))


def test_a_cut_network_is_written_with_its_weights(tmp_path, run):
    path = write_nms(tmp_path, CHOSEN, SUPPRESS)
    model = onnx.load(path)
    for weight in model.graph.initializer:  # Of raw bytes, as exporters write them.
        weight.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight), weight.name)
        )
    onnx.save(model, path, save_as_external_data=True, location='w.data', size_threshold=0)
    write_cut(path, tmp_path / 'elsewhere.onnx')
    (tmp_path / 'w.data').unlink()
    _, outputs, metadata = run(tmp_path / 'elsewhere.onnx')
    assert outputs.keys() == {'nms_boxes', 'nms_scores'} and CUT_NMS in metadata
