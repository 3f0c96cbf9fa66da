"""torchvision's detectors, classifiers and segmentation, without weights."""

import numpy as np
import pytest

from trt_ros.families import registry as decoder
from trt_ros.families.semantic import SEMANTIC
from trt_ros.families.vectors import CLASSIFIER
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

CLASSES = 5
ASKED = Thresholds(score=0.9, iou=0.45, max_detections=300)
# Its detectors normalize by themselves and want 0 to 1; what runs without that is given this.
HALVES = {'scale': 1 / 255, 'mean': (0.5, 0.5, 0.5), 'std': (0.5, 0.5, 0.5)}
VGG = {'scale': 1.0, 'mean': (122.99925, 116.9991, 103.9992), 'std': (1.0, 1.0, 1.0)}


@pytest.fixture(scope='session')
def torchvision(torch):
    return pytest.importorskip('torchvision', reason='it builds the networks: pip install it')


@pytest.fixture
def untrained(torch, torchvision, settle, spread, picture):
    """Build a network, spread the outputs of its last layers, and give it and its input."""

    def build(make, preprocess, last, mean, std):
        torch.manual_seed(0)
        model = make(torchvision)
        image = torch.from_numpy(preprocess(picture)[0])
        two = torch.cat([image, image.flip(-1)])  # Of one, some of its layers see one value.

        def run():
            is_detector = 'torchvision.models.detection' in type(model).__module__
            model(list(two) if is_detector else two)

        settle(model, run)
        for layer in last(model):
            spread(layer, run, mean, std)
        return model, image

    return build


SUPPRESS = {'score_thresh': ASKED.score, 'nms_thresh': ASKED.iou}
SIZE_320 = {'min_size': 320, 'max_size': 320}
DETECTORS = {
    'ssdlite320_mobilenet_v3_large': (
        SUPPRESS,
        lambda model: [each[-1] for each in model.head.classification_head.module_list],
        1.5,
    ),
    'fasterrcnn_mobilenet_v3_large_320_fpn': (
        {'box_score_thresh': ASKED.score, **SIZE_320},
        lambda model: [model.roi_heads.box_predictor.cls_score],
        3.0,
    ),
    'ssd300_vgg16': (SUPPRESS, lambda model: model.head.classification_head.module_list, 1.5),
    'fcos_resnet50_fpn': (
        {**SUPPRESS, **SIZE_320},
        lambda model: [
            model.head.classification_head.cls_logits,
            model.head.regression_head.bbox_ctrness,
        ],
        1.2,
    ),
    'retinanet_resnet50_fpn': (
        {**SUPPRESS, **SIZE_320},
        lambda model: [model.head.classification_head.cls_logits],
        0.8,
    ),
}
SIZES = {'ssd300_vgg16': 300}


@pytest.fixture
def detector(untrained):
    """Build a detector by name; give it and its input."""

    def build(name):
        options, last, std = DETECTORS[name]

        def make(torchvision):
            return getattr(torchvision.models.detection, name)(
                weights=None, weights_backbone=None, num_classes=CLASSES, **options
            )

        size = SIZES.get(name, 320)
        return untrained(make, Preprocess((size, size), resize='stretch'), last, 0.0, std)

    return build


@pytest.mark.parametrize('name', DETECTORS)
def test_detector_with_nms_inside(
    detector, export, picture, opened, outputs_of, assert_same, name
):
    model, image = detector(name)

    outputs = ['boxes', 'scores', 'labels']

    def whole(model, images):
        found = model([images[0]])[0]
        return tuple(found[each] for each in outputs)

    path = export(model, (image,), ['images'], outputs, whole)
    pipeline = opened(path, 'boxes', decoder.DETECTORS)
    found = pipeline.infer(picture, ASKED)
    own = outputs_of(path, pipeline, picture).values()
    boxes, scores, labels = (each.numpy() for each in own)
    assert_same(found, boxes * image_scale(picture, image.shape[-1]), scores, labels)


@pytest.mark.parametrize(
    ('name', 'names', 'preprocess'),
    [('ssdlite320_mobilenet_v3_large', CLASSES - 1, HALVES), ('ssd300_vgg16', 0, VGG)],
)  # The number of its priors tells what it is.
def test_ssd_before_its_nms(
    torch, detector, export, picture, opened, assert_same, name, names, preprocess
):
    model, image = detector(name)
    size = image.shape[-1]

    from torchvision.models.detection.image_list import ImageList

    def raw(model, images):
        """What every backend can run: normalized boxes, and scores that begin with background."""
        features = list(model.backbone(images).values())
        head = model.head(features)
        anchors = model.anchor_generator(ImageList(images, [(size, size)]), features)[0]
        boxes = model.box_coder.decode_single(head['bbox_regression'][0], anchors)
        # Clipped, as it does before boxes compete.
        return head['cls_logits'].softmax(-1), (boxes[None] / size).clamp(0, 1)

    image = model.transform(list(image))[0].tensors
    path = export(model, (image,), ['images'], ['scores', 'boxes'], raw)
    labels = tuple(f'class {index}' for index in range(names))
    pipeline = opened(path, 'ssd', decoder.DETECTORS, labels=labels, **preprocess)
    found = pipeline.infer(picture, ASKED)
    with torch.no_grad():
        features = list(model.backbone(image).values())
        own = model.postprocess_detections(
            model.head(features),
            model.anchor_generator(ImageList(image, [(size, size)]), features),
            [(size, size)],
        )[0]
    boxes, scores, labels = (own[name].numpy() for name in ('boxes', 'scores', 'labels'))
    assert_same(found, boxes * image_scale(picture, size), scores, labels - 1)


def image_scale(picture, size):
    return np.float32([picture.width / size, picture.height / size] * 2)


@pytest.mark.parametrize(
    ('name', 'last'),
    [
        ('resnet18', lambda model: [model.fc]),
        ('mobilenet_v3_small', lambda model: [model.classifier[-1]]),
    ],
)
def test_class_scores_are_the_softmax_of_the_logits(
    torch, untrained, export, picture, opened, outputs_of, name, last
):
    size = 224
    wanted = Preprocess((size, size), **CLASSIFIER.preprocess)

    def make(torchvision):
        return getattr(torchvision.models, name)(weights=None, num_classes=10)

    # A layer of no places: it keeps what it says, ten times as strong.
    model, image = untrained(make, wanted, lambda model: [], 0, 0)
    with torch.no_grad():
        for layer in last(model):
            layer.weight.mul_(10)
            layer.bias.mul_(10)
    path = export(model, (image,), ['images'], ['logits'])
    pipeline = opened(path, 'classifier', decoder.CLASSIFIERS)
    np.testing.assert_array_equal(pipeline.preprocess(picture)[0], image.numpy())
    found = pipeline.infer(picture)
    own = outputs_of(path, pipeline, picture)['logits'][0].softmax(0)
    assert own.max() - own.min() > 0.02
    np.testing.assert_allclose(found.scores, own.numpy(), atol=1e-3)
    assert found.top(10).tolist() == own.argsort(descending=True).tolist()


@pytest.mark.parametrize(
    ('name', 'last'),
    [
        ('deeplabv3_mobilenet_v3_large', lambda model: [model.classifier[-1]]),
        (
            'lraspp_mobilenet_v3_large',
            lambda model: [model.classifier.low_classifier, model.classifier.high_classifier],
        ),
        ('fcn_resnet50', lambda model: [model.classifier[-1]]),
    ],
)
def test_mask_is_argmax_of_scores(
    torch, untrained, export, picture, opened, outputs_of, name, last
):
    size = 128
    wanted = Preprocess((size, size), **SEMANTIC.preprocess)

    def make(torchvision):
        return getattr(torchvision.models.segmentation, name)(
            weights=None, weights_backbone=None, num_classes=CLASSES
        )

    model, image = untrained(make, wanted, last, 0.0, 1.0)

    path = export(
        *(model, (image,), ['images'], ['out']), lambda model, images: model(images)['out']
    )
    pipeline = opened(path, 'semantic', decoder.SEGMENTERS)
    assert pipeline.decoder.class_count == CLASSES

    # As large as the network: the best class of each of its pixels.
    rows, columns = (
        np.linspace(0, count - 1, size).astype(int) for count in (picture.height, picture.width)
    )
    small = picture.data.reshape(picture.height, picture.width, 3)[rows][:, columns]
    for frame in (Frame.from_pixels(small, 'rgb8'), picture):
        scores = torch.nn.functional.interpolate(
            outputs_of(path, pipeline, frame)['out'],
            (frame.height, frame.width),
            mode='bilinear',
            align_corners=False,
        )[0]
        best, second = scores.topk(2, dim=0).values
        sure = (best - second > 1e-4).numpy()
        found = pipeline.infer(frame).labels
        assert len(np.unique(found)) > 1
        assert sure.mean() > 0.99
        assert (found == scores.argmax(0).numpy())[sure].all()
