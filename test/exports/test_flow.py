"""torchvision's optical flow: two images, or an image and the one before it as a state."""

import numpy as np
import pytest

from trt_ros.families.registry import TENSORS
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame

SIZE = 128  # RAFT's minimum.
RAFT = '?resize=stretch&mean=0.5,0.5,0.5&std=0.5,0.5,0.5'


@pytest.fixture(scope='module')
def raft(torch):
    optical_flow = pytest.importorskip(
        'torchvision.models.optical_flow', reason='it builds the network: pip install torchvision'
    )
    torch.manual_seed(0)
    return optical_flow.raft_small(weights=None).eval()


@pytest.fixture(scope='module')
def frames():
    random = np.random.default_rng(0)
    scene = random.integers(0, 255, (SIZE // 8 + 4, SIZE // 8 + 4, 3), np.uint8)
    scene = scene.repeat(8, axis=0).repeat(8, axis=1)
    return [np.ascontiguousarray(scene[y : y + SIZE, x : x + SIZE]) for x, y in ((0, 0), (3, 5))]


def expected_flow(torch, raft, first, second):
    def normalized(pixels):
        return torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 127.5 - 1

    with torch.no_grad():
        return raft(normalized(first), normalized(second), num_flow_updates=2)[-1].numpy()


def test_two_images_give_the_flow_between_them(torch, raft, export, frames):
    def flow(raft, first, second):
        return raft(first, second, num_flow_updates=2)[-1]

    shape = torch.rand(1, 3, SIZE, SIZE)
    path = export(raft, (shape, shape), ['first', 'second'], ['flow'], flow)
    inputs = (f'first=image:a{RAFT}', f'second=image:b{RAFT}')
    first, second = frames
    with Pipeline.open(path, families=TENSORS, backend='onnxruntime', inputs=inputs) as pipeline:
        found = pipeline(
            {
                'first': Frame.from_pixels(first, 'rgb8'),
                'second': Frame.from_pixels(second, 'rgb8'),
            }
        )
    np.testing.assert_allclose(found['flow'], expected_flow(torch, raft, first, second), atol=2e-3)


def test_the_image_before_is_a_state(torch, raft, export, frames):
    def flow(raft, image, previous):
        return raft(previous, image, num_flow_updates=2)[-1], image.clone()

    shape = torch.rand(1, 3, SIZE, SIZE)
    path = export(raft, (shape, shape), ['image', 'previous'], ['flow', 'current'], flow)
    options = {
        'inputs': (f'image=image:camera{RAFT}', 'previous=state:current'),
        'outputs': ('flow',),
    }
    with Pipeline.open(path, families=TENSORS, backend='onnxruntime', **options) as pipeline:
        found = [pipeline({'image': Frame.from_pixels(each, 'rgb8')}) for each in frames]
    assert list(found[1]) == ['flow']
    np.testing.assert_allclose(found[1]['flow'], expected_flow(torch, raft, *frames), atol=2e-3)
