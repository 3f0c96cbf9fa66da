"""The kernels of non-maximum suppression keep the boxes that the NumPy reference keeps."""

import pytest

from support.nms_cases import CASES, check

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 2')]


@pytest.mark.parametrize('name', CASES)
def test_the_boxes_that_are_left_are_those_of_numpy(name, decode_on_gpu):
    check(decode_on_gpu, name)
