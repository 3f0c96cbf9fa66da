"""The family of docs/adding_a_decoder.md: recognition, decoders, errors and docs by one file."""

from dataclasses import replace
from pathlib import Path
import re
import runpy
from types import SimpleNamespace

import numpy as np
import pytest

from support.descriptions import TOY, TOY_SOURCE
from trt_ros.decode.choice import choose_decoder
from trt_ros.decode.cuda.boxes import GpuBoxes
from trt_ros.decode.cuda.choice import gpu_decoder
from trt_ros.errors import TensorMismatchError
from trt_ros.families.layout import Coding, Out, PointLayout
from trt_ros.families.registry import ALL_FAMILIES, by_name, choose_family
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

DOCS = Path(__file__).parents[3] / 'docs'
HW = (320, 320)
(LAYOUT,) = TOY.layouts
OUTPUT = 'toy_boxes (1, 400, 8)'  # 20 x 20 cells; box, objectness, 3 classes.


@pytest.fixture(scope='module')
def decoder(network):
    """Return the decoder that `auto` chooses among all families."""
    seen = network(OUTPUT, hw=HW)
    return choose_decoder('auto', seen, (TOY, *ALL_FAMILIES))


def test_it_is_one_short_file_and_recognized_with_a_reason(decoder):
    assert TOY_SOURCE.count('\n') <= 40
    assert (decoder.name, decoder.class_count) == ('toy', 3)
    assert decoder.reason == (
        'toy_boxes (1, 400, 8) float32 holds distances to the sides, objectness, 3 class scores: '
        'named toy_boxes, 400 cells of stride 16'
    )


def test_numpy_decodes_it(decoder):
    rows = np.full((1, 400, 8), -20, np.float32)
    rows[0, 5 * 20 + 7] = (1, 2, 3, 4, 20, -20, 20, -20)
    letterbox = Letterbox.fit((320, 320), HW, 'stretch')
    found = decoder({'toy_boxes': rows}, letterbox, Thresholds(score=0.5))
    x, y = 7.5 * 16, 5.5 * 16
    np.testing.assert_allclose(found.xyxy, [[x - 16, y - 32, x + 48, y + 64]], rtol=1e-6)
    assert (found.labels.tolist(), found.scores.round(3).tolist()) == ([1], [1.0])


def test_the_kernels_get_its_arguments(decoder, network):
    outputs = network(OUTPUT, hw=HW).outputs
    shapes = {spec.name: spec.shape for spec in outputs}
    found = gpu_decoder(SimpleNamespace(head=decoder.head), outputs, shapes, HW)
    assert isinstance(found, GpuBoxes)
    assert (found.select, found.places.rows, found.places.classes) == ('rows', 400, 3)


def test_a_near_miss_names_its_outputs_and_by_name_it_is_refused_with_a_remedy(network):
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family((TOY, *ALL_FAMILIES), 'auto', network('toy_boxes (1, 401, 8)', hw=HW))
    assert 'Nearest: toy reads (1, 400, 5 + classes); ' in error.value.cause
    seen = network('x (1, 2, 3, 4)', hw=HW)
    with pytest.raises(TensorMismatchError, match='not those of toy: expected') as error:
        choose_decoder('toy', seen, (TOY,))
    assert error.value.remedy == (
        'Use the documented export, `python toy/export.py`; '
        'or choose another decoder (docs/models.md).'
    )


@pytest.mark.parametrize(
    ('other', 'text'),
    [
        (replace(TOY, networks='another'), 'Two families are named toy'),
        (replace(TOY, name='other', task='detection'), "other has the task 'detection'.*detect,"),
    ],
)
def test_a_name_that_is_taken_and_an_unknown_task_are_refused(other, text):
    assert by_name([TOY, TOY, 'TOY']) == {'toy': TOY}
    with pytest.raises(ValueError, match=text):
        by_name([TOY, other])


@pytest.mark.parametrize(
    ('declare', 'text'),
    [
        (lambda: Coding('side'), "form of Coding is 'side'. Choose one of 'corners', 'centers', "),
        (lambda: replace(LAYOUT, activation='sigmoidal'), "activation of BoxLayout is 'sigmoid"),
        (
            lambda: PointLayout((Out('B V', 'points:3*K'),), form='bin'),
            "form of PointLayout is 'b",
        ),
        (
            lambda: replace(TOY, exporter='mine'),
            "exporter of Family is 'mine'. Choose one of 'any'",
        ),
    ],
)
def test_a_word_that_does_not_exist_is_refused_where_it_is_declared(declare, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        declare()


def test_the_page_of_models_gets_its_row_beside_those_of_the_families():
    tables = runpy.run_path(str(DOCS / 'families.py'))
    assert tables['row'](TOY) == (
        '| `toy` | the network of this page | (1, cells, 5 + C); named `toy_boxes` |'
    )
    assert tables['grouped']([(TOY, (TOY.export,))]) == ['| `toy` | `python toy/export.py` |']
    page = (DOCS / 'models.md').read_text()
    assert tables['with_tables'](page) == page
