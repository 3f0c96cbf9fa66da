import numpy as np
import pytest

from support.descriptions import head
from trt_ros.vision.letterbox import Letterbox

LETTERBOX = Letterbox.fit((4, 4), (4, 4), 'stretch')


def scores(*values, shape=(1, -1), dtype=np.float32):
    outputs = {'out': np.array(values, dtype).reshape(shape)}
    return head('classifier', outputs)(outputs, LETTERBOX)


def test_probabilities_stay_as_they_are():
    assert scores(0.2, 0.7, 0.1).scores.tolist() == pytest.approx([0.2, 0.7, 0.1])
    assert scores(0.0, 1.0).scores.tolist() == [0, 1]


def test_logits_go_through_softmax():
    found = scores(0.0, np.log(3.0), np.log(4.0))
    assert found.scores.tolist() == pytest.approx([0.125, 0.375, 0.5])
    assert found.scores.dtype == np.float32
    assert scores(1000.0, 1000.0).scores.tolist() == [0.5, 0.5]


def test_negative_values_that_sum_to_one_are_logits():
    assert scores(2.0, -1.0).scores.tolist() == pytest.approx([0.952574, 0.047426], abs=1e-5)


def test_probabilities_in_half_precision_are_known_as_such():
    values = np.random.default_rng(0).dirichlet(np.ones(1000)).astype(np.float16)
    assert scores(*values, dtype=np.float16).scores.tolist() == values.tolist()


def test_the_best_come_first_and_of_equals_the_first():
    found = scores(0.1, 0.4, 0.05, 0.4, 0.05)
    assert found.top(3).tolist() == [1, 3, 0]
    assert found.top(99).tolist() == [1, 3, 0, 2, 4]


def test_non_finite_values_score_zero():
    assert scores(np.nan, 2.0, np.inf, 2.0).scores.tolist() == [0, 0.5, 0, 0.5]
    assert scores(np.nan, np.nan).scores.tolist() == [0, 0]
