"""Embeddings, class masks and depth of Hugging Face transformers."""

import numpy as np
import pytest

from trt_ros.families.registry import DEPTHS, SEGMENTERS, TENSORS
from trt_ros.families.semantic import SEMANTIC
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.options import LabeledOptions, PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

SIZE = 128


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
    pipeline = Pipeline.open(LabeledOptions(str(path), backend='onnxruntime'), families=SEGMENTERS)
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

    path = export(
        *(model, (torch.rand(1, 3, size, size),), ['pixel_values'], ['predicted_depth']),
        lambda model, images: model(images).predicted_depth,
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
