"""The kernels of class masks, compiled for the CPU, give the confidence of the NumPy reference."""

from dataclasses import replace

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.families.semantic import MaskHeads
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

pytestmark = pytest.mark.slow


def assert_equal(kernels, heads, outputs, letterbox):
    got, _ = kernels.decode(heads, outputs, letterbox, DEFAULT_THRESHOLDS)
    want = heads(outputs, letterbox, DEFAULT_THRESHOLDS)
    for head in heads.heads:
        mine, other = got[head.output_name], want[head.output_name]
        assert mine.labels.dtype == other.labels.dtype
        assert mine.is_binary == other.is_binary
        same = mine.labels == other.labels
        assert np.mean(~same) <= 1e-3  # Equal scores but rounding.
        if not head.confidence:
            assert mine.confidence is other.confidence is None
            continue
        assert mine.confidence.dtype == np.uint8
        apart = np.abs(mine.confidence.astype(int) - other.confidence)
        assert apart[same].max() <= 1


@pytest.mark.parametrize('grid_hw', [(6, 10), (5, 7)])
@pytest.mark.parametrize('channels_first', [True, False])
@pytest.mark.parametrize(
    'image_wh, input_hw, resize',
    [
        ((97, 61), (48, 80), 'letterbox'),
        ((33, 21), (48, 80), 'stretch'),
        ((10, 6), (6, 10), 'stretch'),
        ((1, 1), (8, 8), 'stretch'),
    ],
)
def test_confidence_of_several_masks(image_wh, input_hw, resize, channels_first, grid_hw, kernels):
    rng = np.random.default_rng(0)
    shapes = {
        'logits': (3, *grid_hw),
        'probabilities': (2, *grid_hw),
        'many': (300, *grid_hw),
        'plain': (4, *grid_hw),
        'one': (1, *grid_hw),
        'one_logit': (1, *grid_hw),
        'mask': (1, *grid_hw),
    }
    outputs = {
        name: rng.normal(0, 3, shape).astype(np.float32)[None] for name, shape in shapes.items()
    }
    for name in ('probabilities', 'one', 'mask'):
        outputs[name] = rng.uniform(0, 1, outputs[name].shape).astype(np.float32)
    if not channels_first:
        outputs = {
            name: np.ascontiguousarray(value.transpose(0, 2, 3, 1))
            for name, value in outputs.items()
        }
    letterbox = Letterbox.fit(image_wh, input_hw, resize)
    heads = MaskHeads.of(
        [
            replace(
                open_as('semantic', {name: value}, hw=grid_hw),
                confidence=name not in ('plain', 'mask'),
            )
            for name, value in outputs.items()
        ]
    )
    assert_equal(kernels, heads, outputs, letterbox)


def test_a_score_outside_0_to_1_anywhere_makes_all_logits(kernels):
    cells = np.random.default_rng(1).uniform(0, 1, (1, 3, 8, 8)).astype(np.float32)
    letterbox = Letterbox.fit((40, 8), (64, 64), 'letterbox')
    heads = MaskHeads.of([open_as('semantic', {'scores': cells}, hw=(64, 64)).with_confidence()])
    for value in (1.0009, 1.01, -1e-6):
        cells[0, 1, 0, 0] = value  # In the padding.
        assert_equal(kernels, heads, {'scores': cells}, letterbox)


@pytest.mark.parametrize('classes', [1, 2])
def test_confidence_where_scores_are_not_finite_is_0(classes, kernels):
    cells = np.full((1, classes, 4, 4), 0.25, np.float32)
    cells[0, 0] = 9
    cells[0, :, 3, 3], cells[0, :, 1, 1] = np.nan, np.inf
    letterbox = Letterbox.fit((4, 4), (4, 4), 'stretch')
    decode = open_as('semantic', {'scores': cells}, hw=(4, 4)).with_confidence()
    got, counts = kernels.decode(decode, {'scores': cells}, letterbox, DEFAULT_THRESHOLDS)
    assert counts[2] > 0
    want = decode({'scores': cells}, letterbox)
    assert got.confidence[3, 3] == want.confidence[3, 3] == 0
    assert got.confidence[1, 1] == want.confidence[1, 1]
    assert (np.delete(got.confidence.reshape(-1), [5, 15]) == 255).all()
