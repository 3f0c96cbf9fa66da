"""Policies of LeRobot as bundles, beside LeRobot's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from trt_ros.exporting.lerobot import main
from trt_ros.runtime.pipeline import Pipeline

torch = pytest.importorskip('torch')
pytest.importorskip('lerobot', reason="no LeRobot: pip install 'lerobot[diffusion]' onnx")

from lerobot.configs.types import FeatureType, PolicyFeature  # noqa: E402
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors  # noqa: E402

JOINTS = ['pan', 'lift', 'grip']
SMALL_ACT = {'dim_model': 32, 'n_heads': 2, 'dim_feedforward': 64, 'n_encoder_layers': 1}
SMALL_DIFFUSION = {'down_dims': (16, 32), 'n_groups': 4, 'n_action_steps': 8, 'horizon': 16}
DDIM = {'noise_scheduler_type': 'DDIM', 'num_inference_steps': 7}
EXPORT = ['--joints', ','.join(JOINTS), '--fps', '10']


def write(folder: Path, kind: str, cameras: list[str], **settings: Any) -> tuple[Any, Any, Any]:
    """Write a checkpoint with random weights; return the policy and its processors."""
    torch.manual_seed(0)
    shapes = {f'observation.images.{name}': (3, 64, 80) for name in cameras}
    shapes |= {'observation.state': (3,)} | (
        {} if cameras else {'observation.environment_state': (5,)}
    )
    types = {3: FeatureType.VISUAL, 1: FeatureType.STATE}
    features = {
        name: PolicyFeature(FeatureType.ENV if 'environment' in name else types[len(shape)], shape)
        for name, shape in shapes.items()
    }
    action = {'action': PolicyFeature(FeatureType.ACTION, (3,))}
    statistics: dict[str, Any] = {}
    for name, feature in (features | action).items():
        low = (
            torch.rand(3, 1, 1)
            if feature.type is FeatureType.VISUAL
            else torch.rand(feature.shape)
        )
        high = low + torch.rand(low.shape) * 2
        high.view(-1)[-1] = low.view(-1)[-1]  # An element that never moved.
        std = (high - low) / 3
        statistics[name] = {'min': low, 'max': high, 'mean': (low + high) / 2, 'std': std}
        statistics[name] |= {'q01': low, 'q99': high, 'q10': low, 'q90': high}
    config = make_policy_config(
        kind,
        input_features=features,
        output_features=action,
        device='cpu',
        pretrained_backbone_weights=None,
        push_to_hub=False,
        **settings,
    )
    policy = get_policy_class(kind)(config).eval()
    before, after = make_pre_post_processors(config, dataset_stats=statistics)
    for each in (policy, before, after):
        each.save_pretrained(folder)
    return policy, before, after


def observations(cameras: list[str], count: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return observations for the pipeline and for LeRobot."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        state, environment = rng.random((1, 3), np.float32), rng.random((1, 5), np.float32)
        images = {name: rng.integers(0, 256, (64, 80, 3), np.uint8) for name in cameras}
        mine = {'state': state, **{name: image[..., ::-1] for name, image in images.items()}}
        theirs = {'observation.state': torch.from_numpy(state[0])}
        for name, image in images.items():
            pixels = torch.from_numpy(image).permute(2, 0, 1) / 255
            theirs[f'observation.images.{name}'] = pixels
        if not cameras:
            mine['environment_state'] = environment
            theirs['observation.environment_state'] = torch.from_numpy(environment[0])
        found.append((mine, theirs))
    return found


@pytest.mark.parametrize(
    ('cameras', 'settings'),
    [
        (['front', 'wrist'], {}),
        ([], {'use_vae': False}),
        (
            ['front'],
            {'normalization_mapping': dict.fromkeys(('VISUAL', 'STATE', 'ACTION'), 'QUANTILES')},
        ),
    ],
)
def test_act_gives_the_chunks_of_lerobot(tmp_path, cameras, settings):
    policy, before, after = write(
        tmp_path, 'act', cameras, chunk_size=8, n_action_steps=4, **SMALL_ACT, **settings
    )
    main([str(tmp_path), *EXPORT])
    found = []
    with Pipeline.open(str(tmp_path / 'bundle/policy.yaml'), backend='onnxruntime') as pipeline:
        for mine, theirs in observations(cameras, 5):
            wanted = after(policy.predict_action_chunk(before(theirs)))
            found.append(pipeline(mine)['actions'])
            np.testing.assert_allclose(found[-1], wanted.numpy(), atol=2e-6)
    assert np.std(found, axis=0).max() > 1e-3  # They depend on the observations.


@pytest.mark.parametrize(
    ('cameras', 'settings'),
    [
        (['front', 'wrist'], {'num_train_timesteps': 12}),
        (['front'], {**DDIM, 'crop_shape': (57, 60)}),
        (
            ['front', 'wrist'],
            {
                **DDIM,
                'prediction_type': 'sample',
                'resize_shape': (40, 48),
                'crop_ratio': 0.9,
                'use_separate_rgb_encoder_per_camera': False,
            },
        ),
        (
            [],
            {
                'num_train_timesteps': 30,
                'num_inference_steps': 10,
                'prediction_type': 'sample',
                'n_obs_steps': 1,
                'clip_sample': False,
            },
        ),
        ([], {'num_train_timesteps': 50, 'num_inference_steps': 1, 'n_obs_steps': 3}),
    ],
)
def test_diffusion_denoises_the_same_noise_as_lerobot(tmp_path, monkeypatch, cameras, settings):
    policy, before, after = write(tmp_path, 'diffusion', cameras, **SMALL_DIFFUSION, **settings)
    main([str(tmp_path), *EXPORT])
    with Pipeline.open(str(tmp_path / 'bundle/policy.yaml'), backend='onnxruntime') as pipeline:
        feed = pipeline.feeds['noise']
        for run, (mine, theirs) in enumerate(observations(cameras, 6)):
            noise = torch.from_numpy(feed.values(run).reshape(feed.spec.shape))
            draws = iter(noise[1:])
            monkeypatch.setattr(
                'diffusers.schedulers.scheduling_ddpm.randn_tensor',
                lambda *_, draws=draws, **__: next(draws)[None],
            )
            policy._queues['action'].clear()  # Its history goes on.
            first = policy.select_action(before(theirs), noise=noise[:1])
            wanted = after(torch.stack([first, *policy._queues['action']], 1)).numpy()
            assert not [*draws]
            found = pipeline(mine)['actions']
            assert found.shape[1] == 16 - policy.config.n_obs_steps + 1
            np.testing.assert_allclose(found[:, :8], wanted, atol=2e-5)


@pytest.mark.parametrize(
    ('kind', 'settings', 'rates'),
    [
        ('act', {'chunk_size': 10, 'n_action_steps': 10}, {'rate_hz': 1.25}),
        (
            'act',
            {'chunk_size': 10, 'n_action_steps': 1, 'temporal_ensemble_coeff': 0.01},
            {'rate_hz': 10.0, 'chunk_mode': 'temporal_ensembling'},
        ),
        ('diffusion', SMALL_DIFFUSION | DDIM, {'rate_hz': 10.0, 'chunk_actions': 8}),
    ],
)
def test_the_parameters_do_what_the_loop_of_lerobot_does(tmp_path, kind, settings, rates):
    write(tmp_path, kind, ['front'], **(SMALL_ACT if kind == 'act' else {}), **settings)
    main([str(tmp_path), *EXPORT])
    text = (tmp_path / 'bundle/parameters.yaml').read_text()
    found = yaml.safe_load(text)['policy']['ros__parameters']
    assert found.pop('inputs') == [
        'front=image:front?channel_order=rgb&resize=stretch&scale=1'
        + ('&history=2' if kind == 'diffusion' else '')
    ]
    assert Path(found.pop('model_path')) == tmp_path / 'bundle/policy.yaml'
    assert found == {'action_rate_hz': 10.0, **rates}


def change(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return edit


@pytest.mark.parametrize(
    ('damage', 'error'),
    [
        (lambda folder: (folder / 'policy_preprocessor.json').unlink(), 'migrate_policy_normal'),
        (
            change(
                'config.json', '"temporal_ensemble_coeff": null', '"temporal_ensemble_coeff": 1'
            ),
            'the policy node has 0.01',
        ),
        (
            change('policy_preprocessor.json', 'to_batch_processor', 'smolvla_new_line_processor'),
            'NewLineTaskProcessorStep',
        ),
    ],
)
def test_what_a_bundle_cannot_do_is_refused(tmp_path, damage, error):
    write(tmp_path, 'act', [], n_action_steps=1, chunk_size=4, **SMALL_ACT)
    damage(tmp_path)
    with pytest.raises(SystemExit, match=error):
        main([str(tmp_path), *EXPORT])


def test_joints_are_as_many_as_the_actions(tmp_path):
    write(tmp_path, 'act', [], n_action_steps=1, chunk_size=4, **SMALL_ACT)
    with pytest.raises(SystemExit, match='--joints has 2 names, but the checkpoint 3'):
        main([str(tmp_path), '--joints', 'a,b', '--fps', '10'])
