"""Networks of several inputs, and nodes that run them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from support.ros_nodes import NodeProcess
from support.ros_peer import Peer

SIZE = 16
HIDDEN = 8
#: In the text format of ONNX.
NETWORKS = {
    # The mean color of each image, left minus right.
    'stereo': '(float[1, 3, 16, 16] left, float[1, 3, 16, 16] right) => (float[1, 3] difference) '
    '{ l = GlobalAveragePool(left) r = GlobalAveragePool(right) sub = Sub(l, r) '
    'difference = Flatten(sub) }',
    # Mean of each camera and the joints, in one vector.
    'policy': '(float[1, 3, 16, 16] left, float[1, 3, 16, 16] right, float[1, 2] joints) => '
    '(float[1, 8] action) { l = GlobalAveragePool(left) r = GlobalAveragePool(right) '
    'lf = Flatten(l) rf = Flatten(r) action = Concat <axis = 1> (lf, rf, joints) }',
    # Mean color of each of three cameras, and four numbers of a calibration.
    'bev': '(float[1, 3, 3, 16, 16] x, float[1, 4] k) => (float[1, 13] means) '
    '{ colors = ReduceMean <axes = [3, 4], keepdims = 0> (x) flat = Flatten(colors) '
    'means = Concat <axis = 1> (flat, k) }',
    # Mean color of an image, minus that of each of two.
    'context': '(float[1, 3, 16, 16] main, float[2, 3, 16, 16] x) => '
    '(float[2, 3, 1, 1] differences) { one = GlobalAveragePool(main) '
    'two = GlobalAveragePool(x) differences = Sub(one, two) }',
}


@pytest.fixture(scope='module')
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the paths of networks of several inputs that a tensor node runs, by name."""
    from onnx import TensorProto, helper

    from support.save_network import save_network, save_texts

    folder = tmp_path_factory.mktemp('models')
    random = np.random.default_rng(1)
    weights = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in (
            ('w', (1, 3 * HIDDEN, 4)),
            ('r', (1, 3 * HIDDEN, HIDDEN)),
            ('b', (1, 6 * HIDDEN)),
        )
    }
    return {
        **save_texts(folder, NETWORKS),
        'gru': save_network(
            folder / 'gru.onnx',
            'ignored, hn = GRU <hidden_size = 8> (x, w, r, b, "", h) '
            'energy = ReduceSum <keepdims = 0> (hn)',
            {'x': (1, 1, 4), 'h': (1, 1, HIDDEN)},
            {'energy': (), 'hn': (1, 1, HIDDEN)},
            constants=weights,
        ),
        'scaled': save_network(
            folder / 'scaled.onnx',
            [
                helper.make_node('Mul', ['x', 'factor'], ['product/out:0']),
                helper.make_node('Cast', ['x'], ['443'], to=TensorProto.INT64),
            ],
            {'x': (1, 3), 'factor': (1,)},
            {'product/out:0': (1, 3), '443': [TensorProto.INT64, (1, 3)]},
        ),
    }


@pytest.fixture
def start(
    start_active: Callable[..., NodeProcess], models: dict[str, str], backend: str
) -> Callable[..., NodeProcess]:
    """Start a node and wait until it is active."""

    def start(kind: str, name: str, model: str, *ros_args: str, **parameters: Any) -> NodeProcess:
        return start_active(name, kind, models[model], *ros_args, backend=backend, **parameters)

    return start


@pytest.fixture
def publisher(peer: Peer) -> Callable[..., Any]:
    """Create a publisher that has a subscriber."""
    return peer.connected


@pytest.fixture
def picture_of() -> Callable[..., Any]:
    """Make a small image of one color."""
    from support.ros_messages import as_image, stamped

    def make(color: Sequence[int], stamp: float, frame_id: str = 'camera') -> Any:
        pixels = np.full((SIZE, SIZE, 3), color, np.uint8)
        return stamped(as_image(pixels, 'rgb8'), stamp, frame_id)

    return make
