"""PicoDet: its own head and NMS, without weights, as PaddleDetection runs them."""

from pathlib import Path

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families.family import NetworkDescription
from trt_ros.families.nanodet import PICODET, PPYOLOE
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (320, 320)
WHOLE = Letterbox.fit(HW, HW, 'stretch')
SCALE = TensorSpec('scale_factor', (1, 2), 'float32', 'input')


@pytest.fixture
def paddle():
    """Its package of PyPI does not import with NumPy 2: PYTHONPATH=PaddleDetection."""
    paddle = pytest.importorskip('paddle', reason='pip install paddlepaddle')
    pytest.importorskip(
        'ppdet.modeling',
        reason='its head is under test: git clone https://github.com/PaddlePaddle/PaddleDetection',
    )
    paddle.set_device('cpu')
    paddle.seed(0)
    return paddle


def decode(family, outputs, thresholds):
    specs = tuple(
        TensorSpec(name, value.shape, str(value.dtype), 'output')
        for name, value in outputs.items()
    )
    image = TensorSpec('image', (1, 3, *HW), 'float32', 'input')
    head = open_head(family, NetworkDescription((image, SCALE), specs, {}, HW))
    return head(outputs, WHOLE, thresholds)


def assert_equal_in_order(found, boxes, scores, labels):
    """Compare detections sorted by score and label, of boxes inside the image."""
    boxes = np.clip(boxes, 0, HW[0])
    inside = (boxes[:, :2] < boxes[:, 2:]).all(axis=1)
    boxes, scores, labels = boxes[inside], scores[inside], labels[inside]
    mine, own = np.lexsort((found.labels, -found.scores)), np.lexsort((labels, -scores))
    np.testing.assert_allclose(found.scores[mine], scores[own], atol=1e-5)
    assert found.labels[mine].tolist() == labels[own].tolist()
    np.testing.assert_allclose(found.xyxy[mine], boxes[own], atol=0.05)


def test_picodet(paddle):
    import ppdet
    from ppdet.core.workspace import create, load_config, merge_config

    folder = Path(ppdet.__file__).parents[1] / 'configs' / 'picodet'
    config = load_config(str(folder / 'picodet_xs_320_coco_lcnet.yml'))
    merge_config({'pretrain_weights': None, 'use_gpu': False, 'num_classes': 5})
    network = create(config.architecture)
    network.eval()
    head = network.head
    for layer in (*head.head_reg_list, *head.head_cls_list):
        layer.weight.set_value(paddle.randn(layer.weight.shape) * 40)
        layer.bias.set_value(paddle.randn(layer.bias.shape) * 2)
    features = network.neck(network.backbone({'image': paddle.randn([1, 3, *HW])}))
    scores, boxes = (each.numpy() for each in head.forward_eval(features))
    raw = head.forward_eval(features, export_post_process=False)
    wanted = Thresholds(float(np.quantile(scores, 0.98)), iou=1.0, max_detections=10000)
    labels, cells = np.nonzero(scores[0] >= np.float32(wanted.score))
    assert len(labels) > 100
    levels = [each.numpy() for group in raw for each in group]
    for outputs in (
        {f'out{index}': each for index, each in enumerate(levels)},
        {'boxes': boxes, 'scores': scores},
    ):
        found = decode(PICODET, outputs, wanted)
        assert_equal_in_order(found, boxes[0, cells], scores[0, labels, cells], labels)

    rows, number = head.post_process(
        (paddle.to_tensor(scores), paddle.to_tensor(boxes)), paddle.ones([1, 2])
    )[:2]
    rows = rows.numpy()
    assert len(rows) > 10
    outputs = {'rows': rows, 'number': number.numpy()}
    found = decode(PPYOLOE, outputs, Thresholds(0.0, 1.0, 1000))
    assert_equal_in_order(found, rows[:, 2:], rows[:, 1], rows[:, 0].astype(int))
