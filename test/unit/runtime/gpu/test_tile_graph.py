"""Tiles of an image through the captured graph, on a CUDA of our own."""

from dataclasses import replace

import numpy as np
import pytest

from support.host_context import HostContext
from trt_ros.decode.cuda.tiles import GpuTiles
from trt_ros.errors import BadFrameError, TensorMismatchError
from trt_ros.families.registry import DETECTORS
from trt_ros.runtime.fitting import fit
from trt_ros.runtime.options import ModelOptions
from trt_ros.vision.regions import Tiles
from trt_ros.vision.thresholds import Thresholds

ASKED = Thresholds(0.01, 0.5)


@pytest.fixture
def open_tiles(make_engine, numbers, open_fitted):
    """Open a pipeline that finds one box per tile, in its middle, scored by the mean color."""

    def compute(_, arrays):
        head = arrays['output0']
        head[:] = 0
        head[:, :4, 0] = 48, 32, 20, 20
        head[:, 4, 0] = arrays['images'].mean(axis=(1, 2, 3))

    def shape_of(context, name):
        return (
            context.shapes['images']
            if name == 'images'
            else (*context.shapes['images'][:1], 7, 96)
        )

    def make(batch=-1, max_batch=4, tiles='2x2', **options):
        engine = make_engine(batch, max_batch)
        engine.create_execution_context = lambda strategy: HostContext(engine, compute, shape_of)
        model = ModelOptions(decoder='yolov8', tiles=tiles)
        return open_fitted(engine, fit(engine, model, DETECTORS), 4, **options)

    return make


@pytest.mark.parametrize('frames_in_flight', [1, 2])
@pytest.mark.parametrize('batch', [-1, 4])
def test_each_tile_has_its_boxes(open_tiles, picture, decode_on_cpu, batch, frames_in_flight):
    pipeline = open_tiles(batch, frames_in_flight=frames_in_flight)
    pipeline.warm_up()
    assert pipeline.max_batch == 1
    assert 'the tiles of one image per run' in '\n'.join(pipeline.log_lines)
    for wh in ((160, 120), (301, 99), (160, 120)):
        frame = picture(*wh)
        found, tiles = pipeline.infer(frame, ASKED), Tiles(pipeline.preprocess, 2, 2)
        letterbox, origins = tiles.places(wh)
        box = letterbox.to_image(np.array([[38, 22, 58, 42]])) + np.tile(origins, 2)
        scores = tiles(frame).mean(axis=(1, 2, 3))
        order = np.argsort(-scores)
        np.testing.assert_allclose(found.scores, scores[order], rtol=1e-5)
        np.testing.assert_allclose(found.xyxy, box[order], rtol=1e-5)
    with pytest.raises(BadFrameError, match='2x2 tiles of'):
        pipeline.infer(picture(50, 50), ASKED)


def test_the_gpu_merges_the_boxes_of_all_tiles(open_tiles, picture):
    pipeline = open_tiles(frames_in_flight=1)
    pipeline.warm_up()
    pipeline.infer(picture(), ASKED)
    (slot,) = pipeline.slots.all
    decoder = slot.buffers_for(1).decoder
    assert isinstance(decoder, GpuTiles)
    assert decoder.is_supported
    places, count = decoder.tile.places, decoder.merge.places.classes
    (level,) = places.levels
    scores = level.slices['scores']._replace(values=count + 1)
    level = replace(level, slices={**level.slices, 'scores': scores})
    many = replace(decoder.tile, places=replace(places, levels=(level,)))
    assert not GpuTiles(many, decoder.tiles, decoder.strides).is_supported


@pytest.mark.parametrize(('batch', 'max_batch', 'tiles'), [(1, 4, '2x1'), (-1, 4, '3x2')])
def test_an_engine_of_fewer_images_is_refused(open_tiles, batch, max_batch, tiles):
    with pytest.raises(TensorMismatchError, match=r'(?s)an image has \d tiles.*dynamic batch'):
        open_tiles(batch, max_batch, tiles)
