"""Detectors, depth, embeddings and SegFormer, as transformers builds and torch exports them."""

from __future__ import annotations

import numpy as np
import pytest

from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.options import LabelledOptions, PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.decoders.registry import DEPTHS, FAMILIES, SEGMENTERS, TENSORS
from trt_ros.vision.decoders.semantic import SEMANTIC
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZE = 128
QUERIES, CLASSES, LAYERS = 20, 5, 2
THRESHOLD = 0.3
SMALL_RESNET = {
    'embedding_size': 16,
    'hidden_sizes': [16, 24, 32, 48],
    'depths': [1, 1, 1, 1],
    'layer_type': 'basic',
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
    'decoder_in_channels': [32, 32, 32],
    'encoder_in_channels': [24, 32, 48],
    'anchor_image_size': [SIZE, SIZE],
    'decoder_attention_heads': 4,
    'encoder_attention_heads': 4,
    'freeze_backbone_batch_norms': False,
}


@pytest.fixture(scope='session')
def transformers(torch):
    try:
        import torchvision  # noqa: F401
    except ImportError:
        pass  # It is not needed.
    except RuntimeError as error:
        pytest.skip(f'transformers takes no torchvision that does not fit torch: {error}')
    return pytest.importorskip('transformers', reason='it builds the networks: pip install it')


def rtdetr(transformers):
    config = transformers.RTDetrConfig(
        backbone_config=transformers.RTDetrResNetConfig(**SMALL_RESNET), **SMALL_RT
    )
    return transformers.RTDetrForObjectDetection(config)


def rtdetr_v2(transformers):
    config = transformers.RTDetrV2Config(
        backbone_config=transformers.RTDetrResNetConfig(**SMALL_RESNET), **SMALL_RT
    )
    return transformers.RTDetrV2ForObjectDetection(config)


def dfine(transformers):
    backbone = transformers.HGNetV2Config(
        stem_channels=[3, 8, 8],
        stage_in_channels=[8, 16, 24, 32],
        stage_mid_channels=[8, 8, 8, 8],
        stage_out_channels=[16, 24, 32, 48],
        stage_num_blocks=[1, 1, 1, 1],
        stage_numb_of_layers=[1, 1, 1, 1],
        stage_downsample=[False, True, True, True],
        stage_light_block=[False] * 4,
        stage_kernel_size=[3, 3, 3, 3],
        hidden_sizes=[16, 24, 32, 48],
        depths=[1, 1, 1, 1],
        out_features=['stage2', 'stage3', 'stage4'],
    )
    return transformers.DFineForObjectDetection(
        transformers.DFineConfig(backbone_config=backbone, **SMALL_RT)
    )


def yolos(transformers):
    model = transformers.YolosForObjectDetection(
        transformers.YolosConfig(
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=[SIZE, SIZE],
            patch_size=16,
            num_detection_tokens=QUERIES,
            num_labels=CLASSES,
        )
    )
    model.vit.embeddings.detection_tokens.data.normal_()  # They begin as zero: all alike.
    return model


def small_detr(transformers, name):
    backbone = transformers.ResNetConfig(**{**SMALL_RESNET, 'out_features': ['stage4']})
    config = getattr(transformers, f'{name}Config')(
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        **SMALL,
    )
    return getattr(transformers, f'{name}ForObjectDetection')(config)


def detr(transformers):
    return small_detr(transformers, 'Detr')


def table_transformer(transformers):
    return small_detr(transformers, 'TableTransformer')


def conditional(transformers):
    return small_detr(transformers, 'ConditionalDetr')


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


def only_heads(torch, model):
    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images):
            outputs = self.model(images)
            return outputs.logits, outputs.pred_boxes

    return Heads()


def deployed(torch, model):
    """RT-DETR's own deployment: the postprocessing inside, and the image's size as an input."""

    class Deployed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images, orig_target_sizes):
            outputs = self.model(images)
            cx, cy, w, h = outputs.pred_boxes.unbind(-1)
            boxes = torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], dim=-1)
            scores, index = outputs.logits.sigmoid().flatten(1).topk(QUERIES, dim=-1)
            boxes = boxes * orig_target_sizes.repeat(1, 2).unsqueeze(1)
            boxes = boxes.gather(1, (index // CLASSES).unsqueeze(-1).repeat(1, 1, 4))
            return index % CLASSES, boxes, scores

    return Deployed()


def deployed_detr(torch, model):
    """The same of DETR: softmax, and the best class of each query that is not 'none'."""

    class Deployed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images, orig_target_sizes):
            outputs = self.model(images)
            cx, cy, w, h = outputs.pred_boxes.unbind(-1)
            boxes = torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], dim=-1)
            scores, labels = outputs.logits.softmax(-1)[..., :-1].max(-1)
            return labels, boxes * orig_target_sizes.repeat(1, 2).unsqueeze(1), scores

    return Deployed()


BUILDS = [
    (rtdetr, 'rtdetr', 'RTDetrImageProcessorPil', False),
    (rtdetr_v2, 'rtdetr', 'RTDetrImageProcessorPil', False),
    (dfine, 'rtdetr', 'RTDetrImageProcessorPil', False),
    (rtdetr, 'rtdetr', 'RTDetrImageProcessorPil', True),
    (detr, 'detr', 'DetrImageProcessorPil', False),
    (detr, 'rtdetr', 'DetrImageProcessorPil', True),
    (yolos, 'detr', 'YolosImageProcessorPil', False),
    (table_transformer, 'detr', 'DetrImageProcessorPil', False),
    (conditional, 'rfdetr', 'ConditionalDetrImageProcessorPil', False),
]


@pytest.mark.slow
@pytest.mark.parametrize(('build', 'family', 'processor', 'is_deployed'), BUILDS)
def test_decoder_equals_postprocessing_of_exporter(
    torch,
    transformers,
    settle,
    spread,
    export,
    picture,
    assert_same,
    build,
    family,
    processor,
    is_deployed,
):
    torch.manual_seed(0)
    model = build(transformers)
    wanted = next(each.preprocess for each in FAMILIES if each.name == family)
    pixels = Preprocess((SIZE, SIZE), **wanted)(picture)[0]
    shake(torch, settle, spread, model, pixels)
    image = torch.from_numpy(pixels)
    if is_deployed:
        deploy = deployed_detr if build is detr else deployed
        path = export(
            deploy(torch, model),
            (image, torch.tensor([[SIZE, SIZE]])),
            ['images', 'orig_target_sizes'],
            ['labels', 'boxes', 'scores'],
        )
    else:
        path = export(
            only_heads(torch, model), (image,), ['pixel_values'], ['logits', 'pred_boxes']
        )
    labels = () if is_deployed else tuple(f'class {index}' for index in range(CLASSES))
    by_name = family if family == 'rfdetr' else 'auto'  # As docs/models.md says.
    pipeline = Pipeline.open(
        LabelledOptions(str(path), backend='onnxruntime', labels=labels, decoder=by_name)
    )
    assert pipeline.decoder.name == family
    pixels, _ = pipeline.preprocess(picture)

    found = pipeline.infer(picture, Thresholds(score=THRESHOLD, iou=0.5, max_detections=100))

    # The same outputs through the exporter's own postprocessing.
    if is_deployed:  # From the same network without; torch itself computes a little otherwise.
        path = export(
            only_heads(torch, model), (image,), ['pixel_values'], ['logits', 'pred_boxes']
        )
    outputs = OnnxRuntimeRunner.open(path).infer({'pixel_values': pixels})
    heads = [torch.from_numpy(outputs[name]) for name in ('logits', 'pred_boxes')]
    own = getattr(transformers, processor)().post_process_object_detection(
        type('Outputs', (), {'logits': heads[0], 'pred_boxes': heads[1]})(),
        threshold=THRESHOLD,
        target_sizes=[(picture.height, picture.width)],
        **({'top_k': QUERIES} if family == 'rfdetr' else {}),
    )[0]
    boxes = own['boxes'].numpy().clip(0, np.tile([picture.width, picture.height], 2))
    assert_same(found, boxes, own['scores'].numpy(), own['labels'].numpy())
    pipeline.close()


def clip(transformers):
    return 64, transformers.CLIPVisionModelWithProjection(
        transformers.CLIPVisionConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=64,
            patch_size=16,
            projection_dim=24,
        )
    )


def dinov2(transformers):
    return 70, transformers.Dinov2Model(
        transformers.Dinov2Config(
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            mlp_ratio=2,
            image_size=70,
            patch_size=14,
        )
    )


def siglip(transformers):
    return 64, transformers.SiglipVisionModel(
        transformers.SiglipVisionConfig(
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=64,
            patch_size=16,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ('build', 'names'),
    [
        (clip, ['image_embeds', 'tokens']),
        (dinov2, ['tokens', 'pooler_output']),
        (siglip, ['tokens', 'pooler_output']),
    ],
)
def test_embedding_equals_that_of_exporter(torch, transformers, export, picture, build, names):
    """Exported as docs/models.md says."""
    torch.manual_seed(0)
    size, model = build(transformers)
    path = export(model, (torch.rand(1, 3, size, size),), ['image'], names)
    pipeline = Pipeline.open(PipelineOptions(str(path), backend='onnxruntime'), families=TENSORS)
    assert pipeline.decoder.name == 'embedding'
    ((name, found),) = pipeline.infer(picture).items()
    assert name == names['tokens' in names[0]]
    with torch.no_grad():
        own = model(torch.from_numpy(pipeline.preprocess(picture)[0]), return_dict=True)[name]
    assert own.shape == (1, 24)
    np.testing.assert_allclose(found, own.numpy(), atol=1e-4)
    pipeline.close()


@pytest.mark.slow
def test_mask_equals_postprocessing_of_exporter(torch, transformers, export, picture, spread):
    torch.manual_seed(0)
    model = transformers.SegformerForSemanticSegmentation(
        transformers.SegformerConfig(
            num_labels=7,
            depths=[1, 1, 1, 1],
            hidden_sizes=[8, 16, 24, 32],
            num_attention_heads=[1, 1, 2, 2],
            decoder_hidden_size=16,
        )
    ).eval()
    image = torch.from_numpy(Preprocess((SIZE, SIZE), **SEMANTIC.preprocess)(picture)[0])
    spread(model.decode_head.classifier, lambda: model(image), 0.0, 2.0)
    path = export(model, (image,), ['pixel_values'], ['logits'])
    pipeline = Pipeline.open(
        LabelledOptions(str(path), backend='onnxruntime'), families=SEGMENTERS
    )
    assert (pipeline.decoder.name, pipeline.decoder.class_count) == ('semantic', 7)
    found = pipeline.infer(picture).labels
    logits = torch.from_numpy(
        OnnxRuntimeRunner.open(path)
        .infer({'pixel_values': pipeline.preprocess(picture)[0]})['logits']
        .copy()
    )
    own = (
        transformers.SegformerImageProcessorPil()
        .post_process_semantic_segmentation(
            type('Outputs', (), {'logits': logits})(),
            target_sizes=[(picture.height, picture.width)],
        )[0]
        .numpy()
    )
    assert len(np.unique(own)) > 3
    assert (found != own).mean() < 1e-3  # Where two are as good.
    pipeline.close()


def zoedepth(transformers):
    backbone = transformers.BeitConfig(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=96,
        patch_size=16,
        reshape_hidden_states=False,
        use_relative_position_bias=True,
        out_features=['stage1', 'stage2', 'stage3', 'stage4'],
    )
    return 96, transformers.ZoeDepthForDepthEstimation(
        transformers.ZoeDepthConfig(
            backbone_config=backbone,
            neck_hidden_sizes=[8, 8, 16, 16],
            fusion_hidden_size=16,
            bottleneck_features=16,
            num_relative_features=8,
            bin_embedding_dim=16,
            num_attractors=[4, 2, 2, 1],
        )
    )


def dpt(transformers):
    return 96, transformers.DPTForDepthEstimation(
        transformers.DPTConfig(
            hidden_size=32,
            num_hidden_layers=4,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=96,
            patch_size=16,
            backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[8, 8, 16, 16],
            fusion_hidden_size=16,
            head_in_index=-1,
        )
    )


def depth_anything(transformers):
    backbone = transformers.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        mlp_ratio=2,
        image_size=70,
        patch_size=14,
        out_features=['stage1', 'stage2', 'stage3', 'stage4'],
        reshape_hidden_states=False,
        apply_layernorm=True,
    )
    return 70, transformers.DepthAnythingForDepthEstimation(
        transformers.DepthAnythingConfig(
            backbone_config=backbone,
            reassemble_hidden_size=32,
            patch_size=14,
            neck_hidden_sizes=[8, 8, 16, 16],
            fusion_hidden_size=16,
            head_hidden_size=8,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize('build', [dpt, depth_anything, zoedepth])
def test_depth_equals_postprocessing_of_exporter(torch, transformers, export, picture, build):
    torch.manual_seed(0)
    size, model = build(transformers)
    for weight in model.parameters():  # They begin so small that nothing is left at the end.
        weight.data.normal_(0, 0.3)
    if build is not zoedepth:
        layers = [layer for layer in model.head.modules() if isinstance(layer, torch.nn.Conv2d)]
        layers[-1].bias.data.fill_(3.0)  # Before a ReLU.

    class OnlyDepth(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images):
            return self.model(images).predicted_depth

    path = export(
        OnlyDepth(), (torch.rand(1, 3, size, size),), ['pixel_values'], ['predicted_depth']
    )
    pipeline = Pipeline.open(PipelineOptions(str(path), backend='onnxruntime'), families=DEPTHS)
    assert pipeline.decoder.name == 'depth'
    processor = transformers.DPTImageProcessorPil()
    small = Frame.from_pixels(
        np.ascontiguousarray(
            picture.data.reshape(picture.height, picture.width, 3)[:size, 100 : 100 + size]
        ),
        'rgb8',
    )
    runner = OnnxRuntimeRunner.open(path)
    for frame in (small, picture):
        found = pipeline.infer(frame).values
        depth = runner.infer({'pixel_values': pipeline.preprocess(frame)[0]})['predicted_depth']
        assert depth.std() > 0.1
        own = processor.post_process_depth_estimation(
            type('Outputs', (), {'predicted_depth': torch.from_numpy(depth)})(),
            target_sizes=[(frame.height, frame.width)],
        )[0]['predicted_depth'].numpy()
        # It resizes bicubically, this bilinearly: the same where nothing is resized.
        allowed = 1e-5 if frame is small else 0.02
        assert np.abs(found - own).mean() <= allowed * (own.max() - own.min())
    pipeline.close()
