"""Tiles of an image through a real network in ONNX Runtime."""

import numpy as np
import pytest

from support.tiled import mosaic, with_batch
from trt_ros.errors import BadFrameError, ParameterError, TensorMismatchError
from trt_ros.runtime import options
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.options import ModelOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.regions import MAX_TILES, Tiles
from trt_ros.vision.thresholds import Thresholds

ASKED = Thresholds(0.3, 0.5, max_detections=200)


def opened(path, **values):
    return Pipeline.open(path, runner=OnnxRuntimeRunner.open(path, threads=2), **values)


@pytest.fixture(scope='module')
def picture():
    return mosaic(1, 3, 2)


@pytest.fixture(scope='module')
def expected(picture, tmp_path_factory):
    """Return the boxes of the tiles, run one by one as images of their own."""
    with opened(with_batch(tmp_path_factory.mktemp('one') / 'n.onnx', 'n')) as whole:
        grid = Tiles(whole.preprocess, 2, 2)
        placement, origins = grid.places(picture.shape[1::-1])
        width, height = placement.image_wh
        found = [
            whole(picture[top : top + height, left : left + width], ASKED)
            for left, top in origins.tolist()
        ]
        assert len(whole(picture, ASKED)) < 20
        return grid.merge(found, origins, ASKED)


@pytest.mark.parametrize(
    ('batch', 'line'),
    [('n', '2x2 tiles with overlap 0.2'), (4, '2x2 tiles'), (1, 'accepts one tile per run')],
)
def test_boxes_are_those_of_the_tiles(picture, expected, batch, line, tmp_path):
    with opened(with_batch(tmp_path / 'n.onnx', batch), tiles='2x2') as pipeline:
        assert line in '\n'.join(pipeline.log_lines)
        assert pipeline.max_batch == 1
        several = pipeline.infer_all([picture, picture[:, ::-1]], ASKED)
        for found in (pipeline(picture, ASKED), pipeline.submit(picture, ASKED).result()):
            assert len(found) > 20
            np.testing.assert_allclose(found.xyxy, expected.xyxy, atol=1e-2)
            np.testing.assert_allclose(found.scores, several[0].scores, atol=1e-5)
            assert found.names == several[0].names
        with pytest.raises(BadFrameError, match='2x2 tiles of'):
            pipeline(picture[:50, :50], ASKED)


def test_encodings_that_share_chroma_have_tiles(expected, picture, tmp_path):
    import cv2

    yuv = cv2.cvtColor(picture, cv2.COLOR_BGR2YUV_I420)
    height = picture.shape[0]
    chroma = yuv[height:].reshape(2, -1).T.reshape(height // 2, -1)
    frame = Frame.from_pixels(np.vstack([yuv[:height], chroma]), 'nv12')
    with opened(with_batch(tmp_path / 'n.onnx', 'n'), tiles='2x2') as pipeline:
        assert abs(len(pipeline(frame, ASKED)) - len(expected)) < 6


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        ({'tiles': '4'}, "tiles is '4'.*as in 4x2"),
        ({'tiles': '0x2'}, "tiles is '0x2'"),
        ({'tiles': '9x8'}, 'expected 2 to 64 tiles'),
        ({'tiles': '1x1'}, 'expected 2 to 64 tiles'),
        ({'tiles': '2x2', 'inputs': ('images=image:camera',)}, 'the inputs of the network are'),
        ({'tiles': '2x2', 'tile_overlap': 0.95}, 'tile_overlap is 0.95'),
        ({'tile_overlap': 0.5}, 'tile_overlap is 0.5, but there are no tiles'),
    ],
)
def test_options_that_cannot_be_honored_are_refused(values, message):
    with pytest.raises(ParameterError, match=f'(?s){message}'):
        ModelOptions('model.onnx', **values)


def test_networks_that_cannot_have_tiles_are_refused(tmp_path):
    path = with_batch(tmp_path / 'n.onnx', 3)
    with pytest.raises(TensorMismatchError, match=r'(?s)batch size of 3.*dynamic.*or one of 4'):
        opened(path, tiles='2x2')
    with pytest.raises(TensorMismatchError, match='does not find boxes'):
        opened(with_batch(path, 'n'), tiles='2x2', decoder='tensor')


def test_limits_are_equal():
    assert options.MAX_TILES == MAX_TILES
