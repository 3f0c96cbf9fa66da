"""Regions of an image through the captured graph, on a CUDA of our own."""

import numpy as np
import pytest

from support.host_context import HostContext
from trt_ros.families.registry import CLASSIFIERS, TENSORS
from trt_ros.runtime.fitting import fit
from trt_ros.runtime.options import ModelOptions
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

ASKED = Thresholds()
HW = (8, 8)


def mean_colors(context, arrays):
    """Return the mean color of each image."""
    context.engine.batches.append(len(arrays['images']))
    arrays['out'][:] = arrays['images'].mean(axis=(2, 3))


def shape_of(context, name):
    batch = context.shapes['images'][0]
    return (batch, 3, *HW) if name == 'images' else (batch, 3)


@pytest.fixture
def open_regions(make_engine, numbers, open_fitted):
    """Open a pipeline of the mean color of each region."""

    def make(batch=-1, max_batch=4, decoder='embedding', families=TENSORS, **options):
        engine = make_engine()
        engine.inputs = (TensorSpec('images', (batch, 3, *HW), 'float32', 'input'),)
        engine.outputs = (TensorSpec('out', (batch, 3), 'float32', 'output'),)
        sizes = ((1, 3, *HW), (1, 3, *HW), (max_batch, 3, *HW))
        engine.profiles = ({'images': sizes},) if batch == -1 else ()
        engine.create_execution_context = lambda strategy: HostContext(
            engine, mean_colors, shape_of
        )
        engine.batches = []
        model = ModelOptions(regions=True, decoder=decoder, std=(1.0,) * 3, mean=(0.0,) * 3)
        fitted = fit(engine, model, families)
        crop = fitted.feeds['images'].crop
        return open_fitted(engine, fitted, max_batch, **options), engine, crop

    return make


def frame_of(width=60, height=40, seed=1):
    rng = np.random.default_rng(seed)
    return Frame.from_pixels(rng.integers(0, 256, (height, width, 3), np.uint8), 'rgb8')


def boxes(count, seed=2):
    rng = np.random.default_rng(seed)
    return np.hstack(
        [
            rng.uniform(0, 40, (count, 2)),
            rng.uniform(5, 30, (count, 2)),
            rng.uniform(-2, 2, (count, 1)),
        ]
    )


def means(found):
    return np.concatenate([np.zeros((0, 3)), *(each['out'] for each in found)])


@pytest.mark.slow
@pytest.mark.parametrize('unified_memory', ['off', 'on'])
@pytest.mark.parametrize('slots', [1, 2])
@pytest.mark.parametrize('batch', [-1, 1, 4])
def test_each_region_has_its_result(open_regions, batch, slots, unified_memory):
    pipeline, _, crop = open_regions(batch, frames_in_flight=slots, unified_memory=unified_memory)
    pipeline.warm_up()
    frame = frame_of()
    for count in (0, 1, 2, 3, 4, 5, 11):
        found = pipeline.infer_regions(frame, boxes(count, seed=count), ASKED)
        expected = crop(frame, crop.maps(boxes(count, seed=count))).mean(axis=(2, 3))
        np.testing.assert_allclose(means(found), expected, atol=1e-5)


@pytest.mark.parametrize(
    ('count', 'batches'), [(0, []), (1, [1]), (2, [2]), (3, [4]), (4, [4]), (9, [4, 4, 1])]
)
def test_batches_are_the_smallest_power_of_two(open_regions, count, batches):
    pipeline, engine, _ = open_regions(frames_in_flight=1, use_graph=False)
    pipeline.warm_up()
    engine.batches.clear()
    frame = frame_of(8, 8)
    pipeline.infer_regions(frame, boxes(count), ASKED)
    assert engine.batches == batches


def test_one_graph_serves_all_regions_of_a_geometry(open_regions):
    pipeline, _, _ = open_regions(frames_in_flight=1)
    (slot,) = pipeline.slots.all
    for seed in range(5):
        pipeline.infer_regions(frame_of(seed=seed), boxes(2, seed), ASKED)
    assert len(list(slot.captured(slot.buffers_for(2)))) == 1
    pipeline.infer_regions(frame_of(50, 40), boxes(2), ASKED)
    assert len(list(slot.captured(slot.buffers_for(2)))) == 2


def test_a_family_with_kernels_is_decoded_per_region(open_regions):
    pipeline, _, crop = open_regions(
        frames_in_flight=1, decoder='classifier', families=CLASSIFIERS
    )
    pipeline.warm_up()
    frame = frame_of()
    found = pipeline.infer_regions(frame, boxes(3), ASKED)
    odds = np.exp(crop(frame, crop.maps(boxes(3))).mean(axis=(2, 3)))
    expected = odds / odds.sum(axis=1, keepdims=True)
    np.testing.assert_allclose([each.scores for each in found], expected, atol=1e-5)
