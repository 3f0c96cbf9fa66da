"""`fit`: decisions about a network that is only described."""

import numpy as np
import pytest

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families.registry import (
    ALL_FAMILIES,
    CLASSIFIERS,
    DETECTORS,
    POSES,
    SEGMENTERS,
    TENSORS,
)
from trt_ros.model.feeds.tensor import TensorFeed
from trt_ros.runtime.fitting import fit, resolve
from trt_ros.runtime.options import LabeledOptions, ModelOptions, PipelineOptions
from trt_ros.runtime.runner import Network
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS


def described(**parts):
    """Describe a network; there is nothing that could run it."""
    network = Network()
    vars(network).update(parts)
    return network


def network(image=(1, 3, 64, 96), output=(1, 6, 126), dtype='float32', **metadata):
    return described(
        inputs=(TensorSpec('images', image, dtype, 'input'),),
        outputs=(TensorSpec('output0', output, 'float32', 'output'),),
        metadata=metadata,
    )


def test_fit_needs_only_a_network_description():
    fitted = fit(network(), LabeledOptions(labels=('cat', 'dog')), DETECTORS)
    assert (fitted.decoder.name, fitted.class_names) == ('yolov8', ('cat', 'dog'))
    assert fitted.preprocess.input_hw == (64, 96)
    decoder, preprocess, names = fitted.log_lines
    assert decoder.startswith('decoder yolov8: ')
    assert preprocess.startswith('input 96x64 (fixed by the network), letterbox padded with 114')
    assert names == '2 class names'


def test_one_name_and_names_of_several_classes_are_told(caplog):
    one = fit(network(output=(1, 5, 126)), LabeledOptions(labels=('cat',)), DETECTORS)
    assert one.log_lines[-1] == '1 class name' and not caplog.messages
    fit(network(), LabeledOptions(labels=('cat', 'cat')), DETECTORS)
    assert caplog.messages == ['Several classes are named cat.']
    caplog.clear()
    fit(network(output=(1, 95, 126)), LabeledOptions(labels=('coco_91',)), DETECTORS)
    assert not caplog.messages  # Its gaps are N/A.


def test_a_dynamic_size_comes_from_options_metadata_or_default():
    dynamic = network(image=(1, 3, -1, -1), output=(1, 6, -1))
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
    fit(network(image=(1, 3, 64, 32), output=(1, 6, -1)), options, DETECTORS)


@pytest.mark.parametrize(
    ('image', 'dtype', 'layout', 'scale'),
    [((1, 3, 64, 96), 'float32', 'nchw', 1 / 255), ((1, 64, 96, 3), 'uint8', 'nhwc', 1.0)],
)
def test_an_unrecognized_network_takes_pixels_of_0_to_1(image, dtype, layout, scale):
    fitted = resolve(
        network(image=image, dtype=dtype, output=(1, 7)), PipelineOptions(), DETECTORS
    )
    preprocess = fitted.preprocess
    assert (preprocess.input_hw, preprocess.layout) == ((64, 96), layout)
    assert (preprocess.scale, fitted.decoder.name) == (scale, 'tensor')


def test_an_unrecognized_network_without_images_takes_tensors():
    fitted = resolve(network(image=(1, 3), output=(1, 7)), PipelineOptions(), DETECTORS)
    assert fitted.feeds == {'images': TensorFeed(TensorSpec('images', (1, 3), 'float32', 'input'))}
    assert fitted.decoder.name == 'tensor'
    with pytest.raises(TensorMismatchError, match='takes no image'):
        _ = fitted.preprocess


def test_a_network_of_several_bindings_is_decoded_by_request_only():
    """(1, 8, 7) are the actions of a policy, or boxes with an angle."""
    described = network(output=(1, 8, 7))
    described.inputs += (TensorSpec('joints', (1, 7), 'float32', 'input'),)
    inputs = ('images=image:front', 'joints=tensor:joints')
    assert (
        resolve(described, PipelineOptions(inputs=inputs), ALL_FAMILIES).decoder.name == 'tensor'
    )
    asked = PipelineOptions(inputs=inputs, decoder='yolov8_obb')
    assert resolve(described, asked, ALL_FAMILIES).decoder.name == 'yolov8_obb'


def two_masks(*outputs, **metadata):
    return described(
        inputs=(TensorSpec('images', (1, 3, 64, 96), 'float32', 'input'),),
        outputs=tuple(TensorSpec(*each, 'output') for each in outputs),
        metadata=metadata,
    )


DRIVE = ('drive', (1, 2, 64, 96), 'float32')
LANE = ('lane', (1, 3, 64, 96), 'float32')
D0, D1 = (('d0', (1, 1, 64, 96), 'float32'), ('d1', (1, 1, 64, 96), 'float32'))
BOXES = ('boxes', (1, 100, 7, 3), 'float32')


def test_several_chosen_masks_are_decoded_one_by_one():
    fitted = fit(
        two_masks(DRIVE, LANE, BOXES, names="{0: 'car'}"),
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


def test_without_labels_several_masks_have_no_names():
    options = LabeledOptions(outputs=('drive', 'lane'))
    fitted = fit(two_masks(DRIVE, LANE, names="{0: 'car', 1: 'van'}"), options, SEGMENTERS)
    assert fitted.class_names == ()
    assert fitted.decoder.head.names_by_output(()) == {'drive': (), 'lane': ()}


def test_auxiliary_outputs_need_a_choice():
    with pytest.raises(
        TensorMismatchError, match='Set outputs to one of drive, lane, or to several of them'
    ):
        fit(two_masks(DRIVE, LANE, BOXES), LabeledOptions(), SEGMENTERS)
    options = LabeledOptions(outputs=('lane',))
    fitted = fit(two_masks(DRIVE, LANE, BOXES), options, SEGMENTERS)
    assert (fitted.outputs, fitted.decoder.class_count) == (('lane',), 3)


def test_outputs_that_fit_together_are_named_without_those_that_fit_alone():
    outputs = (
        ('classes', (1, 9, 4), 'float32'),
        ('queries', (1, 9, 16, 24), 'float32'),
        ('features', (1, 7, 16, 24), 'float32'),
    )
    with pytest.raises(
        TensorMismatchError, match=r'Remedy: Set outputs to classes, queries \(decoder maskf'
    ):
        fit(two_masks(*outputs), LabeledOptions(), SEGMENTERS)


def test_a_detector_with_other_outputs_names_the_one_to_choose():
    outputs = (('raw', (1, 6, 126), 'float32'), LANE)
    with pytest.raises(TensorMismatchError, match=r'Set outputs to raw\. '):
        fit(two_masks(*outputs), PipelineOptions(), DETECTORS)
    fitted = fit(two_masks(*outputs), PipelineOptions(outputs=('raw',)), DETECTORS)
    assert fitted.decoder.name == 'yolov8'


@pytest.mark.parametrize(
    ('outputs', 'families', 'remedy'),
    [
        ((DRIVE, LANE), DETECTORS, 'Set outputs to drive or lane, and run the node `segmenter`. '),
        ((DRIVE, BOXES), POSES, 'Set outputs to drive, and run the node `segmenter`. '),
        (
            (D0, D1),
            ALL_FAMILIES,
            'Set outputs to d0 or d1, and run the node `segmenter` or `depth`. ',
        ),
    ],
)
def test_auxiliary_outputs_of_another_task_name_the_node(outputs, families, remedy):
    with pytest.raises(
        TensorMismatchError, match=f'^No decoder recognizes(.|\n)*{remedy}This is a guess'
    ):
        fit(two_masks(*outputs), PipelineOptions(), families)


def test_vectors_beside_boxes_are_no_auxiliary_outputs():
    outputs = (('points', (1, 9, 2), 'float32'), ('scores', (1, 9), 'float32'))
    with pytest.raises(TensorMismatchError, match=r'Remedy: Export the network as described'):
        fit(two_masks(*outputs), PipelineOptions(), POSES)


def test_scores_beside_boxes_are_no_classifier():
    outputs = (BOXES, ('scores', (1, 9), 'float32'), ('classes', (1, 9), 'float32'))
    with pytest.raises(TensorMismatchError, match=r'Remedy: Export the network as described'):
        fit(two_masks(*outputs), PipelineOptions(), ALL_FAMILIES)
    with pytest.raises(TensorMismatchError, match=r'Set outputs to one of scores, classes\.'):
        fit(two_masks(*outputs), PipelineOptions(), CLASSIFIERS)


def test_raw_grids_are_masks_only_where_chosen():
    grids = [(str(n), (1, 255, 64 // n, 96 // n), 'float32') for n in (8, 16, 32)]
    with pytest.raises(TensorMismatchError, match=r'Remedy: Equal channels at strides 8, 16'):
        fit(two_masks(*grids), LabeledOptions(), SEGMENTERS)
    fitted = fit(two_masks(*grids), LabeledOptions(outputs=('8', '16')), SEGMENTERS)
    assert fitted.decoder.name == 'semantic'


def test_chosen_outputs_that_are_not_all_masks_are_refused():
    options = LabeledOptions(outputs=('drive', 'boxes'))
    with pytest.raises(TensorMismatchError, match='Set outputs to drive'):
        fit(two_masks(DRIVE, LANE, BOXES), options, SEGMENTERS)


@pytest.mark.parametrize(
    'outputs, remedy',
    [
        ((DRIVE, LANE), 'List the names of all outputs, in the order of `outputs`'),
        ((DRIVE, ('lane', (1, 64, 96), 'int64')), 'Leave both out'),
    ],
)
def test_labels_of_another_number_than_the_classes_of_all_outputs_are_refused(outputs, remedy):
    options = LabeledOptions(outputs=('drive', 'lane'), labels=('a', 'b'))
    with pytest.raises(
        ParameterError, match=rf'names 2 classes of several outputs(.|\n)*{remedy}'
    ):
        fit(two_masks(*outputs), options, SEGMENTERS)


@pytest.mark.parametrize(
    ('outputs', 'expected'),
    [
        ((('out', (1, 300, 6), 'float32'),), ('a', 'b')),
        (
            (
                ('num', (1, 1), 'int32'),
                ('boxes', (1, 100, 4), 'float32'),
                ('scores', (1, 100), 'float32'),
                ('classes', (1, 100), 'int32'),
            ),
            ('a', 'b'),
        ),
        ((('dets', (1, 100, 5), 'float32'), ('labels', (1, 100), 'int64')), ('a', 'b')),
        # Torchvision counts the background.
        (
            (
                ('boxes', (-1, 4), 'float32'),
                ('labels', (-1,), 'int64'),
                ('scores', (-1,), 'float32'),
            ),
            ('BACKGROUND', 'a', 'b'),
        ),
    ],
)
def test_a_background_in_front_of_the_names_is_skipped_where_it_is_no_class(
    tmp_path, outputs, expected
):
    labels = tmp_path / 'labels.txt'
    labels.write_text('BACKGROUND\na\nb\n')
    fitted = fit(two_masks(*outputs), LabeledOptions(labels_path=str(labels)), DETECTORS)
    assert fitted.class_names == expected
    assert ("without 'BACKGROUND'" in fitted.log_lines[-1]) == (len(expected) == 2)


def test_duplicate_outputs_are_refused():
    with pytest.raises(ParameterError, match=r'outputs has duplicates: lane, lane\.'):
        fit(two_masks(DRIVE, LANE), LabeledOptions(outputs=('lane', 'lane')), SEGMENTERS)


def test_confidence_is_an_option_of_masks_with_scores():
    scores, wanted = network(output=(1, 4, 64, 96)), ModelOptions(confidence=True)
    assert fit(scores, wanted, SEGMENTERS).decoder.head.confidence
    assert not fit(scores, ModelOptions(), SEGMENTERS).decoder.head.confidence
    indices = network(output=(1, 64, 96))
    indices.outputs = (TensorSpec('output0', (1, 64, 96), 'int64', 'output'),)
    for described, families in ((indices, SEGMENTERS), (network(), DETECTORS)):
        with pytest.raises(ParameterError, match=r'has no scores of pixels.*\n.*without ArgMax'):
            fit(described, wanted, families)


def test_class_names_make_class_indices_one_byte():
    indices = network()
    indices.outputs = (TensorSpec('output0', (1, 64, 96), 'int64', 'output'),)
    fitted = fit(indices, LabeledOptions(labels=('road', 'grass')), SEGMENTERS)
    letterbox = Letterbox.fit((96, 64), (64, 96), 'stretch')
    indices_of_none = {'output0': np.full((1, 64, 96), -1)}
    mask = fitted.decoder(indices_of_none, letterbox, DEFAULT_THRESHOLDS)
    assert mask.labels.dtype == np.uint8 and (mask.labels == 255).all()


def test_the_same_network_can_be_fitted_again_after_a_mismatch():
    described = network(output=(1, 7))
    with pytest.raises(TensorMismatchError):
        fit(described, PipelineOptions(), DETECTORS)
    fitted = fit(described, PipelineOptions(decoder='tensor'), TENSORS)
    assert (fitted.decoder.name, len(fitted.log_lines)) == ('tensor', 2)
