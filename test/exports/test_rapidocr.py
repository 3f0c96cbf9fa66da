"""PP-OCR of RapidOCR: its own pipeline reads the same lines on ten pictures."""

from pathlib import Path
from shutil import copyfile

import numpy as np
import pytest
import yaml

from trt_ros.runtime.pipeline import Pipeline

LINES = ('Hello World 42', 'TensorRT', 'EXIT 17b', 'robot@ros2.org', 'No entry', '3.14159')
SCALE_HW = (736, 992)  # Of 480 x 640, as RapidOCR resizes it.


@pytest.fixture(scope='module')
def rapidocr():
    return pytest.importorskip(
        'rapidocr', reason='its networks are in the wheel: pip install rapidocr==3.10.0'
    )


@pytest.fixture(scope='module')
def bundle(rapidocr, tmp_path_factory) -> Path:
    folder, models = tmp_path_factory.mktemp('ocr'), Path(rapidocr.__file__).parent / 'models'
    copyfile(models / 'PP-OCRv6_det_small.onnx', folder / 'lines.onnx')
    copyfile(models / 'PP-OCRv6_rec_small.onnx', folder / 'characters.onnx')
    reader = {
        'parameters': {'model_path': 'characters.onnx'},
        'options': {'input_size': [48, 480], 'max_regions': 6},
    }
    copyfile(models / 'ch_ppocr_mobile_v2.0_cls_mobile.onnx', folder / 'sides.onnx')
    sides = {
        'parameters': {'model_path': 'sides.onnx'},
        'options': {
            'input_size': [48, 192],
            'max_regions': 6,
            'region_resize': 'line',
            'channel_order': 'bgr',
            'mean': [0.5] * 3,
            'std': [0.5] * 3,
            'pad_value': 127,
        },
    }
    document = {
        'models': {
            'lines': {'parameters': {'model_path': 'lines.onnx'}},
            'sides': sides,
            'characters': reader,
        },
        'pipeline': {'turns': {'lines': 'sides'}, 'regions': {'lines': 'characters'}},
    }
    path = folder / 'ocr.yaml'
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def picture(number):
    """Return a picture of two or three lines, turned by up to 35 degrees, some upside down."""
    cv2 = pytest.importorskip('cv2', reason='it draws the text')
    rng = np.random.default_rng(number)
    pixels = np.full((480, 640, 3), rng.integers(190, 256, 3), np.uint8)
    for row in range(2 + number % 2):
        font, scale = int(rng.choice([0, 2, 3, 4])), rng.uniform(0.8, 1.7)
        text, color = str(rng.choice(LINES)), rng.integers(0, 90, 3).tolist()
        place = int(rng.integers(110, 200)), 170 + 80 * row
        cv2.putText(pixels, text, place, font, scale, color, 2, cv2.LINE_AA)
    angle = float(rng.uniform(-35, 35)) * (number > 2) + 180 * (number % 3 == 2)
    turn = cv2.getRotationMatrix2D((320, 240), angle, 0.8)
    return cv2.warpAffine(pixels, turn, (640, 480), borderMode=cv2.BORDER_REPLICATE)


def test_lines_and_scores_are_those_of_rapidocr(rapidocr, bundle):
    own = rapidocr.RapidOCR(params={'Global.log_level': 'error'})
    with Pipeline.open(
        bundle, backend='onnxruntime', cpu_threads=2, input_size=SCALE_HW
    ) as pipeline:
        assert any('names of characters' in line for line in pipeline.log_lines)
        for number in range(10):
            pixels = picture(number)
            found = pipeline(pixels, score=0.5)
            expected = own(pixels)
            centers = expected.boxes.mean(axis=1).tolist()
            wanted = sorted(zip(expected.txts, centers, expected.scores))
            got = sorted(
                (each.region.text, each.cxcywh[:2].tolist(), each.region.score) for each in found
            )
            assert [text for text, *_ in got] == [text for text, *_ in wanted]
            np.testing.assert_allclose(
                [at for _, at, _ in got], [at for _, at, _ in wanted], atol=1
            )
            scores = [[score for *_, score in each] for each in (got, wanted)]
            np.testing.assert_allclose(*scores, atol=0.05)
