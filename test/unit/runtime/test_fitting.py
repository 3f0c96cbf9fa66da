"""`fit`: decisions about a network that is only described."""

import numpy as np
import pytest

from support.descriptions import specs
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families.registry import (
    ALL_FAMILIES,
    CLASSIFIERS,
    DEPTHS,
    DETECTORS,
    POSES,
    SEGMENTERS,
    TENSORS,
)
from trt_ros.model.feeds.tensor import TensorFeed
from trt_ros.runtime.fitting import default_families, fit, resolve
from trt_ros.runtime.options import LabeledOptions, ModelOptions, PipelineOptions
from trt_ros.runtime.runner import Network
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

IMAGE = 'images (1, 3, 64, 96)'


def network(outputs='output0 (1, 6, 126)', inputs=IMAGE, **metadata):
    """Describe a network, see `support.descriptions.specs`; there is nothing that runs it."""
    network = Network()
    network.inputs, network.outputs = specs(inputs, 'input'), specs(outputs)
    network.metadata = metadata
    return network


def test_fit_needs_only_a_network_description():
    options = LabeledOptions(labels=('cat', 'dog'), antialias=True)
    fitted = fit(network(), options, DETECTORS)
    assert (fitted.decoder.name, fitted.class_names) == ('yolov8', ('cat', 'dog'))
    assert fitted.preprocess.input_hw == (64, 96) and fitted.preprocess.antialias
    decoder, preprocess, names = fitted.log_lines
    assert decoder.startswith('decoder yolov8: ')
    assert preprocess.startswith('input 96x64 (fixed by the network), letterbox padded with 114')
    assert names == '2 class names'


def test_one_name_and_names_of_several_classes_are_told(caplog):
    one = fit(network('output0 (1, 5, 126)'), LabeledOptions(labels=('cat',)), DETECTORS)
    assert one.log_lines[-1] == '1 class name' and not caplog.messages
    fit(network(), LabeledOptions(labels=('cat', 'cat')), DETECTORS)
    assert caplog.messages == ['Several classes are named cat.']
    caplog.clear()
    fit(network('output0 (1, 95, 126)'), LabeledOptions(labels=('coco_91',)), DETECTORS)
    assert not caplog.messages  # Its gaps are N/A.


def test_a_name_like_that_of_a_list_and_duplicate_outputs_are_told():
    with pytest.raises(
        TensorMismatchError, match=r"^No decoder .*\n.*\nRemedy: Did you mean 'ima"
    ):
        fit(network('scores (1, 1000)'), LabeledOptions(labels=('imagnet',)), CLASSIFIERS)
    with pytest.raises(ParameterError, match=r'outputs has duplicates: lane, lane\.'):
        fit(network(MASKS), LabeledOptions(outputs=('lane', 'lane')), SEGMENTERS)


def test_options_without_effect_on_a_decoder_are_refused_or_told():
    classes = network('scores (1, 1000)')
    with pytest.raises(ParameterError, match='pad_value is 3, but resize center_crop has no pad'):
        fit(classes, PipelineOptions(pad_value=3), CLASSIFIERS)
    regions = ModelOptions(regions=True, pad_value=3, decoder='embedding')
    (feed,) = fit(classes, regions, TENSORS).feeds.values()
    assert feed.preprocess.pad_value == 3
    named = LabeledOptions(labels=('a', 'b'), decoder='depth')
    fitted = fit(network('y (1, 1, 64, 96)'), named, DEPTHS)
    assert fitted.log_lines[-1] == 'Ignored by the decoder depth: the names of classes.'


@pytest.mark.parametrize(
    ('binding', 'given', 'told'),
    [
        ((), {'mean': (1.0, 2.0, 3.0)}, []),
        ((), {'regions': True, 'max_regions': 3, 'decoder': 'embedding'}, []),
        (
            (),
            {'max_regions': 3, 'region_scale': 2.0},
            ['Ignored by a network of whole images: max_regions, region_scale.'],
        ),
        (('images=tensor:t',), {'decoder': 'tensor', 'strict': False}, []),
        (
            ('images=tensor:t',),
            {'mean': (1.0, 2.0, 3.0), 'resize': 'stretch', 'input_size': (8, 8), 'regions': True},
            ['Ignored by a network without images: resize, mean, input_size, regions.'],
        ),
    ],
)
def test_options_without_effect_on_the_inputs_are_told(binding, given, told):
    options = ModelOptions(inputs=binding, **given)
    classes = network('scores (1, 1000)')
    fitted = fit(classes, options, default_families(classes, options))
    assert [line for line in fitted.log_lines if 'Ignored' in line] == told


def test_a_dynamic_size_comes_from_options_metadata_or_default():
    dynamic = network('output0 (1, 6, ?)', 'images (1, 3, ?, ?)')
    options = PipelineOptions(decoder='yolov8')
    for metadata, input_hw, why in (
        ({}, (640, 640), '(by default'),
        ({'imgsz': '[320, 416]'}, (320, 416), '(from the metadata'),
    ):
        dynamic.metadata = metadata
        fitted = fit(dynamic, options, DETECTORS)
        assert fitted.preprocess.input_hw == input_hw
        assert why in fitted.log_lines[1]
    options = PipelineOptions(decoder='yolov8', input_size=(64, 32))
    fitted = fit(dynamic, options, DETECTORS)
    assert fitted.preprocess.input_hw == (64, 32)
    assert '(as requested)' in fitted.log_lines[1]
    fit(network('output0 (1, 6, ?)', 'images (1, 3, 64, 32)'), options, DETECTORS)


@pytest.mark.parametrize(
    ('image', 'layout', 'scale'),
    [(IMAGE, 'nchw', 1 / 255), ('images (1, 64, 96, 3) uint8', 'nhwc', 1.0)],
)
def test_an_unrecognized_network_takes_pixels_of_0_to_1(image, layout, scale):
    fitted = resolve(network('output0 (1, 7)', image), PipelineOptions(), DETECTORS)
    preprocess = fitted.preprocess
    assert (preprocess.input_hw, preprocess.layout) == ((64, 96), layout)
    assert (preprocess.scale, fitted.decoder.name) == (scale, 'tensor')


def test_an_unrecognized_network_takes_tensors_and_can_be_fitted_again_after_a_mismatch():
    fitted = resolve(network('output0 (1, 7)', 'images (1, 3)'), PipelineOptions(), DETECTORS)
    assert fitted.feeds == {'images': TensorFeed(TensorSpec('images', (1, 3), 'float32', 'input'))}
    assert fitted.decoder.name == 'tensor'
    with pytest.raises(TensorMismatchError, match='takes no image'):
        _ = fitted.preprocess
    described = network('output0 (1, 7)')
    with pytest.raises(TensorMismatchError):
        fit(described, PipelineOptions(), DETECTORS)
    fitted = fit(described, PipelineOptions(decoder='tensor'), TENSORS)
    assert (fitted.decoder.name, len(fitted.log_lines)) == ('tensor', 2)


def test_a_network_of_several_bindings_is_decoded_by_request_only():
    """(1, 8, 7) are the actions of a policy, or boxes with an angle."""
    described = network('output0 (1, 8, 7)', f'{IMAGE}; joints (1, 7)')
    inputs = ('images=image:front', 'joints=tensor:joints')
    assert (
        resolve(described, PipelineOptions(inputs=inputs), ALL_FAMILIES).decoder.name == 'tensor'
    )
    asked = PipelineOptions(inputs=inputs, decoder='yolov8_obb')
    assert resolve(described, asked, ALL_FAMILIES).decoder.name == 'yolov8_obb'


DRIVE, LANE = 'drive (1, 2, 64, 96); ', 'lane (1, 3, 64, 96); '
BOXES = 'boxes (1, 100, 7, 3); '
MASKS = DRIVE + LANE


def test_several_chosen_masks_are_decoded_one_by_one():
    fitted = fit(
        network(MASKS + BOXES, names="{0: 'car'}"),
        LabeledOptions(outputs=('lane', 'drive'), labels=('none', 'solid', 'dashed', 'no', 'yes')),
        SEGMENTERS,
    )
    assert fitted.outputs == ('lane', 'drive')
    assert fitted.decoder.name == 'semantic'
    assert fitted.decoder.head.names_by_output(fitted.class_names) == {
        'lane': ('none', 'solid', 'dashed'),
        'drive': ('no', 'yes'),
    }
    scores = {'lane': np.zeros((1, 3, 64, 96)), 'drive': np.zeros((1, 2, 64, 96))}
    scores['lane'][0, 2, :, :48] = scores['drive'][0, 1, :32] = 1
    masks = fitted.decoder(
        scores, Letterbox.fit((96, 64), (64, 96), 'stretch'), DEFAULT_THRESHOLDS
    )
    assert list(masks) == ['lane', 'drive']
    assert (masks['lane'].labels[:, :47] == 2).all() and not masks['lane'].labels[:, 49:].any()
    assert masks['drive'].labels[:31].all() and not masks['drive'].labels[33:].any()


EXPORT = 'Remedy: Export the network as described'


@pytest.mark.parametrize(
    ('outputs', 'chosen', 'families', 'remedy'),
    [
        (MASKS + BOXES, (), SEGMENTERS, 'Set outputs to one of drive, lane, or to several of'),
        (MASKS + BOXES, ('drive', 'boxes'), SEGMENTERS, 'Set outputs to drive'),
        (
            # Those that fit together are named without those that fit alone.
            'classes (1, 9, 4); queries (1, 9, 16, 24); features (1, 7, 16, 24)',
            (),
            SEGMENTERS,
            r'Remedy: Set outputs to classes, queries \(decoder maskf',
        ),
        ('raw (1, 6, 126); ' + LANE, (), DETECTORS, r'Set outputs to raw\. '),
        (
            MASKS,
            (),
            DETECTORS,
            'Set outputs to drive or lane, and run the node `segmenter`. This is a guess',
        ),
        (
            DRIVE + BOXES,
            (),
            POSES,
            'Set outputs to drive, and run the node `segmenter`. This is a guess',
        ),
        (
            'd0 (1, 1, 64, 96); d1 (1, 1, 64, 96)',
            (),
            ALL_FAMILIES,
            'Set outputs to d0 or d1, and run the node `segmenter` or `depth`. This is a guess',
        ),
        ('points (1, 9, 2); scores (1, 9)', (), POSES, EXPORT),
        (BOXES + 'scores (1, 9); classes (1, 9)', (), ALL_FAMILIES, EXPORT),
        (
            BOXES + 'scores (1, 9); classes (1, 9)',
            (),
            CLASSIFIERS,
            r'Set outputs to one of scores, classes\.',
        ),
        (
            '8 (1, 255, 8, 12); 16 (1, 255, 4, 6); 32 (1, 255, 2, 3)',
            (),
            SEGMENTERS,
            r'Remedy: Equal channels at strides 8, 16',
        ),
    ],
)
def test_outputs_that_no_family_takes_together_get_a_remedy(outputs, chosen, families, remedy):
    with pytest.raises(TensorMismatchError, match=remedy) as caught:
        fit(network(outputs), PipelineOptions(outputs=chosen), families)
    if 'node' in remedy:
        assert caught.value.problem.startswith('No decoder recognizes')


@pytest.mark.parametrize(
    ('outputs', 'chosen', 'families', 'decoder', 'classes'),
    [
        (MASKS + BOXES, ('lane',), SEGMENTERS, 'semantic', 3),
        ('raw (1, 6, 126); ' + LANE, ('raw',), DETECTORS, 'yolov8', 2),
        ('8 (1, 255, 8, 12); 16 (1, 255, 4, 6)', ('8', '16'), SEGMENTERS, 'semantic', 510),
    ],
)
def test_chosen_outputs_are_decoded(outputs, chosen, families, decoder, classes):
    fitted = fit(network(outputs), PipelineOptions(outputs=chosen), families)
    assert (fitted.outputs, fitted.decoder.name) == (chosen, decoder)
    assert fitted.decoder.class_count == classes


@pytest.mark.parametrize(
    'outputs, remedy',
    [
        (MASKS, 'List the names of all outputs, in the order of `outputs`'),
        (DRIVE + 'lane (1, 64, 96) int64', 'Leave both out'),
    ],
)
def test_labels_of_another_number_than_the_classes_of_all_outputs_are_refused(outputs, remedy):
    options = LabeledOptions(outputs=('drive', 'lane'), labels=('a', 'b'))
    with pytest.raises(
        ParameterError, match=rf'names 2 classes of several outputs(.|\n)*{remedy}'
    ):
        fit(network(outputs), options, SEGMENTERS)


@pytest.mark.parametrize(
    ('outputs', 'expected'),
    [
        ('output0 (1, 6, 126)', ('a', 'b')),
        ('out (1, 300, 6)', ('a', 'b')),
        (
            'num (1, 1) int32; boxes (1, 100, 4); scores (1, 100); classes (1, 100) int32',
            ('a', 'b'),
        ),
        ('dets (1, 100, 5); labels (1, 100) int64', ('a', 'b')),
        # Torchvision counts the background.
        ('boxes (?, 4); labels (?) int64; scores (?)', ('BACKGROUND', 'a', 'b')),
    ],
)
def test_a_background_in_front_of_the_names_is_skipped_where_it_is_no_class(
    tmp_path, outputs, expected
):
    labels = tmp_path / 'labels.txt'
    labels.write_text('BACKGROUND\na\nb\n')
    fitted = fit(network(outputs), LabeledOptions(labels_path=str(labels)), DETECTORS)
    assert fitted.class_names == expected
    assert ("without 'BACKGROUND'" in fitted.log_lines[-1]) == (len(expected) == 2)


def test_confidence_is_an_option_of_masks_with_scores():
    scores, wanted = network('output0 (1, 4, 64, 96)'), ModelOptions(confidence=True)
    assert fit(scores, wanted, SEGMENTERS).decoder.head.confidence
    assert not fit(scores, ModelOptions(), SEGMENTERS).decoder.head.confidence
    indices = network('output0 (1, 64, 96) int64')
    for described, families in ((indices, SEGMENTERS), (network(), DETECTORS)):
        with pytest.raises(ParameterError, match=r'has no scores of pixels.*\n.*without ArgMax'):
            fit(described, wanted, families)
