"""`trt-ros verify --picture`: what goes in and what comes out, drawn. The rest needs a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from trt_ros.cli import main
from trt_ros.runtime.choice import choose_backend

cv2 = pytest.importorskip('cv2')
pytest.importorskip('onnxruntime')

RED_BGR = [0, 0, 255]


@pytest.fixture
def verify(colour_detector, tmp_path, capsys):
    """Run the verb on a red picture, wider than high; give its code, drawing and words."""
    if choose_backend('auto')[0].name != 'onnxruntime':
        pytest.skip('here is a GPU: test/gpu has these')
    photo, drawn = tmp_path / 'red.png', tmp_path / 'drawn.png'
    cv2.imwrite(str(photo), np.full((240, 480, 3), RED_BGR, np.uint8))

    def run(*args, photos=(photo,), model=None):
        code = main(['verify', str(model or colour_detector()), *map(str, photos), *args,
                     '--picture', str(drawn)])
        return code, cv2.imread(str(drawn)) if drawn.exists() else None, capsys.readouterr().err

    return run


def test_nothing_to_draw_is_an_error(verify):
    code, drawn, said = verify(photos=())
    assert (code, drawn) == (1, None)
    assert 'There is nothing to draw.\nRemedy: Give photographs' in said


def test_the_input_stands_beside_the_photograph_with_the_result(verify):
    code, drawn, said = verify()
    assert code == 0
    assert 'decoder yolov8: ' in said and 'nothing to compare: backend onnxruntime' in said
    pixels = drawn[-480:]
    assert pixels[240, 240].tolist() == RED_BGR  # The input: 64 × 64, half of it padding.
    assert pixels[20, 240].tolist() == pixels[460, 240].tolist() == [114, 114, 114]
    photo = pixels[:, 480:1440]
    assert photo[20, 20].tolist() == photo[240, 480].tolist() == RED_BGR
    edge = photo[240].reshape(-1, 3)
    assert (edge != RED_BGR).any(axis=1).sum() >= 2  # The box's left and right.
    assert drawn[:-480].max() == 255 and drawn[:-480].min() < 128  # Captions.


@pytest.mark.parametrize(('option', 'middle'), [
    (('--channel-order', 'bgr'), [255, 0, 0]), (('--scale', '1.0'), [0, 0, 255]),
    (('--mean', '1,-1,-1'), [255, 255, 0]), (('--scale', '0.00196'), [0, 0, 127])])
def test_what_is_set_otherwise_than_the_family_is_trained_shows(verify, option, middle):
    _, drawn, _ = verify(*option)
    assert drawn[-240, 240].tolist() == middle


def test_a_stretched_input_has_no_padding(verify):
    _, drawn, _ = verify('--resize', 'stretch')
    assert drawn[-470, 240].tolist() == RED_BGR


def test_a_network_of_uint8_is_shown_as_it_is(verify, colour_detector):
    model = colour_detector(dtype=np.uint8, scale=1 / 255)
    _, drawn, _ = verify(model=model)
    assert drawn[-240, 240].tolist() == RED_BGR


def test_a_picture_that_cannot_be_written_is_an_error(colour_detector, verify, tmp_path, capsys):
    verify()
    code = main(['verify', str(colour_detector()), str(tmp_path / 'red.png'), '--picture',
                 str(tmp_path / 'no folder' / 'drawn.png')])
    assert code == 1
    assert 'The picture cannot be written to ' in capsys.readouterr().err


def test_two_photographs_make_two_rows(verify, tmp_path):
    other = tmp_path / 'blue.png'
    cv2.imwrite(str(other), np.full((240, 240, 3), [255, 0, 0], np.uint8))
    _, drawn, _ = verify(photos=(tmp_path / 'red.png', other))
    assert drawn[-240, 240].tolist() == [255, 0, 0]
    assert drawn[drawn.shape[0] // 2 - 240, 240].tolist() == RED_BGR
