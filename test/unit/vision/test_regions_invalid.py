"""Regions that no crop can be computed for."""

import numpy as np
import pytest

from trt_ros.errors import ParameterError
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.regions import Crop

CROP = Crop(Preprocess((64, 32)))


@pytest.mark.parametrize(
    'region',
    [
        (np.nan, 1, 2, 2, 0),
        (1, 1, np.inf, 2, 0),
        (1, 1, 0, 2, 0),
        (1, 1, 2, -1, 0),
        (1e300, 1, 2, 2, 0),
        (1, 1, 1e300, 2, 0),
    ],
)
def test_rejects_region_without_a_crop(region):
    with pytest.raises(ParameterError, match='not finite, too large, or has no area'):
        CROP.maps(np.array([region]))


def test_rejects_regions_of_another_shape():
    with pytest.raises(ParameterError, match=r'shape \(1, 4\), expected \(N, 5\)'):
        CROP.maps(np.ones((1, 4)))


@pytest.mark.parametrize('none', [np.empty((0, 5)), []])
def test_no_regions_have_no_maps(none):
    assert CROP.maps(none).shape == (0, 2, 4)
