"""`fit`: decisions about a network that is only described."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trt_ros.errors import TensorMismatchError
from trt_ros.runtime.feeds import TensorFeed
from trt_ros.runtime.fitting import fit, fit_any
from trt_ros.runtime.options import LabelledOptions, PipelineOptions
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.registry import FAMILIES, TENSORS


def network(image=(1, 3, 64, 96), output=(1, 6, 126), dtype='float32', **metadata):
    """Describe a network; there is nothing that could run it."""
    return SimpleNamespace(
        inputs=(TensorSpec('images', image, dtype, 'input'),),
        outputs=(TensorSpec('output0', output, 'float32', 'output'),),
        metadata=metadata,
    )


def test_fit_needs_only_a_network_description():
    fitted = fit(network(), LabelledOptions(labels=('cat', 'dog')), FAMILIES)
    assert (fitted.decoder.name, fitted.class_names) == ('yolov8', ('cat', 'dog'))
    assert fitted.preprocess.input_hw == (64, 96)
    decoder, preprocess, names = fitted.log_lines
    assert decoder.startswith('decoder yolov8: ')
    assert preprocess.startswith('input 96x64 (fixed by the network), letterbox padded with 114')
    assert names == '2 class names'


def test_the_same_network_can_be_fitted_again_after_a_mismatch():
    described = network(output=(1, 7))
    with pytest.raises(TensorMismatchError):
        fit(described, PipelineOptions(), FAMILIES)
    fitted = fit(described, PipelineOptions(decoder='tensor'), TENSORS)
    assert (fitted.decoder.name, len(fitted.log_lines)) == ('tensor', 2)


def test_a_dynamic_size_comes_from_options_metadata_or_default():
    dynamic = network(image=(1, 3, -1, -1), output=(1, 6, -1))
    options = PipelineOptions(decoder='yolov8')
    assert fit(dynamic, options, FAMILIES).preprocess.input_hw == (640, 640)
    dynamic.metadata = {'imgsz': '[320, 416]'}
    assert fit(dynamic, options, FAMILIES).preprocess.input_hw == (320, 416)
    options = PipelineOptions(decoder='yolov8', input_size=(64, 32))
    fitted = fit(dynamic, options, FAMILIES)
    assert fitted.preprocess.input_hw == (64, 32)
    assert '(as requested)' in fitted.log_lines[1]


@pytest.mark.parametrize(
    ('image', 'dtype', 'layout', 'scale'),
    [((1, 3, 64, 96), 'float32', 'nchw', 1 / 255), ((1, 64, 96, 3), 'uint8', 'nhwc', 1.0)],
)
def test_an_unrecognised_network_takes_pixels_of_0_to_1(image, dtype, layout, scale):
    fitted = fit_any(network(image=image, dtype=dtype, output=(1, 7)), PipelineOptions(), FAMILIES)
    preprocess = fitted.preprocess
    assert (preprocess.input_hw, preprocess.layout) == ((64, 96), layout)
    assert (preprocess.scale, fitted.decoder.name) == (scale, 'tensor')


def test_an_unrecognised_network_without_images_takes_tensors():
    fitted = fit_any(network(image=(1, 3), output=(1, 7)), PipelineOptions(), FAMILIES)
    assert fitted.feeds == {'images': TensorFeed(TensorSpec('images', (1, 3), 'float32', 'input'))}
    assert fitted.decoder.name == 'tensor'
    with pytest.raises(TensorMismatchError, match='takes no image'):
        _ = fitted.preprocess
