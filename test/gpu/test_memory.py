"""GPU memory per owner equals what NVML sees the process take."""

from contextlib import closing
import json
from pathlib import Path

import numpy as np
import pytest

from support.scripts import run_script
from trt_ros.demo import MODEL
from trt_ros.engine.open import open_engine
from trt_ros.errors import BackendError
from trt_ros.runtime.gpu.measure import open_frames

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures('used_nbytes')]

# In a process of its own, as other tests leave memory of libraries behind.
MEASURE = """
import json
import sys
from cuda.core import system
import numpy as np
from trt_ros.cuda.device import open_gpu
from trt_ros.cuda.memory import process_nbytes
from trt_ros.runtime.gpu.measure import open_frames
from trt_ros.vision.frame import Frame
path, device = sys.argv[1], int(sys.argv[2])
gpu = open_gpu(device)
gpu.synchronize()
nvml = system.Device(pci_bus_id=gpu.pci_bus_id)

def used():
    return process_nbytes(nvml) or nvml.memory_info.used

before = used()
pipeline = open_frames(path, device=device)
pipeline.warm_up(Frame.from_pixels(np.zeros((1080, 1920, 3), np.uint8)))
found = {
    'nvml': used() - before,
    'context': before,
    'device': pipeline.memory()['device'],
    'peak': pipeline.account.peak(),
    'diagnostics': pipeline.diagnostics()['GPU memory (MB)'],
}
pipeline.close()
found['left'] = used() - before
found['owners left'] = pipeline.memory()['device']
print(json.dumps(found))
"""


def large_network(folder: Path) -> tuple[Path, int]:
    """Write a network of 112 MiB of weights; return its path and the bytes of the weights."""
    from support.save_network import save_network

    rng = np.random.default_rng(0)
    weights = {
        'kernel': rng.normal(0, 0.1, (8, 3, 8, 8)).astype(np.float32),
        'first': rng.normal(0, 0.1, (768, 16384)).astype(np.float32),
        'second': rng.normal(0, 0.1, (16384, 1024)).astype(np.float32),
    }
    nodes = (
        'patches = Conv <strides = [8, 8]> (images, kernel) flat = Flatten(patches) '
        'wide = MatMul(flat, first) positive = Relu(wide) logits = MatMul(positive, second)'
    )
    inputs, outputs = {'images': (1, 3, 64, 96)}, {'logits': (1, 1024)}
    path = folder / 'large.onnx'
    save_network(path, nodes, inputs, outputs, constants=weights)
    return path, sum(value.nbytes for value in weights.values())


@pytest.mark.parametrize('network', ['demo', 'large'])
def test_gpu_memory_per_owner_agrees_with_nvml(gpu, tmp_path, network):
    path, weights_nbytes = (MODEL, 0) if network == 'demo' else large_network(tmp_path)
    done = run_script(MEASURE, path, gpu.index)
    found = json.loads(done.stdout.splitlines()[-1])
    print(f'{network}: {found}')
    total = sum(found['device'].values())
    assert total == pytest.approx(found['nvml'], rel=0.1)
    assert found['device']['engine'] >= 0.9 * weights_nbytes
    assert found['peak']['total'] >= total
    assert found['diagnostics'].endswith(f'total {total / 1e6:.1f}')
    assert found['owners left'] == {}
    assert found['left'] < found['nvml']


STREAM = """
import json
import sys
import numpy as np
from trt_ros.engine.options import BuildOptions
from trt_ros.runtime.gpu.measure import open_frames
from trt_ros.runtime.gpu.open import open_tensor_runner
path, device = sys.argv[1], int(sys.argv[2])
images = np.random.default_rng(1).random((1, 3, 64, 96), np.float32)
found, outputs = {}, []
for budget_mib in (None, 16):
    build = BuildOptions(weight_streaming_budget_mib=budget_mib)
    runner = open_tensor_runner(path, build, device=device)
    found[f'engine {budget_mib}'] = runner.account.device['engine']
    outputs.append(runner.infer({'images': images})['logits'].copy())
    runner.close()
pipeline = open_frames(path, build, device=device)
pipeline.warm_up()
found['log'] = pipeline.log_lines
pipeline.close()
found['equal'] = bool(np.allclose(*outputs, rtol=1e-2, atol=1e-2 * np.abs(outputs[0]).max()))
print(json.dumps(found))
"""


def test_weights_beyond_the_budget_stay_in_host_memory(gpu, tmp_path):
    path, weights_nbytes = large_network(tmp_path)
    done = run_script(STREAM, path, gpu.index)
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found['equal']
    assert found['engine None'] >= 0.9 * weights_nbytes
    assert found['engine 16'] <= 0.5 * weights_nbytes
    assert any('at most 16 MiB of weights stay on the GPU' in line for line in found['log'])


FULL = """
import sys
from trt_ros.cuda.device import open_gpu
from trt_ros.cuda.memory import Account, DeviceBuffer, gpu_memory
from trt_ros.engine.open import open_engine
from trt_ros.errors import BackendError
path, cache, device = sys.argv[1], sys.argv[2], int(sys.argv[3])
gpu = open_gpu(device)
with gpu.context:
    rest = DeviceBuffer(gpu_memory()[0] - (64 << 20), 'test', Account())
    try:
        open_engine(path, engine_cache_dir=cache, device=device)
    except BackendError as error:
        print(error)
"""


@pytest.mark.alone
def test_engine_beyond_the_free_memory_is_kept(gpu, tmp_path):
    path, _ = large_network(tmp_path)
    cache = tmp_path / 'cache'
    with gpu.context:
        entry = open_engine(path, engine_cache_dir=cache, device=gpu.index)
        entry.engine.close()
    before = written(cache)
    done = run_script(FULL, path, cache, gpu.index)
    print(done.stdout)
    assert 'too little free memory' in done.stdout
    assert 'used by' in done.stdout and 'Remedy:' in done.stdout
    assert 'Rebuild' not in done.stdout
    assert before == written(cache) != {}


def written(cache: Path) -> dict[Path, int]:
    return {each: each.stat().st_mtime_ns for each in cache.rglob('*.engine')}


def test_a_budget_that_the_network_exceeds_is_refused_and_frees_everything(gpu):
    with pytest.raises(BackendError, match='more than memory_budget_mb = 5') as caught:
        open_frames(MODEL, device=gpu.index, memory_budget_mb=5.0).warm_up()
    assert 'engine' in caught.value.cause and 'activations' in caught.value.cause
    with closing(open_frames(MODEL, device=gpu.index, memory_budget_mb=4000.0)) as pipeline:
        pipeline.warm_up()
        assert 0 < pipeline.account.device_nbytes < 4e9
