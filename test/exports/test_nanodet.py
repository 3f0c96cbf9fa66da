"""NanoDet-Plus and NanoDet: their own heads, without weights, as their repository exports them."""

import numpy as np
import pytest

from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW, CLASSES = (160, 224), 5
#: Those of the repository's head.
ASKED = Thresholds(score=0.05, iou=0.6, max_detections=100)


@pytest.fixture
def heads(torch):
    """Its repository is no package of PyPI: PYTHONPATH=nanodet with its requirements."""
    pytest.importorskip(
        'nanodet.model.head.nanodet_plus_head',
        reason='its head is under test: git clone https://github.com/RangiLyu/nanodet',
    )
    from nanodet.model.head.nanodet_head import NanoDetHead
    from nanodet.model.head.nanodet_plus_head import NanoDetPlusHead

    return {'nanodet_plus': NanoDetPlusHead, 'nanodet': NanoDetHead}


class Loss:
    """Weights of the losses, which the head reads but does not use here."""

    class Each:
        beta = loss_weight = 1.0
        use_sigmoid = True

    loss_qfl = loss_dfl = loss_bbox = Each


@pytest.mark.parametrize(
    ('name', 'strides', 'bins'),
    [
        ('nanodet_plus', (8, 16, 32, 64), 8),
        ('nanodet', (8, 16, 32), 8),
        ('nanodet', (8, 16, 32), 11),
    ],
)
def test_boxes_equal_the_repositorys(
    torch, heads, settle, spread, export, opened, assert_same, name, strides, bins
):
    torch.manual_seed(0)
    head = heads[name](
        CLASSES, Loss, 16, feat_channels=16, strides=strides, reg_max=bins - 1
    ).eval()

    class Network(torch.nn.Module):
        """One convolution per stride in place of the backbone."""

        def __init__(self):
            super().__init__()
            self.features = torch.nn.ModuleList(
                torch.nn.Conv2d(3, 16, stride + 1, stride, padding=stride // 2)
                for stride in strides
            )
            self.head = head

        def forward(self, image):
            return self.head([torch.tanh(4 * each(image)) for each in self.features])

    network = Network().eval()
    image = torch.rand(1, 3, *HW) * 4 - 2
    settle(network, lambda: network(image))
    for layer in head.gfl_cls:
        spread(layer, lambda: network(image), -2.5, 1.5)
    for layer in getattr(head, 'gfl_reg', ()):
        spread(layer, lambda: network(image), 0.0, 1.5)
    pixels = np.random.default_rng(0).integers(0, 256, (*HW, 3), dtype=np.uint8)
    picture = Frame.from_pixels(pixels, 'bgr8')
    path = export(network, (torch.zeros(1, 3, *HW),), ['data'], ['output'])
    labels = tuple('abcde')
    pipeline = opened(path, name, labels=labels)
    shown, letterbox = pipeline.preprocess(picture)
    assert letterbox == Letterbox.fit(HW[::-1], HW, 'stretch')
    mean, std = [103.53, 116.28, 123.675], [57.375, 57.12, 58.395]
    np.testing.assert_allclose(shown[0].transpose(1, 2, 0), (pixels - mean) / std, atol=1e-4)
    image = torch.from_numpy(shown)
    with torch.no_grad():
        scores, sides = network(image).split([CLASSES, 4 * bins], dim=-1)
        boxes, classes = head.get_bboxes(scores, sides, {'img': image})[0]
    found = pipeline.infer(picture, ASKED)
    assert_same(found, boxes[:, :4].numpy(), boxes[:, 4].numpy(), classes.numpy())
