"""Kernels of the timing cache; tensorrt_rtx has the functions, and an empty cache."""

import pytest

from trt_ros.engine.builder.timing import kernel_times, set_tactic
from trt_ros.errors import ParameterError

pytestmark = pytest.mark.filterwarnings('ignore:.*Timing cache operations are no-ops')
KEY = '0x' + 'ab' * 16


@pytest.fixture
def timing_cache(rtx):
    return rtx.new_builder().create_builder_config().create_timing_cache(b'')


def test_a_cache_lists_its_kernels(timing_cache):
    assert kernel_times(timing_cache) == kernel_times(None) == {}


@pytest.mark.parametrize(
    ('tactic', 'cause'),
    [
        (f'{KEY}=0x5', 'has no such key'),
        ('0xab=0x5', 'exactly 34 characters'),
        (KEY, 'invalid literal'),
        (f'{KEY}=-5', 'incompatible'),
    ],
)
def test_a_kernel_that_is_not_in_the_cache_is_refused(rtx, timing_cache, tactic, cause):
    with pytest.raises(ParameterError, match=f'rejected the tactic .*\nCause: .*{cause}'):
        set_tactic(rtx, timing_cache, tactic)
