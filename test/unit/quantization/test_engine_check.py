"""Verdict and table of the latencies of precisions."""

import pytest

from trt_ros.quantization.engine_check import LatencyTable, PrecisionLatency, verdict

TF32, FP16 = PrecisionLatency('tf32', 2.0, 2.5), PrecisionLatency('fp16', 1.0, 1.5)
BF16 = PrecisionLatency('bf16', error='bf16 is not supported')


@pytest.mark.parametrize(
    ('ms', 'sentence'),
    [
        (1.6, 'fp8 is 1.6 times slower than fp16 here: use fp16'),
        (1.02, 'fp8 is as fast as fp16 here: use fp16'),
        (0.5, 'fp8 is 2 times faster than fp16 here'),
    ],
)
def test_verdict_compares_with_the_fastest_other_precision(ms, sentence):
    rows = [TF32, FP16, BF16, PrecisionLatency('fp8 and fp16', ms, ms + 0.5)]
    assert verdict('fp8', rows) == sentence


def test_table_has_a_row_per_precision_and_the_verdict_says_why_one_is_missing():
    failed = PrecisionLatency('int8 and fp16', error='int8 convolutions are not supported.')
    assert verdict('int8', [TF32, FP16, failed]) == (
        'int8 cannot be used here: int8 convolutions are not supported.'
    )
    rows = (TF32, FP16, BF16, PrecisionLatency('fp8 and fp16', 0.5, 1.0))
    assert LatencyTable(rows, 'verdict').lines() == [
        'latency (ms)      graph    frame',
        'tf32              2.000    2.500',
        'fp16              1.000    1.500',
        'bf16            bf16 is not supported',
        'fp8 and fp16      0.500    1.000',
        'verdict',
    ]
    assert LatencyTable((), 'not measured').lines() == ['not measured']
