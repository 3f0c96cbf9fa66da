"""CenterNet: its own decoding of random heatmaps, and its preprocessing."""

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.families.boxes import CENTERNET
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.thresholds import Thresholds

HW, CLASSES = (128, 128), 5
ASKED = Thresholds(score=0.05, iou=0.5, max_detections=100)


@pytest.fixture
def repository(torch):
    """It is no package: PYTHONPATH=CenterNet/src/lib."""
    return pytest.importorskip(
        'models.decode',
        reason='its decoding is under test: git clone https://github.com/xingyizhou/CenterNet',
    )


@pytest.mark.parametrize('has_offsets', [True, False])
def test_boxes_equal_the_repositorys(torch, repository, assert_same, has_offsets):
    torch.manual_seed(0)
    grid = (HW[0] // 4, HW[1] // 4)
    outputs = {
        'hm': torch.randn(1, CLASSES, *grid) * 1.5 - 4,
        'wh': torch.rand(1, 2, *grid) * 10 + 1,
        'reg': torch.rand(1, 2, *grid),
    }
    if not has_offsets:
        del outputs['reg']
    arrays = {name: value.numpy() for name, value in outputs.items()}
    whole = Letterbox.fit(HW[::-1], HW, 'stretch')
    found = open_as('centernet', arrays, hw=HW)(arrays, whole, ASKED)
    own = repository.ctdet_decode(
        outputs['hm'].sigmoid(), outputs['wh'], reg=outputs.get('reg'), K=ASKED.max_detections
    )[0].numpy()
    own = own[own[:, 4] >= ASKED.score]
    boxes = np.clip(own[:, :4] * 4, 0, 128)
    assert_same(found, boxes, own[:, 4], own[:, 5].astype(int))


def test_preprocessing_equals_the_repositorys(repository):
    cv2 = pytest.importorskip('cv2', reason='the repository resizes with it')
    image = pytest.importorskip('utils.image', reason='PYTHONPATH=CenterNet/src/lib')
    rows, columns = np.mgrid[:90, :160]
    pixels = np.stack([columns, rows, (rows + columns) / 2], axis=-1).astype(np.uint8)
    # As `BaseDetector.pre_process` with `fix_res`.
    place = image.get_affine_transform(np.array([80.0, 45.0]), 160.0, 0, HW[::-1])
    own = cv2.warpAffine(pixels, place, HW[::-1], flags=cv2.INTER_LINEAR) / 255.0
    own = (own - [0.40789654, 0.44719302, 0.47026115]) / [0.28863828, 0.27408164, 0.27809835]
    shown, _ = Preprocess(HW, **CENTERNET.preprocess)(Frame.from_pixels(pixels, 'bgr8'))
    inside = np.s_[32:96, 4:124]  # A quarter of a pixel apart: the repository scales from pixel 0.
    difference = np.abs(shown[0].transpose(1, 2, 0) - own)[inside]
    assert difference.max() < 3 / 255 / 0.27
