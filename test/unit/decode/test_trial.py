"""Trial runs: the values of the outputs decide what their shapes leave open."""

from dataclasses import replace
import re

import numpy as np
import pytest

from support.recognized_networks import TOLD
from support.save_network import save_network
from trt_ros.decode.choice import choose_decoder
from trt_ros.decode.trial import Trial, pictures
from trt_ros.errors import TensorMismatchError
from trt_ros.families import registry
from trt_ros.families.evidence import Choice
from trt_ros.families.registry import ALL_FAMILIES, TENSORS, choose_family
from trt_ros.runtime.options import ModelOptions
from trt_ros.runtime.pipeline import Pipeline

FAMILIES = {family.name: family for family in (*ALL_FAMILIES, *TENSORS)}
RNG = np.random.default_rng(5)
NOISE = RNG.normal(0, 3, 10007)
ROWS, HW = 4420, (240, 320)


def uniform(*shape, low=0.0, high=1.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def softmax(values, axis=-1):
    powers = np.exp(values)
    return (powers / powers.sum(axis=axis, keepdims=True)).astype(np.float32)


def corners(scale=1.0):
    centers, sizes = uniform(1, ROWS, 2), uniform(1, ROWS, 2, low=0.05, high=0.3)
    pixels = np.array(HW[::-1] * 2) if scale > 1 else 1
    return (np.concatenate([centers - sizes / 2, centers + sizes / 2], 2) * pixels).astype('f4')


def with_boxes(boxes, scores):
    return lambda: {'scores': scores(), 'boxes': boxes()}


def logits():
    return uniform(1, ROWS, 3, low=-4, high=4)


def of_background():
    return softmax(logits())


def independent():
    return uniform(1, ROWS, 3)


def offsets():
    return uniform(1, ROWS, 4, low=-3, high=3)


def tried(network, make, **known):
    """Describe a network that returns such outputs for two pictures."""
    found = [make(), make()]
    seen = network(found[0], **known)
    return replace(seen, strict=True, trial=Trial(lambda family: found, seen.input_hw))


def centers(rows):
    return np.concatenate([uniform(1, rows, 2, high=320), uniform(1, rows, 2, low=10, high=90)], 2)


@pytest.mark.parametrize(('classes', 'auto'), [(2, 'yolov10'), (3, 'yolov8_obb')])
def test_class_scores_of_rows_off_the_grid_are_no_score_class_and_angle(network, classes, auto):
    def make():
        return {'output0': np.concatenate([centers(256), uniform(1, 256, classes)], 2)}

    seen = tried(network, make, hw=(320, 320))
    (claim,) = Choice(ALL_FAMILIES, seen, ALL_FAMILIES).claims()
    assert (claim.family.name, claim.trial.holds) == (auto, False)
    assert '100.0% of the classes no whole numbers' in claim.trial.text
    with pytest.raises(
        TensorMismatchError, match=f'yolov8: .*, {classes} class scores; possi'
    ) as e:
        choose_family(registry.DETECTORS + registry.ORIENTED, 'auto', seen)
    assert e.value.remedy.startswith('Set `decoder` to yolov5 or yolov8 if that is what the netw')
    stated = replace(seen, metadata={'task': claim.family.task})
    assert choose_family(ALL_FAMILIES, 'auto', stated)[0].name == auto


def test_rows_off_the_grid_name_the_decoders_that_may_be_set(network):
    seen = tried(
        network,
        lambda: {'output0': np.concatenate([centers(256), uniform(1, 256, 8)], 2)},
        hw=(320, 320),
    )
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family(ALL_FAMILIES, 'auto', seen)
    assert error.value.remedy.startswith('Set `decoder` to yolov5 or yolov8 if that is what')


@pytest.mark.parametrize(
    ('last', 'expected'),
    [
        (lambda: uniform(1, 2100, 1, low=-0.7, high=2.3), 'yolov8_obb'),
        (lambda: uniform(1, 2100, 1, high=0.009), 'yolov8'),
        (lambda: uniform(1, 2100, 1, low=4, high=90), 'angles of .* which are no radians'),
        (lambda: uniform(1, 2100, 1, low=0.2, high=0.9), 'More than one decoder'),
    ],
)
def test_the_last_value_of_a_box_is_an_angle_by_its_range(network, last, expected):
    def make():
        parts = [centers(2100), uniform(1, 2100, 4, high=0.009), last()]
        return {'out': np.concatenate(parts, 2).transpose(0, 2, 1)}

    seen = tried(network, make, hw=(320, 320))
    both = registry.DETECTORS + registry.ORIENTED
    if ' ' not in expected:
        assert choose_family(both, 'auto', seen)[0].name == expected
        return
    with pytest.raises(TensorMismatchError, match=expected):
        choose_family(both, 'auto', seen)


def normalized_rows():
    boxes = uniform(1, 2100, 4, high=0.3)
    return {'out': np.concatenate([boxes, uniform(1, 2100, 80, high=0.3)], 2).swapaxes(1, 2)}


def unclear_poses():
    points = uniform(1, 2100, 17 * 3, high=320)
    points[..., 2::3] = uniform(1, 2100, 17, low=-4, high=4)
    return {'out': np.concatenate([centers(2100), uniform(1, 2100, 1), points], 2).swapaxes(1, 2)}


def probabilities():
    return {'logits': uniform(1, 300, 80), 'pred_boxes': uniform(1, 300, 4, low=0.1, high=0.4)}


@pytest.mark.parametrize(
    ('make', 'problem', 'family'),
    [
        (normalized_rows, '100.0% of the boxes smaller than a pixel', 'yolov8'),
        (probabilities, r'scores of .* to 1, which have had their sigmoid', 'rtdetr'),
        (unclear_poses, 'a score of -?[34].*, outside 0 to 1', 'yolov8_pose'),
    ],
)
def test_a_trial_run_is_believed_against_names_and_numbers_of_rows(network, make, problem, family):
    seen = tried(network, make, hw=(320, 320))
    with pytest.raises(TensorMismatchError, match=problem) as error:
        choose_family(registry.DETECTORS + registry.POSES, 'auto', seen)
    assert f'Set `decoder` to {family} to decode it anyway' in error.value.remedy


def test_metadata_is_believed_against_a_trial_run_with_a_warning(network, caplog):
    seen = tried(network, normalized_rows, hw=(320, 320), task='detect')
    assert choose_decoder('auto', seen, registry.DETECTORS).name == 'yolov8'
    assert '100.0% of the boxes smaller than a pixel' in caplog.messages[-1]


def test_class_scores_are_no_keypoints(network):
    def make():
        angle = uniform(1, 2100, 1, low=-0.7, high=2.3)
        return {'out': np.concatenate([centers(2100), uniform(1, 2100, 78, high=0.4), angle], 2)}

    seen = tried(network, lambda: {'out': make()['out'].swapaxes(1, 2)}, hw=(320, 320))
    with pytest.raises(TensorMismatchError, match='yolov8, yolov8_pose or yolov8_obb'):
        choose_family(ALL_FAMILIES, 'auto', replace(seen, trial=None))
    assert choose_family(ALL_FAMILIES, 'auto', seen)[0].name == 'yolov8_obb'


def yolo_rows():
    boxes = np.concatenate([uniform(1, 8400, 2, high=640), uniform(1, 8400, 2, low=9, high=99)], 2)
    return {'head': np.concatenate([boxes, uniform(1, 8400, 4, high=0.2)], 2)}


def yolox_rows():
    return {
        'head': np.concatenate([uniform(1, 8400, 4, low=-1), uniform(1, 8400, 4, high=0.2)], 2)
    }


@pytest.mark.parametrize(
    ('name', 'make', 'known', 'untried'),
    [
        ('ssd', with_boxes(corners, of_background), {'hw': HW}, None),
        ('boxes_normalised', with_boxes(corners, independent), {'hw': HW}, None),
        ('boxes', with_boxes(lambda: corners(320), independent), {'hw': HW}, None),
        ('yolov8', yolo_rows, {}, 'More than one decoder'),
        ('yolox', yolox_rows, {}, 'More than one decoder'),
    ],
)
def test_values_choose_between_detectors_of_equal_outputs(network, name, make, known, untried):
    seen = tried(network, make, **known)
    assert choose_family(registry.DETECTORS, 'auto', seen)[0].name == name
    if known:
        assert choose_family(ALL_FAMILIES, 'auto', seen)[0].name == name
    with pytest.raises(TensorMismatchError, match=untried):
        choose_family(registry.DETECTORS, 'auto', replace(seen, trial=None))


@pytest.mark.parametrize(
    ('make', 'problem'),
    [
        (with_boxes(offsets, of_background), r'[5-9]\d\.\d% of the boxes inverted'),
        (with_boxes(corners, logits), 'a score of -?[34].*, outside 0 to 1'),
        (with_boxes(lambda: corners() + 50, independent), 'boxes far outside of the image'),
        (with_boxes(lambda: corners() * 0 + [0, 0, 1, 1], independent), 'as large as the image'),
        (with_boxes(corners, lambda: independent() ** 0.001), 'of the scores above 0.99'),
    ],
)
def test_undecoded_boxes_are_refused_and_a_decoder_by_name_warns(network, make, problem, caplog):
    seen = tried(network, make, hw=HW)
    with pytest.raises(TensorMismatchError, match=problem) as error:
        choose_family(registry.DETECTORS, 'auto', seen)
    assert 'but not its values' in error.value.problem
    for name in re.search(r'Set `decoder` to (.*) to decode', error.value.remedy)[1].split(' or '):
        assert choose_family(ALL_FAMILIES, name.split(', ')[0], seen)[0]
    decoder = choose_decoder('ssd', seen, registry.DETECTORS)
    assert 'impossible results in a trial run' in decoder.reason and decoder.reason in [
        f'as configured; {record.args[1]}' for record in caplog.records
    ]


def undecoded_cells():
    cells = uniform(1, 8, 20, 20)
    return {'out': np.concatenate([cells[:, :5], softmax(cells[:, 5:], 1)], 1)}


def unit(count):
    values = uniform(1, count, low=-1)
    return {'out': values / np.linalg.norm(values)}


#: Outputs, the decoder or the words of the error.
DENSE = [
    (lambda: {'out': softmax(uniform(1, 7, 80, 80, high=9), 1)}, 'semantic', ALL_FAMILIES),
    (undecoded_cells, 'as in undecoded boxes', ALL_FAMILIES),
    (undecoded_cells, 'as in undecoded boxes', registry.SEGMENTERS),
    (lambda: {'out': uniform(1, 7, 80, 80, low=-9, high=9)}, 'nothing but the', ALL_FAMILIES),
    (lambda: {'out': softmax(uniform(1, 40, high=9))}, 'classifier', ALL_FAMILIES),
    (lambda: {'out': softmax(uniform(1, 2, high=9))}, 'classifier', ALL_FAMILIES),
    (lambda: {'out': uniform(1, 2)}, 'classifier`: 2 class scores; trial run: 2', ALL_FAMILIES),
    (lambda: {'out': uniform(1, 196)}, 'which do not sum to 1, such as keypoints', ALL_FAMILIES),
    (lambda: {'out': uniform(1, 4)}, 'such as keypoints, or', ALL_FAMILIES),
    (
        lambda: {'scores': uniform(1, 26)},
        'attributes, for `decoder` multi_label',
        registry.CLASSIFIERS,
    ),
    (lambda: unit(256), 'of a norm of 1', registry.CLASSIFIERS),
    (lambda: unit(256), 'Run the node `tensor`. Set `decoder` to classifier to', ALL_FAMILIES),
    (lambda: unit(256), 'embedding', TENSORS),
    (lambda: {'out': uniform(1, 256, low=-9, high=9)}, 'nothing but the shape', ALL_FAMILIES),
]


@pytest.mark.parametrize(('make', 'expected', 'families'), DENSE)
def test_sums_of_class_axes_are_evidence(network, make, expected, families):
    seen = tried(network, make)
    if 'attributes' in expected:
        seen = replace(seen, class_count=26)
    if ' ' not in expected:
        assert choose_family(families, 'auto', seen)[0].name == expected
        return
    with pytest.raises(TensorMismatchError, match=expected):
        choose_family(families, 'auto', seen)


@pytest.mark.parametrize(('low', 'warnings'), [(0, 0), (-3, 1)])
def test_independent_labels_are_judged_by_their_range(network, low, warnings, caplog):
    seen = tried(network, lambda: {'scores': uniform(1, 26, low=low)})
    assert choose_decoder('multi_label', seen, registry.CLASSIFIERS).name == 'multi_label'
    assert len(caplog.messages) == warnings


@pytest.mark.slow
@pytest.mark.parametrize(('family', 'classes', 'evidence', 'outputs', 'known'), TOLD)
def test_any_family_may_be_tried(network, family, classes, evidence, outputs, known):
    seen = network(outputs, **known)

    def make(rows, value):
        """Return outputs of noise or one value, of so many rows where that is open."""
        found = {}
        for spec in seen.outputs:
            shape = [rows if size < 0 else size for size in spec.shape]
            is_float = 'float' in spec.dtype
            values = np.full(shape, value if is_float else 9) if value else np.resize(NOISE, shape)
            found[spec.name] = values.astype(spec.dtype.replace('bfloat16', 'float32'))
        return found

    for found in ([make(1, 0), make(9, 0)], [make(9, np.inf), make(9, np.nan)]):
        decoder = choose_decoder(
            family,
            replace(seen, trial=Trial(lambda family: found, seen.input_hw)),  # noqa: B023
            (FAMILIES[family],),
        )
        assert decoder.reason.startswith('as configured')


def test_equal_outputs_for_two_pictures_are_no_evidence_and_told(network):
    found = [with_boxes(corners, independent)()] * 2
    seen = network(found[0], hw=HW)
    trial = Trial(lambda family: found, HW)
    decoder = choose_decoder('boxes', replace(seen, trial=trial))
    assert decoder.reason.endswith('equal for two pictures')


def test_the_structured_picture_has_edges_in_all_channels():
    gray, structured = pictures((48, 64))
    assert gray.shape == structured.shape == (48, 64, 3) and (gray == 114).all()
    assert (structured.std(axis=(0, 1)) > 40).all()


@pytest.mark.slow
def test_a_pipeline_tells_its_trial_run_and_refuses_undecoded_boxes(tmp_path):
    batch = 2
    boxes, scores, raw = (
        np.repeat(make(), batch, 0) for make in (corners, of_background, offsets)
    )

    def save(name, boxes):
        return save_network(
            tmp_path / name,
            'mean = ReduceMean <axes = [1, 2], keepdims = 1> (images) '
            'each = ReduceMean <axes = [3], keepdims = 0> (mean) shift = Mul(each, small) '
            'boxes = Add(boxes_, shift) scores = Identity(scores_)',
            {'images': (batch, 3, *HW)},
            {'scores': scores.shape, 'boxes': boxes.shape},
            constants={'boxes_': boxes, 'scores_': scores, 'small': np.float32([1e-3])},
        )

    options = ModelOptions(save('a.onnx', boxes), backend='onnxruntime', cpu_threads=1)
    with Pipeline.open(options) as pipeline:
        line = next(line for line in pipeline.log_lines if line.startswith('decoder ssd'))
        assert re.search(r'possible results in a trial run: boxes with scores .* 0.0% of', line)
    with pytest.raises(TensorMismatchError, match='but not its values'):
        Pipeline.open(replace(options, model_path=save('b.onnx', raw)))
