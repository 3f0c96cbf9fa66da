"""Embeddings, class masks and depth of Hugging Face transformers."""

from types import SimpleNamespace

import numpy as np
import pytest

from trt_ros.families.registry import DEPTHS, SEGMENTERS, TENSORS
from trt_ros.families.semantic import SEMANTIC
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

SIZE = 128


HEADS = {'num_attention_heads': 2, 'intermediate_size': 32}
PATCHES = {'image_size': 64, 'patch_size': 16, 'num_hidden_layers': 2, **HEADS}
DINO = {'num_attention_heads': 2, 'mlp_ratio': 2, 'image_size': 70, 'patch_size': 14}


@pytest.mark.parametrize(
    ('network', 'config', 'sizes', 'names'),
    [
        (
            'CLIPVisionModelWithProjection',
            'CLIPVisionConfig',
            {'hidden_size': 32, 'projection_dim': 24, **PATCHES},
            ['image_embeds', 'tokens'],
        ),
        (
            'Dinov2Model',
            'Dinov2Config',
            {'hidden_size': 24, 'num_hidden_layers': 2, **DINO},
            ['tokens', 'pooler_output'],
        ),
        (
            'SiglipVisionModel',
            'SiglipVisionConfig',
            {'hidden_size': 24, **PATCHES},
            ['tokens', 'pooler_output'],
        ),
    ],
)
def test_embedding_equals_that_of_exporter(
    torch, transformers, export, picture, opened, network, config, sizes, names
):
    """Exported as docs/models.md says."""
    torch.manual_seed(0)
    model = getattr(transformers, network)(getattr(transformers, config)(**sizes))
    image = torch.rand(1, 3, sizes['image_size'], sizes['image_size'])
    pipeline = opened(export(model, (image,), ['image'], names), 'embedding', TENSORS)
    ((name, found),) = pipeline.infer(picture).items()
    assert name == names['tokens' in names[0]]
    with torch.no_grad():
        own = model(torch.from_numpy(pipeline.preprocess(picture)[0]), return_dict=True)[name]
    assert own.shape == (1, 24)
    np.testing.assert_allclose(found, own.numpy(), atol=1e-4)


def test_mask_equals_postprocessing_of_exporter(
    torch, transformers, export, picture, opened, outputs_of, spread
):
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
    pipeline = opened(path, 'semantic', SEGMENTERS)
    assert pipeline.decoder.class_count == 7
    found = pipeline.infer(picture).labels
    (own,) = transformers.SegformerImageProcessorPil().post_process_semantic_segmentation(
        SimpleNamespace(**outputs_of(path, pipeline, picture)),
        target_sizes=[(picture.height, picture.width)],
    )
    own = own.numpy()
    assert len(np.unique(own)) > 3
    assert (found != own).mean() < 1e-3  # Where two are as good.


BACKBONE = {'hidden_size': 32, 'num_hidden_layers': 4}
STAGES = {'out_features': ['stage1', 'stage2', 'stage3', 'stage4'], 'reshape_hidden_states': False}
NECK = {'neck_hidden_sizes': [8, 8, 16, 16], 'fusion_hidden_size': 16}
VIT = {'image_size': 96, 'patch_size': 16, **BACKBONE, **HEADS}


def zoedepth(transformers):
    backbone = transformers.BeitConfig(use_relative_position_bias=True, **STAGES, **VIT)
    return 96, transformers.ZoeDepthForDepthEstimation(
        transformers.ZoeDepthConfig(
            backbone_config=backbone,
            bottleneck_features=16,
            num_relative_features=8,
            bin_embedding_dim=16,
            num_attractors=[4, 2, 2, 1],
            **NECK,
        )
    )


def dpt(transformers):
    config = transformers.DPTConfig(
        backbone_out_indices=[0, 1, 2, 3], head_in_index=-1, **NECK, **VIT
    )
    return 96, transformers.DPTForDepthEstimation(config)


def depth_anything(transformers):
    backbone = transformers.Dinov2Config(apply_layernorm=True, **STAGES, **BACKBONE, **DINO)
    return 70, transformers.DepthAnythingForDepthEstimation(
        transformers.DepthAnythingConfig(
            backbone_config=backbone,
            reassemble_hidden_size=32,
            patch_size=14,
            head_hidden_size=8,
            **NECK,
        )
    )


@pytest.mark.parametrize('build', [dpt, depth_anything, zoedepth])
def test_depth_equals_postprocessing_of_exporter(
    torch, transformers, export, picture, opened, outputs_of, build
):
    torch.manual_seed(0)
    size, model = build(transformers)
    for weight in model.parameters():  # They begin so small that nothing is left at the end.
        weight.data.normal_(0, 0.3)
    if build is not zoedepth:
        layers = [layer for layer in model.head.modules() if isinstance(layer, torch.nn.Conv2d)]
        layers[-1].bias.data.fill_(3.0)  # Before a ReLU.

    path = export(
        *(model, (torch.rand(1, 3, size, size),), ['pixel_values'], ['predicted_depth']),
        lambda model, images: model(images).predicted_depth,
    )
    pipeline = opened(path, 'depth', DEPTHS)
    processor = transformers.DPTImageProcessorPil()
    small = Frame.from_pixels(
        np.ascontiguousarray(
            picture.data.reshape(picture.height, picture.width, 3)[:size, 100 : 100 + size]
        ),
        'rgb8',
    )
    for frame in (small, picture):
        found = pipeline.infer(frame).values
        depth = outputs_of(path, pipeline, frame)['predicted_depth']
        assert depth.std() > 0.1
        own = processor.post_process_depth_estimation(
            SimpleNamespace(predicted_depth=depth), target_sizes=[(frame.height, frame.width)]
        )[0]['predicted_depth'].numpy()
        # It resizes bicubically, this bilinearly: the same where nothing is resized.
        allowed = 1e-5 if frame is small else 0.02
        assert np.abs(found - own).mean() <= allowed * (own.max() - own.min())
