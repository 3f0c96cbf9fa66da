"""ViTPose, as transformers builds it and torch exports it."""

from contextlib import closing
from pathlib import Path
import re

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.letterbox import Letterbox

HW, GRID = (256, 192), (64, 48)
#: Boxes in the picture as COCO writes them: left, top, width, height.
BOXES = [(40.0, 30.0, 60.0, 100.0), (150.0, 20.0, 120.0, 90.0), (250.0, 100.0, 90.0, 100.0)]


@pytest.fixture(scope='module')
def transformers(torch):
    pytest.importorskip('scipy', reason='transformers decodes ViTPose with it: pip install scipy')
    return pytest.importorskip('transformers', reason='it builds the networks: pip install it')


@pytest.fixture(scope='module')
def processor(transformers):
    height, width = HW
    return transformers.VitPoseImageProcessor(size={'height': height, 'width': width})


def regions():
    return np.array([(x + w / 2, y + h / 2, w, h, 0.0) for x, y, w, h in BOXES])


def in_input_pixels(keypoints, box):
    """Undo the placement of the exporter's results: its outer cells are the region's edges."""
    x, y, width, height = box
    size = 1.25 * max(width / HW[1], height / HW[0]) * np.array([HW[1], HW[0]])
    corner = np.array([x + width / 2, y + height / 2]) - size / 2
    return (keypoints - corner) / size * (np.array([HW[1], HW[0]]) - 1) + 0.5


def decoded_by_exporter(torch, processor, heatmaps):
    outputs = type('Outputs', (), {'heatmaps': torch.from_numpy(heatmaps)})()
    (people,) = processor.post_process_pose_estimation(outputs, boxes=[BOXES])
    return [(each['keypoints'].numpy(), each['scores'].numpy()) for each in people]


def test_keypoints_between_cells_equal_the_exporters(torch, processor):
    rng = np.random.default_rng(0)
    rows, cols = np.mgrid[: GRID[0], : GRID[1]]
    peaks = rng.uniform(2, np.array(GRID) - 3, (len(BOXES), 17, 2))
    heights, sigmas = rng.uniform(0.3, 0.9, (2, len(BOXES), 17))
    heatmaps = np.empty((len(BOXES), 17, *GRID), np.float32)
    for place in np.ndindex(len(BOXES), 17):
        square = (rows - peaks[place][0]) ** 2 + (cols - peaks[place][1]) ** 2
        heatmaps[place] = heights[place] * np.exp(-square / (2 * (1.5 + sigmas[place]) ** 2))
    whole = Letterbox.fit(HW[::-1], HW, 'stretch')
    head = open_as('heatmap_pose', f'out (1, 17, {GRID[0]}, {GRID[1]})', hw=HW)
    expected = decoded_by_exporter(torch, processor, heatmaps)
    for index, (keypoints, scores) in enumerate(expected):
        found = head({'out': heatmaps[index : index + 1]}, whole)
        wanted = in_input_pixels(keypoints, BOXES[index])
        np.testing.assert_allclose(found.keypoints[0, :, :2], wanted, atol=0.05)
        np.testing.assert_allclose(found.keypoints[0, :, 2], scores.ravel(), atol=1e-5)


def documented_export():
    """Return the call of docs/models.md that exports ViTPose from `network`."""
    text = (Path(__file__).parents[2] / 'docs' / 'models.md').read_text()
    (call,) = re.findall(
        r'torch\.onnx\.export\([^\n]*vitpose\.onnx.*?dynamo=False\)', text, re.DOTALL
    )
    return call


@pytest.mark.parametrize('is_simple', [True, False])
def test_the_documented_export_runs_on_regions(
    torch, transformers, processor, picture, is_simple, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    backbone = transformers.VitPoseBackboneConfig(
        image_size=list(HW), hidden_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    config = transformers.VitPoseConfig(
        backbone_config=backbone, num_labels=17, use_simple_decoder=is_simple
    )
    model = transformers.VitPoseForPoseEstimation(config).eval()

    exec(documented_export(), {'torch': torch, 'network': model})
    path = tmp_path / 'vitpose.onnx'
    pixels = np.asarray(picture.data).reshape(picture.height, picture.width, 3)
    wanted = processor(pixels, boxes=[BOXES], return_tensors='np')['pixel_values']
    # As in docs/python_api.md.
    with Pipeline.open(path, backend='onnxruntime', regions=True, batch=16) as pipeline:
        assert pipeline.decoder.name == 'heatmap_pose'
        crop = pipeline.feeds['image'].crop
        maps = crop.maps(regions())
        crops = crop(picture, maps)
        # It aligns the corner pixels, which shifts edges by up to half a pixel of the input.
        assert crops.shape == wanted.shape
        assert np.abs(crops - wanted).mean() < 0.05
        found = pipeline.infer_regions(picture, regions())
    with closing(OnnxRuntimeRunner.open(path)) as runner:
        heatmaps = np.concatenate(
            [runner.infer({'image': each[None]})['heatmaps'].copy() for each in crops]
        )
    assert heatmaps.shape == (len(BOXES), 17, *GRID)
    for index, (_, scores) in enumerate(decoded_by_exporter(torch, processor, heatmaps)):
        visible = np.clip(scores.ravel(), 0, 1)
        np.testing.assert_allclose(found[index].keypoints[0, :, 2], visible, atol=1e-4)
