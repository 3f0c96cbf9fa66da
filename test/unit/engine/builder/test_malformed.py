"""Broken ONNX files: each ends as an error, or as an engine where the damage does no harm."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from trt_ros.engine.builder.parent import build
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import TrtRosError


def broken(whole, turn):
    """Give the bytes of one broken file: cut, flipped or random."""
    rng = np.random.default_rng(turn)
    if turn % 3 == 0:
        return whole[: int(rng.integers(1, len(whole)))]
    if turn % 3 == 1:
        data = bytearray(whole)
        for _ in range(int(rng.integers(1, 6))):
            # Structure rather than weights: those may have any value.
            where = int(
                rng.choice([rng.integers(0, 64), rng.integers(len(whole) - 300, len(whole))])
            )
            data[where] ^= 1 << int(rng.integers(0, 8))
        return bytes(data)
    return rng.bytes(int(rng.integers(1, 400)))


@pytest.mark.parametrize('count', [3, pytest.param(200, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_malformed_files_end_as_errors(models, rtx, count):
    whole = models.conv().read_bytes()

    def outcome(turn):
        path = models.folder / f'broken_{turn}.onnx'
        path.write_bytes(broken(whole, turn))
        try:
            build(path, BuildOptions(), rtx, timeout_seconds=300).plan.close()
        except TrtRosError as error:
            assert error.problem and not str(error).startswith('Traceback')
            return 'crashed' if 'crashed with' in error.problem else 'refused'
        return 'built'

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(outcome, range(count)))
    counts = {kind: outcomes.count(kind) for kind in sorted(set(outcomes))}
    print(counts)
    assert all(outcome != 'built' for outcome in outcomes[0::3] + outcomes[2::3])
    assert counts['refused'] > 0.75 * count
