"""Overlap of boxes and their one-to-one assignment."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from support.properties import repeatable
from trt_ros.tracking.association import Pairs, best_pairs, overlapping
from trt_ros.vision.nms import iou


def pairs_of(gains):
    rows, columns = np.nonzero(gains > 0)
    return Pairs(rows, columns, gains[rows, columns])


def test_nothing_is_assigned_to_nothing_nor_to_what_it_only_touches():
    rows, columns = best_pairs(pairs_of(np.zeros((3, 2))))
    assert (rows.tolist(), columns.tolist()) == ([], [])
    assert overlapping(np.zeros((4, 0)), np.ones((4, 2)), 0.1).gains.tolist() == []
    box = np.array([[0.0], [0.0], [10.0], [10.0]])
    beside = np.array([[10.0], [0.0], [20.0], [10.0]])
    assert overlapping(box, beside, 0.0).gains.tolist() == []


@repeatable
@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.sampled_from([0, 0, 1, 2, 3, 5]), min_size=width, max_size=width),
            min_size=1,
            max_size=4,
        )
    )
)
def test_the_total_gain_is_the_largest_possible(rows):
    gains = np.array(rows, float)
    chosen = best_pairs(pairs_of(gains))
    assert all(len(set(each.tolist())) == len(each) for each in chosen)
    assert (gains[chosen] > 0).all()
    square = np.zeros((max(gains.shape), max(gains.shape)))
    square[: gains.shape[0], : gains.shape[1]] = gains
    best = max(
        square[range(len(square)), order].sum()
        for order in map(list, itertools.permutations(range(len(square))))
    )
    assert gains[chosen].sum() == best


def test_overlaps_are_those_of_non_maximum_suppression():
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 100, (2, 30, 2))
    boxes, others = np.concatenate([low, low + rng.uniform(5, 60, (2, 30, 2))], axis=2)
    found = overlapping(boxes.T, others.T, 0.2)
    expected = iou(boxes[:, None], others)
    rows, columns = np.nonzero(expected >= 0.2)
    assert (found.rows.tolist(), found.columns.tolist()) == (rows.tolist(), columns.tolist())
    assert found.gains == pytest.approx(expected[rows, columns], abs=1e-5)
