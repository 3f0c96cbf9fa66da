"""Bundles that LEAPP exports from torch, beside LEAPP's own runtime."""

from collections.abc import Callable

import numpy as np
import pytest

from trt_ros.model.leapp import read_bundle
from trt_ros.runtime.pipeline import Pipeline

torch = pytest.importorskip('torch')
leapp = pytest.importorskip('leapp', reason='no leapp: pip install leapp torch')

from leapp import InferenceManager, annotate  # noqa: E402

ONNX = {'export_with': 'onnx'}


def two_networks() -> None:
    encoder, head = torch.nn.Linear(8, 4), torch.nn.Linear(4, 3)
    seen = annotate.input_tensors('encoder', {'seen': torch.randn(1, 8)})
    annotate.output_tensors('encoder', {'features': (x := torch.tanh(encoder(seen)))}, **ONNX)
    x = annotate.input_tensors('head', {'features': x})
    annotate.output_tensors('head', {'action': head(x)}, **ONNX)


def feedback() -> None:
    policy = torch.nn.Linear(9, 3)
    seen = annotate.input_tensors('policy', {'seen': torch.randn(1, 6)})
    last = annotate.state_tensors('policy', {'last': torch.zeros(1, 3)})
    action = torch.tanh(policy(torch.cat([seen, last], 1)))
    annotate.update_state('policy', {'last': action})
    annotate.output_tensors('policy', {'scaled': 2 * action}, **ONNX)


def initial_values() -> None:
    leak = annotate.input_tensors('filter', {'value': torch.randn(1, 4)})
    mean = annotate.state_tensors('filter', {'mean': torch.arange(4.0).reshape(1, 4)})
    mean = 0.9 * mean + 0.1 * leak
    annotate.update_state('filter', {'mean': mean})
    annotate.output_tensors('filter', {'filtered': mean - 1}, **ONNX)


def gru() -> None:
    cell, head = torch.nn.GRUCell(6, 16), torch.nn.Linear(16, 2)
    seen = annotate.input_tensors('memory', {'seen': torch.randn(1, 6)})
    hidden = annotate.state_tensors('memory', {'hidden': torch.randn(1, 16)})
    hidden = cell(seen, hidden)
    annotate.update_state('memory', {'hidden': hidden})
    annotate.output_tensors('memory', {'features': (x := 1 * hidden)}, **ONNX)
    x = annotate.input_tensors('head', {'features': x})
    annotate.output_tensors('head', {'action': head(x)}, **ONNX)


def image() -> None:
    eyes = torch.nn.Conv2d(3, 4, 3, stride=2)
    hand = torch.nn.Linear(7, 2)
    rgb = annotate.input_tensors('eyes', {'rgb': 255 * torch.rand(1, 16, 24, 3)})
    x = torch.relu(eyes(rgb.permute(0, 3, 1, 2) / 255)).mean((2, 3))
    annotate.output_tensors('eyes', {'features': x}, **ONNX)
    x, joints = annotate.input_tensors('hand', {'features': x, 'joints': torch.randn(1, 3)})
    annotate.output_tensors('hand', {'action': hand(torch.cat([x, joints], 1))}, **ONNX)


def video() -> None:
    """Track with a memory of seven frames, as networks of video segmentation do."""
    eyes, head = torch.nn.Conv2d(3, 16, 8, stride=8), torch.nn.Linear(16, 4)
    attend = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    remember = torch.nn.Linear(16, 16)
    rgb = annotate.input_tensors('eyes', {'rgb': torch.randn(1, 3, 16, 24)})
    x = eyes(rgb).flatten(2).transpose(1, 2)
    annotate.output_tensors('eyes', {'tokens': x}, **ONNX)
    x = annotate.input_tensors('memory', {'tokens': x})
    ring = annotate.state_tensors('memory', {'ring': torch.zeros(1, 7, 6, 16)})
    seen, _ = attend(x, ring.flatten(1, 2), ring.flatten(1, 2), need_weights=False)
    x = x + seen
    ring = torch.cat([ring[:, 1:], remember(x)[:, None]], 1)
    annotate.update_state('memory', {'ring': ring})
    annotate.output_tensors('memory', {'features': x}, **ONNX)
    x = annotate.input_tensors('mask', {'features': x})
    annotate.output_tensors('mask', {'logits': head(x)}, **ONNX)


@pytest.mark.parametrize('make', [two_networks, feedback, initial_values, gru, image, video])
def test_a_bundle_computes_what_leapp_computes(tmp_path, make: Callable[[], None]):
    torch.manual_seed(0)
    leapp.start(name='made', save_path=str(tmp_path))
    with torch.no_grad():
        make()
    leapp.stop()
    leapp.compile_graph(visualize=False, validate=False)
    path = tmp_path / 'made' / 'made.yaml'
    names = read_bundle(path).names
    reference = InferenceManager(str(path))
    rng = np.random.default_rng(0)
    with Pipeline.open(str(path), backend='onnxruntime') as pipeline:
        for run in range(100):
            if run == 60:
                reference.reset()
                pipeline.reset_state()
            inputs = {
                name: rng.standard_normal(value.shape, np.float32)
                for name, value in reference.get_mock_input().items()
            }
            wanted = reference({name: torch.from_numpy(x) for name, x in inputs.items()})
            found = pipeline({names[name]: x for name, x in inputs.items()})
            assert len(found) == len(wanted)
            for name, value in wanted.items():
                np.testing.assert_allclose(found[names[name]], value.numpy(), atol=2e-6)
