"""MaskFormer, Mask2Former, OneFormer and EoMT of transformers."""

from pathlib import Path
import re
from types import SimpleNamespace

import numpy as np
import pytest

from trt_ros.families.registry import SEGMENTERS
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

SIZE, GRID, CLASSES, QUERIES = 96, 24, 7, 20


SWIN = {'embed_dim': 8, 'depths': [1] * 4, 'num_heads': [1, 1, 2, 2], 'window_size': 3}
SMALL = {'encoder_layers': 1, 'num_queries': QUERIES}
EOMT = {'hidden_size': 16, 'num_hidden_layers': 5, 'num_attention_heads': 2, 'patch_size': 16}


def backbone(transformers):
    stages = [f'stage{index}' for index in (1, 2, 3, 4)]
    return transformers.SwinConfig(image_size=SIZE, out_features=stages, **SWIN)


def maskformer(transformers):
    sizes = {f'{part}_ffn_dim': 16 for part in ('encoder', 'decoder')}
    heads = {f'{part}_attention_heads': 2 for part in ('encoder', 'decoder')}
    decoder = transformers.DetrConfig(decoder_layers=1, d_model=32, **sizes, **heads, **SMALL)
    return transformers.MaskFormerForInstanceSegmentation(
        transformers.MaskFormerConfig(
            backbone_config=backbone(transformers),
            decoder_config=decoder,
            fpn_feature_size=32,
            mask_feature_size=32,
            num_labels=CLASSES,
        )
    )


def mask2former(transformers):
    sizes = {name: 32 for name in ('feature_size', 'mask_feature_size', 'hidden_dim')}
    sizes |= {name: 16 for name in ('encoder_feedforward_dim', 'dim_feedforward')}
    config = transformers.Mask2FormerConfig(
        backbone_config=backbone(transformers),
        decoder_layers=2,
        num_attention_heads=2,
        num_labels=CLASSES,
        **sizes,
        **SMALL,
    )
    return transformers.Mask2FormerForUniversalSegmentation(config)


def eomt(transformers):
    return transformers.EomtForUniversalSegmentation(
        transformers.EomtConfig(
            image_size=SIZE, num_blocks=1, num_queries=QUERIES, num_labels=CLASSES, **EOMT
        )
    )


def documented(part):
    """Return indented lines of docs/models.md from one that begins with `part`, without indent."""
    text = (Path(__file__).parents[2] / 'docs' / 'models.md').read_text()
    pattern = rf'^    {re.escape(part)}.*\n(?:(?:    .*)?\n)*?(?=\n\S|\n    \S)'
    (found,) = re.findall(pattern, text, re.MULTILINE)
    return re.sub('^    ', '', found, flags=re.MULTILINE)


@pytest.fixture
def open_pipeline(torch, transformers, opened, tmp_path, monkeypatch):
    """Export an untrained network as documented and open it: open(build, family, decoder)."""
    monkeypatch.chdir(tmp_path)

    def write(build, family, decoder):
        torch.manual_seed(0)
        network = build(transformers).eval()
        names = {'torch': torch, 'network': network}
        exec(documented('class Queries(torch.nn.Module):'), names)
        export = documented('torch.onnx.export(Queries(')
        exec(re.sub(r'3, \d+, \d+', f'3, {SIZE}, {SIZE}', export), names)
        if build is mask2former:
            exec(documented('import onnx'), names)
        return opened('maskformer.onnx', family, SEGMENTERS, decoder=decoder)

    return write


def as_trained(raw):
    """Return outputs with masks and classes as different as trained ones."""
    logits, masks = (raw[f'{name}_queries_logits'].numpy() for name in ('class', 'masks'))
    assert logits.shape == (1, QUERIES, CLASSES + 1) and masks.shape == (1, QUERIES, GRID, GRID)
    rng = np.random.default_rng(0)
    rows, cols = np.mgrid[:GRID, :GRID]
    y, x = rng.uniform(0, GRID, (2, 1, QUERIES, 1, 1))
    masks += 8 - 2 * np.hypot(rows - y, cols - x).astype(np.float32)
    logits += rng.normal(0, 3, logits.shape).astype(np.float32)
    return {'class_queries_logits': logits, 'masks_queries_logits': masks}


def as_torch(torch, outputs):
    tensors = {name: torch.from_numpy(value.copy()) for name, value in outputs.items()}
    return SimpleNamespace(**tensors, patch_offsets=None)


@pytest.mark.parametrize(
    ('build', 'processor', 'share'),
    [
        (maskformer, 'MaskFormerImageProcessorPil', 0.999),
        # These resize the masks before they add them up.
        (mask2former, 'Mask2FormerImageProcessorPil', 0.97),
        (eomt, 'EomtImageProcessorPil', 0.97),
    ],
)
def test_mask_equals_postprocessing_of_exporter(
    torch, transformers, open_pipeline, outputs_of, picture, build, processor, share
):
    pipeline = open_pipeline(build, 'maskformer', 'auto')
    assert pipeline.decoder.class_count == CLASSES
    assert pipeline.infer(picture).labels.shape == (picture.height, picture.width)
    outputs = as_trained(outputs_of('maskformer.onnx', pipeline, picture))
    letterbox = Letterbox.fit(picture.wh, (SIZE, SIZE), 'stretch')
    found = pipeline.decoder(outputs, letterbox, DEFAULT_THRESHOLDS).labels
    size = {'shortest_edge': SIZE, 'longest_edge': SIZE}
    (own,) = getattr(transformers, processor)().post_process_semantic_segmentation(
        as_torch(torch, outputs),
        target_sizes=[(picture.height, picture.width)],
        **({'size': size} if build is eomt else {}),
    )
    assert len(np.unique(own)) > 2
    assert (found == own.numpy()).mean() > share


def test_segments_equal_postprocessing_of_exporter(
    torch, transformers, open_pipeline, outputs_of, picture
):
    pipeline = open_pipeline(eomt, 'maskformer_panoptic', 'maskformer_panoptic')
    outputs = as_trained(outputs_of('maskformer.onnx', pipeline, picture))
    # Where nothing is resized: it resizes the masks, this their probabilities.
    letterbox = Letterbox.fit((GRID, GRID), (SIZE, SIZE), 'stretch')
    found = pipeline.decoder(outputs, letterbox, Thresholds(0.3, 0.5, 100))
    own = transformers.EomtImageProcessorPil().post_process_panoptic_segmentation(
        as_torch(torch, outputs),
        target_sizes=[(GRID, GRID)],
        threshold=0.3,
        size={'shortest_edge': GRID, 'longest_edge': GRID},
    )[0]
    segments = sorted(own['segments_info'], key=lambda each: -each['score'])
    assert len(found) == len(segments) > 2
    assert found.detections.labels.tolist() == [each['label_id'] for each in segments]
    scores = [each['score'] for each in segments]
    np.testing.assert_allclose(found.detections.scores, scores, atol=1e-4)
    painted = found.paint(np.array([each['id'] + 1 for each in segments], np.uint8))
    assert np.array_equal(painted, own['segmentation'].numpy() + 1)
