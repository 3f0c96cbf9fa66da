"""RF-DETR as its own package builds and exports it, without weights."""

import numpy as np
import pytest

from trt_ros.families.detr import RFDETR
from trt_ros.families.registry import DETECTORS, SEGMENTERS
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZE, CLASSES, THRESHOLD = 192, 5, 0.3


@pytest.fixture
def rfdetr(torch):
    return pytest.importorskip('rfdetr', reason='its exporter is under test: pip install it')


@pytest.fixture
def exported(torch, rfdetr, spread, picture, tmp_path):
    """Export a network by its class's name, the outputs of its last layers spread."""

    def export(name):
        torch.manual_seed(0)
        model = getattr(rfdetr, name)(
            pretrain_weights=None,
            num_classes=CLASSES,
            resolution=SIZE,
            positional_encoding_size=SIZE // 16,
            device='cpu',
        )
        network = model.model.model.eval()
        image = torch.from_numpy(Preprocess((SIZE, SIZE), **RFDETR.preprocess)(picture)[0])
        spread(network.class_embed, lambda: network(image), -3.0, 1.5)
        spread(network.bbox_embed.layers[-1], lambda: network(image), 0.0, 0.5)
        return model.export(output_dir=str(tmp_path), verbose=False)

    return export


@pytest.mark.parametrize(
    ('name', 'labels'),
    [
        ('RFDETRNano', ()),
        ('RFDETRNano', tuple(f'class {index}' for index in range(CLASSES))),
        ('RFDETRSegNano', ()),
    ],
)
def test_decoder_equals_postprocessing_of_exporter(
    exported, picture, opened, outputs_of, assert_same, name, labels
):
    """Trained on one's own classes, its last logit is none; named, the classes are the others."""
    decode = pytest.importorskip('rfdetr.export._runtime.decode', reason='newer RF-DETR has it')
    path = exported(name)
    pipeline = opened(path, 'rfdetr', DETECTORS, labels=labels)
    assert pipeline.decoder.class_count == (CLASSES if labels else CLASSES + 1)
    found = pipeline.infer(picture, Thresholds(score=THRESHOLD, max_detections=300))

    outputs = outputs_of(path, pipeline, picture)
    own = decode.decode_detections(
        outputs['dets'][0].numpy(),
        outputs['labels'][0].numpy(),
        (picture.width, picture.height),
        threshold=THRESHOLD,
        background_class_id=-1 if labels else None,
    )
    boxes = own.xyxy.clip(0, np.tile([picture.width, picture.height], 2))
    assert_same(found, boxes, own.confidence, own.class_id)


def test_masks_equal_the_postprocessing_of_the_exporter(
    torch, exported, picture, opened, outputs_of, assert_same
):
    path = exported('RFDETRSegNano')
    postprocess = pytest.importorskip('rfdetr.models.postprocess', reason='newer RF-DETR has it')
    pipeline = opened(path, 'rfdetr_seg', SEGMENTERS)
    found = pipeline.infer(picture, Thresholds(score=THRESHOLD, max_detections=300))
    outputs = outputs_of(path, pipeline, picture)
    names = {'labels': 'pred_logits', 'dets': 'pred_boxes', 'masks': 'pred_masks'}
    own = postprocess.PostProcess()(
        {theirs: outputs[name] for name, theirs in names.items()},
        torch.tensor([[picture.height, picture.width]]),
        score_threshold=THRESHOLD,
    )[0]
    boxes, scores, labels = (own[name].numpy() for name in ('boxes', 'scores', 'labels'))
    assert_same(found.detections, boxes, scores, labels)
    order = np.argsort(-scores, kind='stable')
    for index, mask in enumerate(own['masks'].numpy()[order, 0]):
        alone = found.take(np.array([index])).paint(np.ones(1, np.uint8))
        assert np.count_nonzero(alone != mask) <= 2  # Interpolated values of 0.
    pixels = np.count_nonzero(own['masks'].numpy(), axis=(1, 2, 3))
    assert len(np.unique(pixels)) > 2


def test_preprocessing_equals_the_exporter(rfdetr, picture):
    images = pytest.importorskip('PIL.Image', reason='RF-DETR takes its images')
    its = pytest.importorskip('rfdetr.export._runtime.preprocess', reason='newer RF-DETR has it')
    pixels = picture.data.reshape(picture.height, picture.width, 3)
    theirs = its.preprocess_to_nchw(images.fromarray(pixels), SIZE, SIZE, 3)
    preprocess = Preprocess((SIZE, SIZE), **RFDETR.preprocess)
    steps = np.abs(preprocess(picture)[0] - theirs) * 255 * np.reshape(preprocess.std, (3, 1, 1))
    assert steps.max() < 1
