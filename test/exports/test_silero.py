"""Silero VAD, of its wheel: a constant, and a state whose batch is on the second axis."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from trt_ros.families.registry import TENSORS
from trt_ros.runtime.pipeline import Pipeline

RATE_HZ = 16000
CHUNK, CONTEXT = 512, 64  # Samples of a run, and of the chunk before it that come first.


@pytest.fixture(scope='module')
def model():
    found = find_spec('silero_vad')
    if found is None:
        pytest.skip('no silero_vad: pip install --no-deps silero-vad==6.2.3')
    return str(Path(found.origin).parent / 'data' / 'silero_vad.onnx')


def test_speech_probabilities_equal_those_of_onnxruntime(model):
    inputs = ('input=tensor:audio', f'sr=constant:{RATE_HZ}', 'state=state:stateN')
    session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])
    state = np.zeros((2, 1, 128), np.float32)
    audio = np.random.default_rng(0).normal(0, 0.1, CONTEXT + 50 * CHUNK).astype(np.float32)
    audio[: 25 * CHUNK] *= np.sin(np.arange(25 * CHUNK) * 200 * 2 * np.pi / RATE_HZ)
    found = []
    with Pipeline.open(model, families=TENSORS, backend='onnxruntime', inputs=inputs) as pipeline:
        for start in range(0, 50 * CHUNK, CHUNK):
            chunk = audio[None, start : start + CONTEXT + CHUNK]
            expected, state = session.run(
                None, {'input': chunk, 'state': state, 'sr': np.array(RATE_HZ)}
            )
            found.append(pipeline({'input': chunk})['output'].item())
            assert found[-1] == expected.item()
    assert len(set(found)) == 50
