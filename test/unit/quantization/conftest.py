"""Small networks whose layers can be told by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
from demo.scene import TRAINING, draw_scene
import numpy as np
import pytest

RESIDUAL = """(float[1,3,16,16] images) => (float[1,2,16,16] scores) {
    [a] c = Conv(images, wa)
    [relu] a = Relu(c)
    [b] b = Conv(a, wb, bb)
    [sum] sum = Add(a, b)
    [head] logits = Conv(sum, wh)
    [scores] scores = Sigmoid(logits)
}"""


@pytest.fixture
def residual_model() -> Callable[..., Any]:
    """Make a ModelProto: conv a, relu, conv b, their sum, conv head; 3 channels of 16 x 16."""
    from support.save_network import parse_network

    def make() -> Any:
        rng = np.random.default_rng(0)
        shapes = {'wa': (3, 3, 1, 1), 'wb': (3, 3, 1, 1), 'wh': (2, 3, 1, 1), 'bb': 3}
        weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        return parse_network(RESIDUAL, constants=weights, ir_version=9)

    return make


@pytest.fixture(scope='session')
def pictures(tmp_path_factory) -> Path:
    """Write four scenes of the demo; return their folder."""
    folder = tmp_path_factory.mktemp('pictures')
    for index in range(4):
        picture = draw_scene(np.random.default_rng([TRAINING, index]), (640, 480))[0]
        cv2.imwrite(str(folder / f'{index}.png'), picture)
    return folder
