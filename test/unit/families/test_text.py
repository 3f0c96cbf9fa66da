"""Lines of text and their characters."""

import math
import shutil

import cv2
import numpy as np
import pytest

from support.descriptions import head as open_as
from support.kernels_on_cpu import KernelsOnCpu
from trt_ros.drawing import draw
from trt_ros.errors import ParameterError
from trt_ros.results.boxes import Detections
from trt_ros.results.text import Text, read_texts
from trt_ros.runtime.heads import names_of
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((320, 160), (160, 320), 'stretch')
NAMES = ('blank', 'a', 'b', ' ')


def lines(cells, letterbox=WHOLE, **limits):
    head = open_as('pp_ocr_det', 'out (1, 1, 160, 320)', hw=(160, 320))
    return head({'out': cells[None, None].astype(np.float32)}, letterbox, Thresholds(**limits))


def drawn(*boxes, probability=0.8):
    """Return cells in which rectangles (center, size, angle in degrees) are text."""
    cells = np.zeros((160, 320), np.float32)
    for box in boxes:
        cv2.fillPoly(cells, [np.rint(cv2.boxPoints(box)).astype(np.int32)], probability)
    return cells


@pytest.mark.parametrize(
    ('size', 'angle', 'expected'),
    [
        ((100, 20), 0, (100, 20, 0)),
        ((100, 20), 30, (100, 20, 30)),
        ((100, 20), -40, (100, 20, -40)),
        ((20, 24), 0, (20, 24, 0)),  # A character.
        ((20, 100), 0, (100, 20, 90)),  # Read downwards.
    ],
)
def test_a_line_grows_by_what_its_training_shrinks_it(size, angle, expected):
    (found,) = lines(drawn(((160, 80), size, angle)), score=0.5)
    width, height, turned = expected
    grown = 1.6 * width * height / (width + height)
    assert found.cxcywh == pytest.approx(
        (160, 80, width + grown, height + grown), abs=6
    )  # Of pixels.
    assert math.degrees(found.theta) == pytest.approx(turned, abs=1.5)
    assert found.score == pytest.approx(0.8, abs=0.1)


def test_lines_are_in_pixels_of_the_image_and_limited_by_thresholds():
    cells = drawn(((60, 40), (80, 12), 0)) + drawn(((200, 100), (80, 12), 0), probability=0.5)
    twice = Letterbox.fit((640, 320), (160, 320), 'stretch')
    found = lines(cells, twice, score=0.3)
    assert found.cxcywh[:, :2].tolist() == pytest.approx(np.array([[120, 80], [400, 200]]), abs=3)
    assert (found.scores[0] > found.scores[1]) and found.labels.tolist() == [0, 0]
    assert len(lines(cells, score=0.6)) == len(lines(cells, score=0.3, max_detections=1)) == 1


@pytest.mark.parametrize('value', [0, 0.2, np.nan, np.inf])
def test_a_page_without_text_has_no_lines(value):
    assert len(lines(np.full((160, 320), value))) == 0


def read(scores, names=NAMES):
    outputs = {'out': np.asarray(scores, np.float32)[None]}
    found = open_as('pp_ocr_rec', outputs)(outputs, WHOLE)
    found.class_names = names
    return found


def steps(*symbols, sure=0.7):
    return np.where(np.eye(4)[list(symbols)], sure, (1 - sure) / 3)


@pytest.mark.parametrize(
    ('symbols', 'text'),
    [((1, 1, 2), 'ab'), ((1, 0, 1, 3, 2, 2, 0), 'aa b'), ((0, 0), ''), ((3, 3), ' ')],
)
def test_repeated_symbols_count_once(symbols, text):
    found = read(steps(*symbols).reshape(-1, 4))
    assert found.text == text and found.names == [text]
    assert found.score == pytest.approx(0.7 if text else 0)
    assert found.best() == ([(text, found.score)] if text else [])
    assert found.as_json() == {'text': text, 'score': round(found.score, 4)}


def test_a_text_is_drawn():
    pixels = np.zeros((60, 200, 3), np.uint8)
    draw(pixels, read(steps(1, 2)))
    assert pixels.any()


def test_logits_go_through_softmax_and_what_is_not_finite_is_last():
    logits = np.log([[0.1, 0.6, 0.2, 0.1], [0.2, 0.1, 0.5, 0.2]]) + 5
    assert read(logits).text == 'ab' and read(logits).score == pytest.approx(0.55)
    logits[0, 0], logits[1] = np.nan, np.inf
    assert read(logits).text == 'a' and read(logits).score == pytest.approx(2 / 3)


@pytest.mark.skipif(shutil.which('g++') is None, reason='needs g++')
@pytest.mark.slow
@pytest.mark.parametrize('kind', ['logits', 'probabilities', 'non-finite', 'equal'])
def test_the_kernel_equals_numpy(kind):
    scores = np.random.default_rng(0).normal(0, 3, (1, 9, 2500)).astype(np.float32)
    if kind == 'probabilities':
        scores = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    elif kind == 'non-finite':
        scores[:, :4, ::3], scores[:, 4], scores[:, 5, 1:] = np.nan, np.inf, -np.inf
    elif kind == 'equal':
        scores[:] = 0.5
    head = open_as('pp_ocr_rec', 'out (1, 9, 2500)')
    got, _ = KernelsOnCpu().decode(head, {'out': scores}, WHOLE, Thresholds())
    want = head({'out': scores}, WHOLE)
    assert got.symbols.tolist() == want.symbols.tolist()
    np.testing.assert_allclose(got.scores, want.scores, rtol=1e-5)


@pytest.mark.parametrize('labels', [('a', 'b'), ('blank', 'a', 'b'), NAMES])
def test_files_of_characters_need_neither_blank_nor_space(labels, decoder):
    if len(labels) == 3:  # Without the space it is a file of another network.
        with pytest.raises(ParameterError, match='names 5'):
            names_of((*labels, 'c', 'd'), '', {}, decoder)
    else:
        assert names_of(labels, '', {}, decoder) == NAMES


@pytest.fixture
def decoder():
    from types import SimpleNamespace

    head = open_as('pp_ocr_rec', 'out (1, 9, 4)')
    return SimpleNamespace(head=head, task='text', class_count=4)


def test_boxes_are_named_by_what_they_read():
    boxes = Detections(np.eye(4, dtype=np.float32), np.ones(4, np.float32), np.zeros(4, np.int32))
    boxes.region_results = [
        Text(np.array([score], np.float32), np.array(symbols, np.int32), class_names=NAMES)
        for score, symbols in ((0.9, [1, 2]), (0.4, [1]), (0.8, []))
    ] + [None]
    found = read_texts(boxes, 0.5)
    assert found.names == ['ab'] and found.scores.tolist() == [np.float32(0.9)]
    assert found.xyxy.tolist() == [[1, 0, 0, 0]]
    assert len(read_texts(boxes[:0], 0.5)) == 0
