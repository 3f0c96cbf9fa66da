"""Layers of an engine, read from the engine."""

import json
import subprocess
import sys

import pytest

from trt_ros.demo import MODEL
from trt_ros.engine.open import open_engine
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.sidecar import sidecar_path

pytestmark = pytest.mark.gpu


def inspect(*args: object) -> str:
    """Run the verb in a process of its own, as TensorRT leaves its CUDA context current."""
    command = [sys.executable, '-m', 'trt_ros', 'inspect', *map(str, args), '--layers']
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_the_layers_of_the_demo_model_are_read_from_its_engine(gpu):
    with gpu.context:
        options = BuildOptions(precision='fp16')
        opened = open_engine(MODEL, options, device=gpu.index)
        formats = opened.engine.library.trt.LayerInformationFormat
        inspector = opened.engine.handle.create_engine_inspector()
        print(inspector.get_engine_information(formats.JSON)[:2000])
        del inspector
        opened.engine.close()
    sidecar_path(opened.engine.path).unlink()
    found = json.loads(inspect(opened.engine.path, '--json'))
    assert (found['layers_from'], found['verbosity']) == ('engine', 'DETAILED')
    layers = found['layers']
    for name in ('tactic', 'format', 'weights_nbytes', 'output_nbytes'):
        print(name, 'known of', sum(bool(layer[name]) for layer in layers), 'layers')
    assert layers and all(layer['name'] for layer in layers)
    assert 'float16' in {layer['dtype'] for layer in layers}
    assert any(layer['output_nbytes'] for layer in layers)
    assert found['activations_nbytes'] > 0
    text = inspect(opened.engine.path)
    print('\n'.join(text.splitlines()[:12]), text.splitlines()[-1], sep='\n')
    assert f'{len(layers)} layers of the engine' in text
