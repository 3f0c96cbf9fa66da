import re

import pytest

from support.descriptions import network
from support.recognized_networks import DEPLOYED
from trt_ros.decode.choice import choose_decoder
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families.registry import (
    CLASSIFIERS,
    DETECTORS,
    ORIENTED,
    POSES,
    SEGMENTERS,
    choose_family,
)


def choose(outputs, name='auto', **known):
    return choose_decoder(name, network(outputs, **known))


@pytest.mark.parametrize(
    'outputs',
    [
        *('none', 'head (1, 84, 8401)', 'head (1, 4, 8400)', 'head (2, 84, 8400)', 'x (0, 0)'),
        *('head (1, 84, 8400) int64', 'output (1, 8400, 4)', 'x (?, ?, ?, ?, ?, ?)'),
        '; '.join(f'x{i} (1, {i}, 9)' for i in range(40)),
    ],
)
def test_the_error_for_an_unknown_network_lists_outputs_nearest_families_and_the_node(outputs):
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose(outputs)
    assert all(str(spec) in error.value.cause for spec in network(outputs).outputs)
    assert 'inputs images (1, 3, 640, 640)' in error.value.cause
    assert '640x640' in error.value.cause
    assert error.value.cause.count(' reads ') == 3
    assert 'node `tensor`' in error.value.remedy and 'docs/models.md' in error.value.remedy


@pytest.mark.parametrize(
    ('name', 'shape', 'classes'),
    [
        ('yolov8', '1, 8400, 8', 4),
        ('yolox', '1, 8400, 8', 3),
        ('yolov8', '1, 12, 5000', 8),
        ('yolov8', '1, 5000, 12', 8),
        ('yolov8', '1, ?, ?', None),
        ('yolox', '?, ?, ?', None),
        ('yolov5', '?, ?, ?', None),
    ],
)
def test_decoder_name_is_used(name, shape, classes):
    decoder = choose(f'head ({shape})', name)
    assert (decoder.name, decoder.reason, decoder.class_count) == (name, 'as configured', classes)


@pytest.mark.parametrize(
    ('name', 'outputs', 'message'),
    [
        ('yolox', 'x (1, 84, 8400)', 'expected (1, 8400, 5 + classes); got outputs x (1, 84, '),
        ('yolox', 'x (1, 8400, 5)', 'not those of yolox'),
        ('yolov8', 'x (1, 4, 8400)', 'not those of yolov8'),
        ('yolov8', 'x (1, 1000)', 'not those of yolov8'),
        ('yolov8', 'x (1, 84, 8400); y (1, 32, 160, 160)', 'not those of yolov8: expected'),
        ('yolox', 'none', 'got outputs none'),
    ],
)
def test_rejects_decoder_name_that_does_not_match(name, outputs, message):
    with pytest.raises(TensorMismatchError, match=re.escape(message)):
        choose(outputs, name)


@pytest.mark.parametrize(
    ('name', 'remedy'),
    [
        ('yolo8', "Did you mean 'yolov8' or 'yolox' or 'yolov5'? Set `decoder` to auto"),
        ('nothing', 'Set `decoder` to auto, or to one of docs/models.md.'),
    ],
)
def test_unknown_decoder_name_lists_only_the_nearest_names(name, remedy):
    with pytest.raises(ParameterError, match=f'Decoder {name!r} does not exist') as error:
        choose('head (1, 84, 8400)', name)
    assert error.value.remedy.startswith(remedy)


def test_only_families_with_a_size_input_have_constant_inputs():
    def fed(outputs, inputs=''):
        seen = network(outputs, inputs=inputs, hw=(480, 640))
        return choose_family(DETECTORS, 'auto', seen)[0].constant_inputs(seen)

    size = fed(
        'labels (1, 9) int64; boxes (1, 9, 4); scores (1, 9)', 'orig_target_sizes (1, 2) int64'
    )['orig_target_sizes']
    assert (size.tolist(), size.dtype) == ([[640, 480]], 'int64')
    size = fed('boxes (1, ?, 4); scores (1, 80, ?); chosen (?, 3) int32', 'image_shape (1, 2)')
    assert size['image_shape'].tolist() == [[480, 640]]
    assert fed('output (1, 300, 6)') == {}


MASKS, KEYPOINTS = {'task': 'segment'}, {'task': 'pose', 'kpt_shape': '[17, 3]'}


@pytest.mark.parametrize(
    ('families', 'outputs', 'known', 'classes', 'is_kept'),
    [
        (SEGMENTERS, 'output0 (1, 56, 8400); output1 (1, 32, 160, 160)', MASKS, 20, False),
        (SEGMENTERS, 'output0 (1, 300, 38); output1 (1, 32, 160, 160)', MASKS, None, False),
        (POSES, 'output0 (1, 75, 8400)', KEYPOINTS, 20, False),
        (POSES, 'output0 (1, 300, 57)', {**KEYPOINTS, 'end2end': 'True'}, None, False),
        (ORIENTED, 'output0 (1, 25, 8400)', {}, 20, False),
        (ORIENTED, 'output0 (1, 300, 7)', {'task': 'obb', 'end2end': 'True'}, None, False),
        (DETECTORS, 'hm (1, 20, 160, 160); wh (1, 2, 160, 160)', {}, 20, False),
        (DETECTORS, 'output (1, 8500, 52)', {}, 20, False),
        (DETECTORS, 'boxes (1, 3000, 21); boxes1 (1, 3000, 4)', {}, 20, False),
        (DETECTORS, 'boxes (1, 99, 21); boxes1 (1, 99, 4)', {}, 20, False),
        (DETECTORS, 'output0 (1, 24, 8400)', {}, 20, False),
        (DETECTORS, 'head (1, 8400, 25)', {}, 20, False),
        (DETECTORS, DEPLOYED, {'inputs': 'orig_target_sizes (?, 2) int64'}, None, False),
        # Where classes may begin with it.
        (DETECTORS, 'boxes (1, 8400, 4); scores (1, 8400, 21)', {}, 21, True),
        (DETECTORS, 'dets (1, 99, 4); labels (1, 99, ?)', {}, None, True),
        (SEGMENTERS, 'out (1, 640, 640) int64', {}, None, True),
        (SEGMENTERS, 'out (1, 21, 640, 640)', {}, 21, True),
        (CLASSIFIERS, 'out (1, 21)', {}, 21, True),
    ],
)
def test_a_background_is_left_out_if_the_network_does_not_count_it(
    families, outputs, known, classes, is_kept
):
    seen = network(outputs, class_count=21, **known)
    decoder = choose_decoder('auto', seen, families, has_background=True)
    assert (decoder.class_count, decoder.head.counts_background) == (classes, is_kept)


def test_metadata_names_take_precedence_over_user_names():
    assert choose('head (1, 8400, 8)', names="['a', 'b', 'c']", class_count=4).name == 'yolox'
