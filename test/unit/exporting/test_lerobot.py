"""Normalizations, schedules and files of policies of LeRobot, without LeRobot."""

from types import SimpleNamespace

import numpy as np
import pytest

from support.bundles import diffusion_policy
from trt_ros.exporting.lerobot import main, node_parameters, rates_of
from trt_ros.exporting.lerobot_networks import coefficients, scaling
from trt_ros.model.leapp import read_bundle
from trt_ros.runtime.pipeline import Pipeline

STATS = {
    'mean': [1.0, 2.0],
    'std': [2.0, 0.0],
    **{name: [-1.0, 3.0] for name in ('min', 'q01', 'q10')},
    **{name: [3.0, 3.0] for name in ('max', 'q99', 'q90')},
}
ALPHAS = np.linspace(0.999, 0.01, 100)


@pytest.mark.parametrize(
    ('mode', 'values', 'normalized'),
    [
        ('MEAN_STD', [5.0, 2.0], [2.0, 0.0]),
        ('MIN_MAX', [2.0, 3.0], [0.5, -1.0]),
        ('QUANTILES', [5.0, 3.0], [2.0, -1.0]),
        ('QUANTILE10', [-1.0, 3.0], [-1.0, -1.0]),
    ],
)
def test_values_are_normalized_and_restored(mode, values, normalized):
    found = scaling(mode, STATS, 1e-8)
    x = np.array(values, np.float32)
    np.testing.assert_allclose(found.normalized(x), normalized, atol=1e-6)
    np.testing.assert_allclose(found.restored(found.normalized(x)), values, atol=1e-6)


def test_values_without_statistics_stay_and_folders_without_a_checkpoint_are_refused(tmp_path):
    assert scaling('MEAN_STD', None, 1e-8) is scaling('IDENTITY', STATS, 1e-8) is None
    with pytest.raises(SystemExit, match='QUANTILES lack q99'):
        scaling('QUANTILES', {'q01': [0.0]}, 1e-8)
    with pytest.raises(SystemExit, match=r'has no config.json\.\nRemedy: Name the folder'):
        main([str(tmp_path), '--joints', 'a', '--fps', '10'])


@pytest.mark.parametrize('scheduler', ['DDPM', 'DDIM'])
@pytest.mark.parametrize('prediction', ['epsilon', 'sample'])
@pytest.mark.parametrize('count', [1, 10, 100])
def test_a_network_that_is_right_is_denoised_to_the_actions(scheduler, prediction, count):
    stride = 100 // count
    steps = [*range(0, 100, stride)][::-1]
    clean, noise = 0.7, -1.3
    x = ALPHAS[steps[0]] ** 0.5 * clean + (1 - ALPHAS[steps[0]]) ** 0.5 * noise
    for t, (a, b, c, d, e, f) in zip(
        steps, coefficients(ALPHAS, steps, stride, scheduler, prediction)
    ):
        before = ALPHAS[t - stride] if t >= stride else 1.0
        now = (x - ALPHAS[t] ** 0.5 * clean) / (1 - ALPHAS[t]) ** 0.5  # The noise in x.
        y = now if prediction == 'epsilon' else clean
        x0 = a * x + b * y
        assert x0 == pytest.approx(clean, abs=1e-3)
        deviation = 0.0 if t < stride or scheduler == 'DDIM' else f
        assert (f > 0) == (deviation > 0)
        x = c * x0 + d * x + e * y
        # What is left of the noise, and the new one, have the variance of the step before.
        left = (x - before**0.5 * clean) / now
        assert left**2 + deviation**2 == pytest.approx(1 - before, abs=1e-3)
    assert x == pytest.approx(clean, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize('scheduler', ['DDPM', 'DDIM'])
def test_a_bundle_has_topics_histories_and_the_rates_of_lerobot(tmp_path, scheduler):
    path = diffusion_policy(tmp_path, scheduler)
    config = SimpleNamespace(type='diffusion', horizon=4, n_obs_steps=2, n_action_steps=3)
    found = node_parameters(path, ['camera'], 2, rates_of(config, 10.0))
    assert found['policy']['ros__parameters'] == {
        'model_path': str(path),
        'rate_hz': 10.0,
        'action_rate_hz': 10.0,
        'chunk_actions': 2,  # One of three is left for the duration of a run.
        'inputs': ['camera=image:camera?channel_order=rgb&resize=stretch&scale=1&history=2'],
    }
    assert read_bundle(path).bindings == (
        'camera=image:image?channel_order=rgb&resize=stretch&scale=1&history=2',
        'state=joints:joint_states#position[hip,knee,ankle]?history=2',
        'noise=noise:normal?seed=42',
    )
    with Pipeline.open(str(path), backend='onnxruntime') as pipeline:
        image, state = np.zeros((8, 10, 3), np.uint8), np.ones((1, 3), np.float32)
        first, second = (pipeline({'camera': image, 'state': state})['actions'] for _ in range(2))
    assert first.shape == (1, 3, 3) and (first != second).all()


@pytest.mark.parametrize(
    ('steps', 'ensemble', 'rates'),
    [
        (100, None, {'rate_hz': 0.625}),
        (25, None, {'rate_hz': 2.0}),
        (1, 0.01, {'rate_hz': 50.0, 'chunk_mode': 'temporal_ensembling'}),
    ],
)
def test_act_runs_once_per_executed_chunk_or_at_each_observation(steps, ensemble, rates):
    config = SimpleNamespace(
        type='act', chunk_size=100, n_action_steps=steps, temporal_ensemble_coeff=ensemble
    )
    assert rates_of(config, 50.0) == {'action_rate_hz': 50.0, **rates}


@pytest.mark.parametrize('rate', ['nan', 'inf', '0', '-30'])
def test_a_rate_that_no_data_set_has_is_refused(tmp_path, rate):
    with pytest.raises(SystemExit, match=r'^--fps is .*\.\nRemedy: Give the rate'):
        main([str(tmp_path), '--joints', 'a', f'--fps={rate}'])
