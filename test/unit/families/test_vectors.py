"""Class scores, embeddings, and outputs that are not decoded."""

import numpy as np
import pytest

from support.descriptions import head
from support.descriptions import head as open_as
from trt_ros.decode.choice import open_head
from trt_ros.errors import ScoreRangeError, TensorMismatchError
from trt_ros.families.registry import TENSORS, choose_family
from trt_ros.families.vectors import TensorHead
from trt_ros.vision.letterbox import Letterbox

LETTERBOX = Letterbox.fit((4, 4), (4, 4), 'stretch')


def scores(*values, shape=(1, -1), dtype=np.float32, decoder='classifier'):
    outputs = {'out': np.array(values, dtype).reshape(shape)}
    return head(decoder, outputs)(outputs, LETTERBOX)


@pytest.mark.parametrize(
    ('values', 'expected'),
    [
        ((0.2, 0.7, 0.1), (0.2, 0.7, 0.1)),
        ((0.0, 1.0), (0, 1)),
        ((0.0, np.log(3.0), np.log(4.0)), (0.125, 0.375, 0.5)),
        ((1000.0, 1000.0), (0.5, 0.5)),
        ((2.0, -1.0), (0.9525741268, 0.0474258732)),  # Logits, although their sum is 1.
        ((np.nan, 2.0, np.inf, 2.0), (0, 0.5, 0, 0.5)),
        ((np.nan, np.nan), (0, 0)),
    ],
)
def test_probabilities_stay_as_they_are_and_logits_go_through_softmax(values, expected):
    found = scores(*values).scores
    assert (found.tolist(), found.dtype) == (pytest.approx(expected), np.float32)


def test_probabilities_may_be_of_half_precision_and_the_best_come_first():
    values = np.random.default_rng(0).dirichlet(np.ones(1000)).astype(np.float16)
    assert scores(*values, dtype=np.float16).scores.tolist() == values.tolist()
    found = scores(0.1, 0.4, 0.05, 0.4, 0.05)
    assert found.top(3).tolist() == [1, 3, 0]
    assert found.top(99).tolist() == [1, 3, 0, 2, 4]


@pytest.mark.parametrize('shape', [(1, -1), (1, -1, 1, 1)])
def test_scores_of_independent_labels_stay_as_they_are_and_are_no_logits(shape):
    found = scores(0.5, np.nan, 0.75, 1.0001, shape=shape, decoder='multi_label')
    assert found.scores.tolist() == [0.5, 0, 0.75, 1]
    with pytest.raises(ScoreRangeError, match='a score of -2'):
        scores(0.5, -2, shape=shape, decoder='multi_label')


@pytest.mark.parametrize('shape', [(1, 3), (1, 3, 1, 1)])
def test_vector_is_copied_unchanged(shape):
    output = np.array([3, -4, 12], np.float16).reshape(shape)
    outputs = {'pooled': output, 'hidden': np.zeros((1, 9, 3))}
    found = open_as('embedding', outputs)(outputs, LETTERBOX)
    assert {name: values.tolist() for name, values in found.items()} == {'pooled': [[3, -4, 12]]}
    assert found['pooled'].dtype == np.float32
    single = np.ones((1, 3), np.float32)
    assert not np.shares_memory(
        open_as('embedding', 'x (1, 3)')({'x': single}, LETTERBOX)['x'], single
    )


@pytest.mark.parametrize('shape', [(2, 3), (3,), (1, 0), (1, 3, 2)])
def test_another_shape_is_refused(shape):
    head = open_as('embedding', 'x (1, ?, 1, 1)')
    with pytest.raises(TensorMismatchError, match='got x'):
        head({'x': np.zeros(shape)}, LETTERBOX)
    with pytest.raises(TensorMismatchError, match="Output 'x' does not exist"):
        head({'y': np.zeros(shape)}, LETTERBOX)


def test_all_outputs_are_copied_unchanged():
    outputs = {'a': np.array([[1, 2]], np.int64), 'b': np.zeros((1, 0), np.float16)}
    found = TensorHead()(outputs, LETTERBOX)
    assert list(found) == ['a', 'b']
    assert found['a'].tolist() == [[1, 2]]
    assert (found['a'].dtype, found['b'].dtype, found['b'].shape) == (np.int64, np.float16, (1, 0))
    assert not np.shares_memory(found['a'], outputs['a'])
    assert TensorHead()({}, LETTERBOX) == {}


def test_a_wrongly_declared_rank_of_an_unnamed_vector_is_returned_unchanged(network):
    seen = network('out (1, 8210)')
    family, _ = choose_family(TENSORS, 'auto', seen)
    values = np.ones((80, 1, 8210), np.float16)
    found = open_head(family, seen)({'out': values}, LETTERBOX)
    assert (found['out'].shape, found['out'].dtype) == ((80, 1, 8210), np.float16)
    for name, outputs in (('embedding', 'out (1, 8210)'), ('auto', 'embedding (1, 8210)')):
        seen = network(outputs)
        head = open_head(choose_family(TENSORS, name, seen)[0], seen)
        with pytest.raises(TensorMismatchError, match=r'expected \(1, features\)'):
            head({seen.outputs[0].name: values}, LETTERBOX)
