"""Object detectors of Hugging Face transformers: raw and deployed exports."""

from types import SimpleNamespace

import numpy as np
import pytest

from trt_ros.families.registry import DETECTORS
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZE = 128

QUERIES, CLASSES, LAYERS = 20, 5, 2

THRESHOLD = 0.3

SMALL_RESNET = {
    'embedding_size': 16,
    'hidden_sizes': [16, 24, 32, 48],
    'depths': [1] * 4,
    'layer_type': 'basic',
    'out_features': ['stage2', 'stage3', 'stage4'],
}
SMALL_HGNET = {
    'stem_channels': [3, 8, 8],
    'stage_in_channels': [8, 16, 24, 32],
    'stage_mid_channels': [8] * 4,
    'stage_out_channels': [16, 24, 32, 48],
    'stage_num_blocks': [1] * 4,
    'stage_numb_of_layers': [1] * 4,
    'stage_downsample': [False, True, True, True],
    'stage_light_block': [False] * 4,
    'stage_kernel_size': [3] * 4,
    'hidden_sizes': [16, 24, 32, 48],
    'depths': [1] * 4,
    'out_features': ['stage2', 'stage3', 'stage4'],
}
SMALL = {
    'd_model': 32,
    'encoder_layers': 1,
    'decoder_layers': LAYERS,
    'encoder_ffn_dim': 32,
    'decoder_ffn_dim': 32,
    'num_queries': QUERIES,
    'num_labels': CLASSES,
}
SMALL_RT = {
    **SMALL,
    'encoder_hidden_dim': 32,
    'decoder_in_channels': [32] * 3,
    'encoder_in_channels': [24, 32, 48],
    'anchor_image_size': [SIZE, SIZE],
    'decoder_attention_heads': 4,
    'encoder_attention_heads': 4,
    'freeze_backbone_batch_norms': False,
}
SMALL_YOLOS = {
    'hidden_size': 32,
    'num_hidden_layers': 1,
    'num_attention_heads': 2,
    'intermediate_size': 32,
    'image_size': [SIZE, SIZE],
    'patch_size': 16,
    'num_detection_tokens': QUERIES,
    'num_labels': CLASSES,
}


def build(transformers, name):
    if name == 'Yolos':
        config = SMALL_YOLOS
    elif name == 'DFine':
        config = {'backbone_config': transformers.HGNetV2Config(**SMALL_HGNET), **SMALL_RT}
    elif name.startswith('RTDetr'):
        config = {'backbone_config': transformers.RTDetrResNetConfig(**SMALL_RESNET), **SMALL_RT}
    else:
        backbone = transformers.ResNetConfig(**{**SMALL_RESNET, 'out_features': ['stage4']})
        config = {'backbone_config': backbone, 'backbone': None, **SMALL}
        config |= {'use_timm_backbone': False, 'use_pretrained_backbone': False}
    config = getattr(transformers, f'{name}Config')(**config)
    model = getattr(transformers, f'{name}ForObjectDetection')(config)
    if name == 'Yolos':  # They begin as zero: all alike.
        model.vit.embeddings.detection_tokens.data.normal_()
    return model


def shake(torch, settle, spread, model, pixels):
    """Spread the scores and the boxes over the queries."""

    def run():
        model(torch.from_numpy(pixels))

    settle(model, run)
    layers = dict(model.named_modules())
    for scores, boxes in (
        (
            f'model.decoder.class_embed.{LAYERS - 1}',
            f'model.decoder.bbox_embed.{LAYERS - 1}.layers.2',
        ),
        ('class_embed', 'bbox_predictor.layers.2'),
        ('class_labels_classifier', 'bbox_predictor.layers.2'),
        ('class_labels_classifier.layers.2', 'bbox_predictor.layers.2'),
    ):
        if hasattr(layers.get(scores), 'bias'):
            spread(layers[scores], run, 0.0, 1.5)
            spread(layers[boxes], run, 0.0, 0.5)
    freeze_positions(model, run)


def freeze_positions(model, run):
    """Make constants of what is traced with a cosine in float64, which ONNX Runtime lacks."""

    def keep(layer, inputs, output):
        layer.forward = lambda *args, **kwargs: output.detach()

    layers = [
        layer
        for name, layer in model.named_modules()
        if name.endswith('aifi.0.position_embedding')
    ]
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    run()
    for hook in hooks:
        hook.remove()


#: Of a box from its center.
SIDES = (-1.0, -1.0, 1.0, 1.0)


def only_heads(model, images):
    outputs = model(images)
    return outputs.logits, outputs.pred_boxes


def corners(boxes):
    center, size = boxes[..., :2], boxes[..., 2:]
    return center.repeat(1, 1, 2) + (size / 2).repeat(1, 1, 2) * boxes.new_tensor(SIDES)


def deployed(model, images, orig_target_sizes):
    """RT-DETR's own deployment: the postprocessing inside, and the image's size as an input."""
    outputs = model(images)
    boxes = corners(outputs.pred_boxes)
    scores, index = outputs.logits.sigmoid().flatten(1).topk(QUERIES, dim=-1)
    boxes = boxes * orig_target_sizes.repeat(1, 2).unsqueeze(1)
    boxes = boxes.gather(1, (index // CLASSES).unsqueeze(-1).repeat(1, 1, 4))
    return index % CLASSES, boxes, scores


def deployed_detr(model, images, orig_target_sizes):
    """The same of DETR: softmax, and the best class of each query that is not 'none'."""
    outputs = model(images)
    boxes = corners(outputs.pred_boxes)
    scores, labels = outputs.logits.softmax(-1)[..., :-1].max(-1)
    return labels, boxes * orig_target_sizes.repeat(1, 2).unsqueeze(1), scores


@pytest.mark.parametrize(
    ('name', 'family', 'processor', 'is_deployed'),
    [
        ('RTDetr', 'rtdetr', 'RTDetr', False),
        ('RTDetrV2', 'rtdetr', 'RTDetr', False),
        ('DFine', 'rtdetr', 'RTDetr', False),
        ('RTDetr', 'rtdetr', 'RTDetr', True),
        ('Detr', 'detr', 'Detr', False),
        ('Detr', 'rtdetr', 'Detr', True),
        ('Yolos', 'detr', 'Yolos', False),
        ('TableTransformer', 'detr', 'Detr', False),
        ('ConditionalDetr', 'rfdetr', 'ConditionalDetr', False),
    ],
)
def test_decoder_equals_postprocessing_of_exporter(
    torch,
    transformers,
    settle,
    spread,
    export,
    picture,
    opened,
    outputs_of,
    assert_same,
    name,
    family,
    processor,
    is_deployed,
):
    torch.manual_seed(0)
    model = build(transformers, name)
    wanted = next(each.preprocess for each in DETECTORS if each.name == family)
    pixels = Preprocess((SIZE, SIZE), **wanted)(picture)[0]
    shake(torch, settle, spread, model, pixels)
    image = torch.from_numpy(pixels)
    heads = (image,), ['pixel_values'], ['logits', 'pred_boxes']
    if is_deployed:
        deploy = deployed_detr if name == 'Detr' else deployed
        path = export(
            model,
            (image, torch.tensor([[SIZE, SIZE]])),
            ['images', 'orig_target_sizes'],
            ['labels', 'boxes', 'scores'],
            deploy,
        )
    else:
        path = export(model, *heads, only_heads)
    labels = () if is_deployed else tuple(f'class {index}' for index in range(CLASSES))
    by_name = family if family == 'rfdetr' else 'auto'  # As docs/models.md says.
    pipeline = opened(path, family, labels=labels, decoder=by_name)

    found = pipeline.infer(picture, Thresholds(score=THRESHOLD, iou=0.5, max_detections=100))

    # The same outputs through the exporter's own postprocessing.
    if is_deployed:  # From the same network without; torch itself computes a little otherwise.
        path = export(model, *heads, only_heads)
    own = getattr(transformers, f'{processor}ImageProcessorPil')().post_process_object_detection(
        SimpleNamespace(**outputs_of(path, pipeline, picture)),
        threshold=THRESHOLD,
        target_sizes=[(picture.height, picture.width)],
        **({'top_k': QUERIES} if family == 'rfdetr' else {}),
    )[0]
    boxes = own['boxes'].numpy().clip(0, np.tile([picture.width, picture.height], 2))
    assert_same(found, boxes, own['scores'].numpy(), own['labels'].numpy())
