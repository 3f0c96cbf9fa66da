import pytest

from support.recognized_networks import DEPLOYED
from trt_ros.decode.choice import choose_decoder
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families.family import NetworkDescription
from trt_ros.families.registry import (
    CLASSIFIERS,
    DETECTORS,
    ORIENTED,
    POSES,
    SEGMENTERS,
    choose_family,
)
from trt_ros.tensors import TensorSpec


def choose(
    *shapes,
    name='auto',
    output='head',
    dtype='float32',
    metadata=None,
    hw=(640, 640),
    class_count=None,
    has_background=False,
):
    outputs = tuple(
        TensorSpec(output + str(i or ''), shape, dtype, 'output') for i, shape in enumerate(shapes)
    )
    images = TensorSpec('images', (1, 3, *hw), dtype, 'input')
    return choose_decoder(
        name,
        NetworkDescription((images,), outputs, metadata or {}, hw, class_count),
        has_background=has_background,
    )


def test_an_ambiguous_network_names_the_candidates_and_the_way_out():
    with pytest.raises(TensorMismatchError) as error:
        choose((1, 8400, 8))
    assert 'yolov8:' in error.value.cause and 'yolox:' in error.value.cause
    assert 'Set `decoder` to yolov8 or yolox' in error.value.remedy
    assert '`labels`' in error.value.remedy


@pytest.mark.parametrize(
    ('shapes', 'arguments'),
    [
        ([], {}),
        ([(1, 84, 8401)], {}),
        ([(1, 4, 8400)], {}),
        ([(2, 84, 8400)], {}),
        ([(1, 84, 8400)], {'dtype': 'int64'}),
        ([(1, 8400, 4)], {'output': 'output'}),
    ],
)
def test_the_error_for_an_unknown_network_lists_outputs_nearest_families_and_the_node(
    shapes, arguments
):
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose(*shapes, **arguments)
    for shape in shapes:
        assert str(shape) in error.value.cause
    assert 'inputs images (1, 3, 640, 640)' in error.value.cause
    assert '640x640' in error.value.cause
    assert error.value.cause.count(' reads ') == 3
    assert 'node `tensor`' in error.value.remedy and 'docs/models.md' in error.value.remedy


@pytest.mark.parametrize(
    ('name', 'shape', 'classes'),
    [
        ('yolov8', (1, 8400, 8), 4),
        ('yolox', (1, 8400, 8), 3),
        ('yolov8', (1, 12, 5000), 8),
        ('yolov8', (1, 5000, 12), 8),
        ('yolov8', (1, -1, -1), None),
        ('yolox', (-1, -1, -1), None),
        ('yolov5', (-1, -1, -1), None),
    ],
)
def test_decoder_name_is_used(name, shape, classes):
    decoder = choose(shape, name=name)
    assert (decoder.name, decoder.reason, decoder.class_count) == (name, 'as configured', classes)


@pytest.mark.parametrize(
    ('name', 'shapes', 'message'),
    [
        (
            'yolox',
            [(1, 84, 8400)],
            r'expected \(1, 8400, 5 \+ classes\); got outputs head \(1, 84, 8400\)',
        ),
        ('yolox', [(1, 8400, 5)], 'not those of yolox'),
        ('yolov8', [(1, 4, 8400)], 'not those of yolov8'),
        ('yolov8', [(1, 1000)], 'not those of yolov8'),
        ('yolov8', [(1, 84, 8400), (1, 32, 160, 160)], 'not those of yolov8: expected'),
        ('yolox', [], 'got outputs none'),
    ],
)
def test_rejects_decoder_name_that_does_not_match(name, shapes, message):
    with pytest.raises(TensorMismatchError, match=message):
        choose(*shapes, name=name)


@pytest.mark.parametrize(
    ('name', 'remedy'),
    [
        ('yolo8', 'Set `decoder` to yolov8 or yolox or yolov5 or auto. docs/models.md lists'),
        ('nothing', 'Set `decoder` to auto. docs/models.md lists the others.'),
    ],
)
def test_unknown_decoder_name_lists_only_the_nearest_names(name, remedy):
    with pytest.raises(ParameterError, match=f'Decoder {name!r} does not exist') as error:
        choose((1, 84, 8400), name=name)
    assert error.value.remedy.startswith(remedy)


def test_only_families_with_a_size_input_have_constant_inputs(network):
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


SSD = [(1, 3000, 21), (1, 3000, 4)]


@pytest.mark.parametrize(
    ('shapes', 'output', 'family', 'classes'),
    [
        (SSD, 'boxes', 'ssd', 20),
        ([(1, 99, 21), (1, 99, 4)], 'boxes', 'ssd', 20),
        ([(1, 24, 8400)], 'output0', 'yolov8', 20),
        ([(1, 8400, 25)], 'head', 'yolox', 20),
        (
            [(1, 8400, 4), (1, 8400, 21)],
            'boxes',
            'boxes',
            21,
        ),  # A box a cell: as many as there are.
    ],
)
def test_background_in_front_of_the_names_counts_where_the_network_has_it(
    shapes, output, family, classes
):
    decoder = choose(*shapes, output=output, class_count=21, has_background=True)
    assert (decoder.name, decoder.class_count) == (family, classes)


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
        (DETECTORS, DEPLOYED, {'inputs': 'orig_target_sizes (?, 2) int64'}, None, False),
        # Where classes may begin with it.
        (DETECTORS, 'dets (1, 99, 4); labels (1, 99, ?)', {}, None, True),
        (SEGMENTERS, 'out (1, 640, 640) int64', {}, None, True),
        (SEGMENTERS, 'out (1, 21, 640, 640)', {}, 21, True),
        (CLASSIFIERS, 'out (1, 21)', {}, 21, True),
    ],
)
def test_a_background_is_left_out_if_the_network_does_not_count_it(
    network, families, outputs, known, classes, is_kept
):
    seen = network(outputs, class_count=21, **known)
    decoder = choose_decoder('auto', seen, families, has_background=True)
    assert (decoder.class_count, decoder.head.counts_background) == (classes, is_kept)


def test_names_that_do_not_decide_are_not_requested_again():
    with pytest.raises(TensorMismatchError, match='21 named classes do not decide'):
        choose((1, 99, 21), (1, 99, 4), output='boxes', class_count=21)


def test_metadata_names_take_precedence_over_user_names():
    metadata = {'names': "['a', 'b', 'c']"}
    assert choose((1, 8400, 8), metadata=metadata, class_count=4).name == 'yolox'
