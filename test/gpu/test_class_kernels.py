"""The scores of a classifier equal those of the NumPy reference."""

import numpy as np
import pytest

from support.box_cases import rounded
from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 2')]

BOX = Letterbox.fit((640, 480), (224, 224), 'center_crop')


def logits(count) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 4, count).astype(np.float32)


def probabilities(count) -> np.ndarray:
    powers = np.exp(logits(count))
    return powers / powers.sum()


def with_nonfinite(count) -> np.ndarray:
    found = logits(count)
    found[::7], found[1::7] = np.nan, np.inf
    return found


CASES = {
    'logits': logits,
    'probabilities': probabilities,
    'non-finite': with_nonfinite,
    'all NaN': lambda count: np.full(count, np.nan, np.float32),
    'equal': lambda count: np.full(count, -3, np.float32),
    'large': lambda count: logits(count) * 1000,
}


@pytest.mark.parametrize('name', CASES)
@pytest.mark.parametrize('count', [2, 31, 1000, 21843])
@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
def test_scores_of_all_classes_equal_numpy(name, count, dtype, decode_on_gpu):
    bits, wide = rounded(CASES[name](count)[None], dtype)
    head = open_as('classifier', {'scores': wide})
    got, counts = decode_on_gpu(head, {'scores': bits}, BOX)
    want = head({'scores': wide}, BOX)
    np.testing.assert_allclose(got.scores, want.scores, rtol=2e-5, atol=1e-9)
    assert got.top(1).tolist() == want.top(1).tolist()
    assert counts[2] == np.count_nonzero(~np.isfinite(wide))
