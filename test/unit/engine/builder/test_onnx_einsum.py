"""Upper-case letters in Einsum equations, as torch writes them for MaxViT."""

import numpy as np
from onnx import helper
import pytest

from support.builds import build_here
from trt_ros.driver import GpuInfo
from trt_ros.engine.builder.onnx_rewrites import lower_equation, lower_equations
from trt_ros.errors import ParameterError


@pytest.mark.parametrize(
    ('equation', 'lower'),
    [
        ('', ''),
        ('ij,jk->ik', 'ij,jk->ik'),
        ('BHID,BHJD->BHIJ', 'acdb,aceb->acde'),
        ('...Aa, aB -> ...AB', '...ba, ac -> ...bc'),
    ],
)
def test_letters_are_renamed_to_free_ones(equation, lower):
    assert lower_equation(equation) == lower
    if lower:
        a, b = np.arange(16.0).reshape(1, 1, 4, 4), np.arange(16.0).reshape(1, 1, 4, 4)
        a, b = (each.reshape(4, 4) if 'H' not in equation else each for each in (a, b))
        assert (np.einsum(lower, a, b) == np.einsum(equation, a, b)).all()


@pytest.mark.parametrize(
    ('equation', 'lower'),
    [
        ('aB', 'ab->ba'),
        ('...zA, AB', '...za, ab->...bz'),
        ('aA, A', 'ab, b->a'),
        ('Aa, aA', 'ba, ab->'),
    ],
)
def test_outputs_that_are_not_written_keep_their_order(equation, lower):
    assert lower_equation(equation) == lower
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    operands = {'aB': (a,), '...zA, AB': (a, b), 'aA, A': (a, b[:, 0]), 'Aa, aA': (a, a.T)}
    want, got = (np.einsum(each, *operands[equation]) for each in (equation, lower))
    assert (got == want).all() and got.shape == want.shape


def test_an_equation_that_is_not_text_raises_nothing():
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node('Einsum', ['x'], ['y'], equation=b'\xffA->A')], 'g', [], []
        )
    )
    lower_equations(model)
    assert model.graph.node[0].attribute[0].s == b'\xffa->a'


def test_an_equation_of_too_many_letters_is_left():
    letters = 'abcdefghijklmnopqrstuvwxyzA'
    assert lower_equation(f'{letters}->{letters}') == f'{letters}->{letters}'


@pytest.fixture
def upper(models):
    """Write a product of x with a weight, in upper-case letters."""
    return models.save(
        [helper.make_node('Einsum', ['x', 'w'], ['y'], equation='BIJ,JK->BIK')],
        {'x': [1, 4, 4]},
        {'y': [1, 4, 4]},
        weights={'w': np.eye(4, dtype=np.float32)},
    )


@pytest.mark.slow
@pytest.mark.parametrize('precision', ['auto', 'fp16'])
def test_rtx_builds_upper_case_equations(upper, rtx, precision):
    report, _ = build_here(upper, rtx, precision=precision)
    assert [one['name'] for one in report['outputs']] == ['y']


@pytest.mark.slow
def test_stripped_weights_are_refused_for_they_are_read_from_the_file(upper, set_driver, rtx):
    set_driver(GpuInfo(0, 'NVIDIA L4', (8, 9), 58, 24 << 30, False, 'GPU-1', '0000:01:00.0'))
    with pytest.raises(ParameterError, match='strip_weights cannot be combined with upper-case'):
        build_here(upper, rtx, strip_weights=True)
