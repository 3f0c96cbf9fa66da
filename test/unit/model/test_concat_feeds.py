"""Inputs that are joined from parts."""

import numpy as np
import pytest

from support.fake_runner import open_fake
from trt_ros.errors import ParameterError, TensorMismatchError

PARTS = (
    'gravity=imu:imu#gravity',
    'q=joints:joint_states#position[hip,knee]?default=0.5,1&history=2',
    'last=state:action',
    'command=twist:cmd_vel',
)


def open_policy(*inputs, shape=(1, 15)):
    def answer(tensors):
        return {'action': tensors['obs'].reshape(1, -1)[:, :2] + 1, 'seen': tensors['obs']}

    obs = f'({", ".join(map(str, shape))})'.replace('-1', '?')
    return open_fake(answer, f'obs {obs}', f'action (?, 2); seen {obs}', inputs)


@pytest.mark.parametrize('shape', [(1, 15), (15,), (-1, 15), (1, 3, 5)])
def test_parts_follow_each_other_in_their_order(shape):
    order = 'gravity, q ,last,command'
    with open_policy(f'obs=concat:{order}', *reversed(PARTS), shape=shape) as pipeline:
        assert 'obs: gravity, q, last, command, one after another' in pipeline.log_lines
        assert pipeline.feeds['command'].array.shape == (6,)  # The rest.
        given = {'gravity': [1, 2, 3], 'q': [0.5, 2], 'command': [4, 5, 6, 7, 8, 9]}
        for _ in range(2):
            last, past = [0, 0], [0, 1]
            for q in ([0.5, 2], [1.5, 2]):
                given['q'] = q
                inputs = {name: np.array(value, np.float64) for name, value in given.items()}
                found = pipeline(inputs)
                new = [q[0] - 0.5, q[1] - 1]
                want = [1, 2, 3, *past, *new, *last, 4, 5, 6, 7, 8, 9]
                assert found['seen'].ravel().tolist() == want
                assert found['seen'].shape == tuple(map(abs, shape))
                last, past = [2, 3], new
            pipeline.reset_state()


@pytest.mark.parametrize(
    ('inputs', 'problem'),
    [
        (['obs=concat:'], 'has an empty source'),
        (['obs=concat:a,a', 'a=imu:imu#gravity'], 'has a part twice'),
        (['obs=concat:a', 'a=imu:imu#gravity', 'b=imu:imu#gravity'], 'The network has no input'),
        (['obs=concat:a'], "'a' cannot be a part .*\n.*no binding.*\n.*Add a=KIND"),
        (['obs=concat:obs'], "'obs' cannot be a part .*\n.*network input itself"),
        (['obs=concat:a', 'a=image:camera'], 'of the kind image'),
        (['obs=concat:a', 'a=imu:imu#gravity'], 'its parts have 3 elements'),
        (['obs=concat:a,b', 'a=tensor:a', 'b=tensor:b'], 'sizes of the parts a, b .* are unknown'),
        (['obs=concat:a,b', 'a=joints:q#position[j]?history=15', 'b=tensor:b'], 'a 15, b ?'),
    ],
)
def test_parts_that_do_not_fit_are_refused(inputs, problem):
    with pytest.raises((ParameterError, TensorMismatchError), match=problem):
        open_policy(*inputs)
