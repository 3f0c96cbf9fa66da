"""
Tiles compared with the sliced inference of `sahi` 0.12.

To run these tests: pip install sahi, or pip install --no-deps sahi shapely pillow requests tqdm
"""

import numpy as np
import pytest

from support.sahi_model import sliced
from support.tiled import mosaic
from trt_ros.demo import MODEL
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.nms import iou
from trt_ros.vision.regions import Tiles
from trt_ros.vision.thresholds import Thresholds

sahi = pytest.importorskip('sahi', reason='its slices are compared: pip install sahi')
ASKED = Thresholds(0.3, 0.5, max_detections=1000)


@pytest.mark.parametrize(('columns', 'rows', 'overlap'), [(4, 2, 0.2), (3, 3, 0.25), (5, 4, 0.0)])
@pytest.mark.parametrize('wh', [(3840, 2160), (1921, 1079), (640, 481)])
def test_tiles_are_the_slices_of_sahi(columns, rows, overlap, wh):
    from sahi.slicing import get_slice_bboxes

    letterbox, origins = Tiles(Preprocess((320, 320)), columns, rows, overlap).places(wh)
    width, height = letterbox.image_wh
    slices = get_slice_bboxes(wh[1], wh[0], height, width, False, overlap, overlap)
    assert np.hstack([origins, np.add(origins, letterbox.image_wh)]).tolist() == slices


@pytest.mark.parametrize(('tiles', 'overlap'), [('4x2', 0.2), ('6x4', 0.3)])
def test_boxes_equal_those_of_sahi(tiles, overlap):
    options = {'backend': 'onnxruntime', 'cpu_threads': 2}
    with (
        Pipeline.open(MODEL, tiles=tiles, tile_overlap=overlap, **options) as ours,
        Pipeline.open(MODEL, **options) as whole,
    ):
        for seed in range(2):
            image = mosaic(seed)
            found = ours(image, ASKED)
            (grid,) = ours.feeds.values()
            wh = grid.tiles.places(image.shape[1::-1])[0].image_wh
            theirs = sliced(whole, image, wh, overlap, ASKED)
            assert len(found) == len(theirs) > 40
            assert len(found) > 2 * len(whole(image, ASKED))
            order, other = np.argsort(-found.scores), np.argsort(-theirs[:, 4])
            np.testing.assert_allclose(found.scores[order], theirs[other, 4], atol=1e-5)
            assert found.labels[order].tolist() == theirs[other, 5].tolist()
            assert iou(found.xyxy[order], theirs[other, :4]).min() >= 0.99
