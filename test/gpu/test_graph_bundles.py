"""Bundles of engines in one captured graph, compared with ONNX Runtime."""

from pathlib import Path
from typing import Any

from demo.scene import draw_scene
import numpy as np
import pytest

from support.bundles import denoiser, diffusion_policy, write_enhanced
from trt_ros.runtime.pipeline import Pipeline

pytestmark = pytest.mark.gpu


@pytest.fixture
def both(gpu, nothing_left):
    """Open a bundle on the GPU and with ONNX Runtime."""
    opened: list[Pipeline] = []

    def both(path: Path, **options: Any) -> list[Pipeline]:
        for backend in ('tensorrt_rtx', 'onnxruntime'):
            given = {'device': gpu.index, 'precision': 'fp32'} if 'rtx' in backend else {}
            opened.append(Pipeline.open(str(path), backend=backend, **given, **options))
        assert opened[0].diagnostics()['CUDA graph fallbacks'] == ''
        return opened

    yield both
    for pipeline in opened:
        pipeline.close()


@pytest.mark.parametrize('steps', [1, 2, 3, 10])
def test_a_loop_with_noise(both, tmp_path, steps):
    ours, reference = both(denoiser(tmp_path, steps), outputs=['x_next', 'context'])
    rng = np.random.default_rng(steps)
    for _ in range(10):
        inputs = {'seen': rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32)}
        found, wanted = ours(inputs), reference(inputs)
        for name, value in wanted.items():  # Products in TF32.
            np.testing.assert_allclose(found[name], value, atol=1e-3)


def test_a_detector_gets_the_image_of_an_enhancer(both, tmp_path):
    dark = draw_scene(np.random.default_rng(5), (640, 480))[0] // 4
    path = write_enhanced(tmp_path)
    found, wanted = (each(dark) for each in both(path, decoder='yolov8', inputs=['dark=image:i']))
    assert found.labels.tolist() == wanted.labels.tolist()
    assert len(found) >= 4
    np.testing.assert_allclose(found.xyxy, wanted.xyxy, atol=1)


@pytest.mark.parametrize('scheduler', ['DDPM', 'DDIM'])
def test_a_diffusion_policy(both, tmp_path, scheduler):
    ours, reference = both(diffusion_policy(tmp_path, scheduler))
    rng = np.random.default_rng(0)
    for _ in range(10):
        image = rng.integers(0, 256, (8, 10, 3), np.uint8)
        inputs = {'camera': image, 'state': rng.normal(0, 1, (1, 3)).astype(np.float32)}
        found, wanted = ours(inputs)['actions'], reference(inputs)['actions']
        np.testing.assert_allclose(found, wanted, atol=5e-3)  # Products in TF32.


def test_a_policy_of_others(both, policies):
    ours, reference = both(policies / 'franka/franka_reach.yaml')
    sizes = {'joint_pos': 7, 'joint_vel': 7, 'target_pos': 3, 'target_rot': 4}
    rng = np.random.default_rng(0)
    for _ in range(100):
        inputs = {n: rng.normal(0, 1, (1, size)).astype(np.float32) for n, size in sizes.items()}
        found, wanted = ours(inputs), reference(inputs)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)
