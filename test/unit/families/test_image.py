"""Networks that return an image."""

from dataclasses import replace
import re
import shutil

import cv2
import numpy as np
import onnx
import pytest

from support.descriptions import head as open_as
from support.kernels_on_cpu import KernelsOnCpu
from trt_ros.decode.trial import Trial, pictures
from trt_ros.errors import TensorMismatchError
from trt_ros.families.match import bind
from trt_ros.families.registry import ENHANCERS, choose_family
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

FAMILIES = {family.name: family for family in ENHANCERS}
HEADS = [
    *(open_as(name, 'y (1, 3, ?, ?)') for name in ('image', 'image_255', 'image_signed')),
    open_as('image', 'y (1, ?, ?, 3)'),
]


def output(head, image):
    """The output of a network for an image of 0 to 255, (h, w, 3)."""
    values = ((image - head.offset) / head.gain).astype(np.float32)
    is_first = head.reading.parts[0].out.has_channels_first
    return values.transpose(2, 0, 1)[None] if is_first else values[None]


@pytest.mark.parametrize('head', HEADS)
def test_each_range_is_read_and_clipped(head):
    image = np.random.default_rng(0).integers(0, 256, (8, 12, 3)).astype(float)
    image[0, 0], image[0, 1] = -40, 300
    found = head({'y': output(head, image)}, Letterbox.fit((12, 8), (8, 12), 'stretch')).pixels
    assert found.dtype == np.uint8
    assert abs(found - image.clip(0, 255)).max() <= 0.51


@pytest.mark.parametrize('factor', [1, 2])
def test_the_picture_has_the_size_of_the_source_times_that_of_the_output(factor):
    image = np.random.default_rng(1).integers(0, 256, (8 * factor, 12 * factor, 3)).astype(float)
    letterbox = Letterbox.fit((30, 20), (8, 12), 'stretch')
    found = HEADS[0]({'y': output(HEADS[0], image)}, letterbox).pixels
    want = cv2.resize(image, (30 * factor, 20 * factor), interpolation=cv2.INTER_LINEAR)
    assert found.shape == want.shape
    assert abs(found - want).max() <= 0.51


@pytest.mark.skipif(shutil.which('g++') is None, reason='needs g++')
@pytest.mark.slow
def test_the_kernel_makes_the_same_picture():
    kernels, rng = KernelsOnCpu(), np.random.default_rng(2)
    for head in HEADS:
        for grid_hw in ((8, 12), (24, 36)):
            outputs = {'y': output(head, rng.uniform(-20, 280, (*grid_hw, 3)))}
            for image_wh, resize in (
                ((31, 17), 'letterbox'),
                ((12, 8), 'stretch'),
                ((1, 1), 'stretch'),
            ):
                letterbox = Letterbox.fit(image_wh, (8, 12), resize)
                got, _ = kernels.decode(head, outputs, letterbox, DEFAULT_THRESHOLDS)
                np.testing.assert_array_equal(got.pixels, head(outputs, letterbox).pixels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('low', 'high', 'decoder'),
    [(0.0, 1.0, 'image'), (0.0, 255.0, 'image_255'), (-1.0, 1.0, 'image_signed')],
)
def test_the_range_is_recognized_or_asked_for(tmp_path, low, high, decoder):
    from support.save_network import save_network

    def save(*nodes, **constants):
        shape = (1, 3, 18, 32)
        return save_network(
            tmp_path / 'enhance.onnx', nodes, {'x': shape}, {'y': shape}, constants=constants
        )

    node = onnx.helper.make_node
    middle, half = np.float32((low + high) / 2), np.float32((high - low) / 2)
    curve = save(  # A curve over the range, clipped.
        node('Sub', ['x', 'middle'], ['centered']),
        node('Div', ['centered', 'half'], ['unit']),
        node('Tanh', ['unit'], ['curve']),
        node('Mul', ['curve', 'half'], ['scaled']),
        node('Add', ['scaled', 'middle'], ['y']),
        middle=np.array(middle),
        half=np.array(half),
    )
    options = {'families': ENHANCERS, 'backend': 'onnxruntime', 'cpu_threads': 1}
    if decoder == 'image_signed':  # From 0 on, it has the same curve as one of 0 to 1.
        with pytest.raises(TensorMismatchError, match='Set `decoder` to image or image_signed'):
            Pipeline.open(curve, **options)
        options['decoder'] = decoder
    with Pipeline.open(curve, **options) as pipeline:
        assert pipeline.decoder.name == decoder
        picture = np.full((36, 64, 3), (200, 100, 50), np.uint8)
        found = pipeline(Frame.from_pixels(picture)).pixels
    unit = (np.array([50, 100, 200]) - 127.5) / 127.5
    assert found[5, 5] == pytest.approx(np.tanh(unit) * 127.5 + 127.5, abs=1)
    unclear = save(node('Identity', ['x'], ['y']))
    with pytest.raises(TensorMismatchError, match='image_255'):
        Pipeline.open(unclear, **{**options, 'decoder': 'auto'})


PICTURE = pictures((24, 32))[1].astype(np.float32)[..., ::-1].transpose(2, 0, 1)[None] / 255


def enhanced(x):
    """Brighten an image of 0 to 1 by the curves of Zero-DCE."""
    for _ in range(2):
        x = x + np.float32(0.6) * (x - x * x)
    return x


def judged(network, outputs_of):
    """Return whether `auto` may choose each family, by what the network makes of its input."""
    inputs = {'image': PICTURE, 'image_255': PICTURE * 255, 'image_signed': PICTURE * 2 - 1}
    seen = replace(network('y (1, 3, 24, 32)', hw=(24, 32)), strict=True)
    trial = Trial(
        lambda family: [{'y': outputs_of(inputs[family.name] * gray)} for gray in (0, 1)], (24, 32)
    )
    found = {name: trial(FAMILIES[name], bind(FAMILIES[name], seen)) for name in inputs}
    allowed = [name for name, opinion in found.items() if opinion.holds is not False]
    seen = replace(seen, trial=trial)
    if len(allowed) == 1:
        assert choose_family(ENHANCERS, 'auto', seen)[0].name == allowed[0]
    else:
        with pytest.raises(TensorMismatchError) as error:
            choose_family(ENHANCERS, 'auto', seen)
        for name in allowed or inputs:
            assert re.search(rf'Set `decoder` to .*\b{name}\b', error.value.remedy)
    return allowed


@pytest.mark.parametrize(
    ('outputs_of', 'allowed'),
    [
        (enhanced, ['image']),  # Its mean difference from the picture is twice that of signed.
        (lambda x: np.clip(enhanced(x), 0, 1), ['image']),
        (lambda x: np.clip(x, 0, 255), ['image', 'image_255']),
        (lambda x: x, ['image', 'image_255', 'image_signed']),
        (lambda x: x[..., ::-1, ::-1], []),  # Another image.
        (lambda x: x * np.nan, []),
    ],
)
def test_levels_and_likeness_decide_between_ranges_and_not_brightness(
    network, outputs_of, allowed
):
    assert judged(network, outputs_of) == allowed
