import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.errors import TensorMismatchError
from trt_ros.vision.letterbox import Letterbox

TWO, FOUR = (Letterbox.fit((n, n), (n, n), 'stretch') for n in (2, 4))


def decode(cells, letterbox=FOUR):
    return head_of(cells, letterbox)({'out': cells}, letterbox).labels


def head_of(cells, letterbox=FOUR, **how):
    return open_as('semantic', {'out': cells}, hw=letterbox.input_hw, **how)


def test_the_best_class_wins_and_of_equals_the_first_and_channels_may_come_last():
    cells = np.zeros((1, 3, 4, 4), np.float32)
    cells[0, 2, 0] = 1
    cells[0, 1, 1] = cells[0, 2, 1] = 5
    labels = decode(cells)
    assert labels.dtype == np.uint8
    assert labels.tolist() == [[2] * 4, [1] * 4, [0] * 4, [0] * 4]
    cells = np.random.default_rng(0).normal(size=(1, 5, 16, 16)).astype(np.float32)
    letterbox = Letterbox.fit((50, 40), (64, 64), 'letterbox')
    last = np.ascontiguousarray(cells.transpose(0, 2, 3, 1))
    assert np.array_equal(decode(cells, letterbox), decode(last, letterbox))


@pytest.mark.parametrize(
    ('scores', 'expected'),
    [
        ([0.2, 0.5, 0.51, 1.0], [0, 0, 1, 1]),  # Sigmoid.
        ([0.2, 0.5, 0.51, 1.0000002], [0, 0, 1, 1]),  # And interpolated.
        ([-3.0, -0.1, 0.2, 0.4], [0, 0, 1, 1]),  # Logits.
        ([0.1, 0.2, 0.7, 4.0], [1, 1, 1, 1]),
    ],
)
def test_single_class_is_thresholded_at_half(scores, expected):
    cells = np.array([[[scores] * 4]], np.float32)
    assert decode(cells)[0].tolist() == expected


@pytest.mark.parametrize('dtype', [np.float16, np.float32])
def test_nan_does_not_turn_probabilities_into_logits(dtype):
    cells = np.full((1, 1, 4, 4), 0.2, dtype)
    cells[0, 0, 0, 0], cells[0, 0, 3, 3] = 0.8, np.nan
    assert np.argwhere(decode(cells)).tolist() == [[0, 0]]


@pytest.mark.parametrize('shape', [(1, 4, 4), (1, 1, 4, 4), (1, 4, 4, 1)])
def test_class_indices_are_sampled_at_nearest_cell(shape):
    labels = decode(np.arange(16).reshape(shape), Letterbox.fit((8, 2), (4, 4), 'stretch'))
    assert labels.dtype == np.uint16
    assert labels.tolist() == [[4, 4, 5, 5, 6, 6, 7, 7], [12, 12, 13, 13, 14, 14, 15, 15]]


@pytest.mark.parametrize(
    ('dtype', 'expected'),
    [('uint8', 'uint8'), ('bool', 'uint8'), ('int32', 'uint16'), ('int64', 'uint16')],
)
def test_classes_keep_as_many_bits_as_they_need(dtype, expected):
    assert decode(np.ones((1, 4, 4), dtype)).dtype == expected


@pytest.mark.parametrize(
    ('dtype', 'named_count', 'none'),
    [('int64', None, 65535), ('int64', 255, 255), ('int64', 256, 65535), ('int8', None, 255)],
)
def test_class_indices_that_are_no_class_are_unlabeled(dtype, named_count, none):
    cells = np.array([[[-1, 3], [70000 if dtype == 'int64' else -7, 0]]]).astype(dtype)
    labels = head_of(cells, TWO, class_count=named_count)({'out': cells}, TWO).labels
    assert labels.dtype == ('uint8' if none == 255 else 'uint16')
    assert labels.tolist() == [[none, 3], [none, 0]]


@pytest.mark.parametrize(('count', 'dtype'), [(255, 'uint8'), (256, 'uint16')])
def test_the_maximum_of_a_mask_is_no_class(count, dtype):
    cells = np.zeros((1, count, 4, 4), np.float32)
    cells[0, -1] = 1
    labels = decode(cells)
    assert (labels.dtype, labels.max()) == (dtype, count - 1)


@pytest.mark.parametrize('channels_first', [True, False])
def test_confidence_is_the_softmax_of_the_class(channels_first):
    cells = np.log(np.float32([[[[0.7, 0.1]] * 2, [[0.2, 0.3]] * 2, [[0.1, 0.6]] * 2]])) - 5
    cells = cells if channels_first else cells.transpose(0, 2, 3, 1)
    mask = head_of(cells, TWO).with_confidence()({'out': cells}, TWO)
    assert mask.labels.tolist() == [[0, 2]] * 2
    assert mask.confidence.tolist() == [[round(0.7 * 255), round(0.6 * 255)]] * 2


@pytest.mark.parametrize(
    'scores', [[0.9, 0.4, 0.5, 0.0], np.log([9, 0.4 / 0.6, 1, 1e-6]).tolist()]
)
def test_confidence_of_a_single_class_is_that_of_the_class_or_of_the_background(scores):
    cells = np.float32(scores).reshape(1, 1, 2, 2)
    mask = head_of(cells, TWO).with_confidence()({'out': cells}, TWO)
    assert mask.labels.tolist() == [[1, 0], [0, 0]] and mask.is_binary
    assert np.ravel(mask.confidence).tolist() == pytest.approx([230, 153, 128, 255], abs=1)


@pytest.mark.parametrize('shape', [(2, 3, 4, 4), (4, 4), (1, 3, 0, 4), (1, 2, 4, 4)])
def test_another_shape_is_refused(shape):
    head = open_as('semantic', 'out (1, 3, ?, ?)', hw=(4, 4))
    with pytest.raises(TensorMismatchError, match='got out'):
        head({'out': np.zeros(shape, np.float32)}, FOUR)
    with pytest.raises(TensorMismatchError, match="Output 'out' does not exist"):
        head({}, FOUR)
