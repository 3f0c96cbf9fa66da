"""
Export of ACT and diffusion policies of LeRobot as bundles.

    python -m trt_ros.exporting.lerobot outputs/train/act/checkpoints/last/pretrained_model \
        --joints shoulder_pan,shoulder_lift,elbow_flex,wrist_flex,wrist_roll,gripper --fps 30

It needs LeRobot and torch, which are imported here alone; robots need neither of them.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from trt_ros.exporting.lerobot_networks import (
    Checkpoint,
    Exported,
    Scaling,
    act,
    diffusion,
    input_name,
    scaling,
)

POLICIES = ('act', 'diffusion')
#: Steps of processors that change no values, and those that a bundle has inside.
PROCESSORS = {
    'RenameObservationsProcessorStep',
    'AddBatchDimensionProcessorStep',
    'DeviceProcessorStep',
    'NormalizerProcessorStep',
    'UnnormalizerProcessorStep',
}
#: Weight of temporal ensembling in the policy node.
ENSEMBLING = 0.01
#: Part of a chunk that is left for the duration of the next run.
RESERVE = 0.2


def fail(problem: str, remedy: str = '') -> NoReturn:
    """End with an error."""
    raise SystemExit(f'{problem}\nRemedy: {remedy}' if remedy else problem)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Load a checkpoint; ends with an error where a bundle cannot do what it does."""
    for name in ('config.json', 'policy_preprocessor.json'):
        if not (folder / name).is_file():
            fail(
                f'{folder} has no {name}.',
                'Name the folder pretrained_model of a checkpoint; bring those before LeRobot 0.4 '
                'to its format by lerobot.processor.migrate_policy_normalization.',
            )
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors
    import torch

    config = PreTrainedConfig.from_pretrained(folder)
    if config.type not in POLICIES:
        fail(f'Policies of the type {config.type} are not exported; {" and ".join(POLICIES)} are.')
    weight = getattr(config, 'temporal_ensemble_coeff', None)
    if weight not in (None, ENSEMBLING):
        fail(
            f'temporal_ensemble_coeff is {weight}; the policy node has {ENSEMBLING}.',
            f'Set it to {ENSEMBLING} or null in config.json.',
        )
    config.device, config.pretrained_backbone_weights, config.compile_model = 'cpu', None, False
    policy = get_policy_class(config.type).from_pretrained(folder, config=config, strict=True)
    policy.eval().float().requires_grad_(False)
    on_cpu = {'device_processor': {'device': 'cpu'}}
    processors = make_pre_post_processors(
        config, str(folder), preprocessor_overrides=on_cpu, postprocessor_overrides=on_cpu
    )
    scalings: dict[str, Scaling | None] = {}
    for processor, types in zip(processors, (('STATE', 'ENV', 'VISUAL'), ('ACTION',))):
        for step in processor.steps:
            kind = type(step).__name__
            if kind not in PROCESSORS:
                fail(f'The processors have the step {kind}, which bundles do not have.')
            for key, feature in getattr(step, 'features', {}).items():
                if feature.type.value in types:
                    mode = step.norm_map.get(feature.type)
                    found = scaling(
                        mode.value if mode else 'IDENTITY', (step.stats or {}).get(key), step.eps
                    )
                    scalings[key] = found and Scaling(*map(torch.as_tensor, found))
    return Checkpoint(config, policy, scalings)


def add_meanings(
    models: Mapping[str, Any],
    cameras: Sequence[str],
    states: Sequence[str],
    joints: Sequence[str],
    history: int,
) -> None:
    """Add kinds, names of elements and histories to the networks of a bundle."""
    meanings: dict[str, dict[str, Any]] = {
        'state': {'kind': 'state/joint/position', 'element_names': [[*states]]},
        'actions': {'kind': 'target/joint/position', 'element_names': [[*joints]]},
        'environment_state': {},
        **{name: {'kind': 'state/camera/image'} for name in cameras},
    }
    for network in models.values():
        for port in (*network['inputs'], *network['outputs']):
            port |= meanings.get(port['name'], {})
            if history > 1 and port['name'] in meanings and port['name'] != 'actions':
                port['history_length'] = history


def node_parameters(
    path: Path, cameras: Sequence[str], history: int, rates: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters of the policy node, with a topic per camera."""
    settings = 'channel_order=rgb&resize=stretch&scale=1'
    settings += f'&history={history}' if history > 1 else ''
    inputs = {'inputs': [f'{name}=image:{name}?{settings}' for name in cameras]}
    found = {'model_path': str(path), **rates, **(inputs if cameras else {})}
    return {'policy': {'ros__parameters': found}}


def rates_of(config: Any, fps: float) -> dict[str, Any]:
    """Return the parameters of rates and chunks: what LeRobot's loop does with a policy."""
    is_act = config.type == 'act'
    horizon = config.chunk_size if is_act else config.horizon - config.n_obs_steps + 1
    executed = max(min(config.n_action_steps, round(horizon * (1 - RESERVE))), 1)
    found: dict[str, Any] = {'rate_hz': fps, 'action_rate_hz': fps}
    if getattr(config, 'temporal_ensemble_coeff', None) is not None:
        found['chunk_mode'] = 'temporal_ensembling'
    elif is_act:
        found['rate_hz'] = fps / executed
    else:
        found['chunk_actions'] = executed  # A history needs each observation.
    return found


def export(
    folder: Path, output: Path, joints: Sequence[str], states: Sequence[str], fps: float
) -> None:
    """Export a checkpoint to a folder: networks, policy.yaml, and parameters.yaml of the node."""
    checkpoint = load_checkpoint(folder)
    config = checkpoint.config
    for option, names, feature in (
        ('--joints', joints, config.action_feature),
        ('--states', states, config.robot_state_feature),
    ):
        if feature is not None and len(names) != feature.shape[0]:
            fail(
                f'{option} has {len(names)} names, but the checkpoint {feature.shape[0]} elements.'
            )
    output.mkdir(parents=True, exist_ok=True)
    networks = Exported(output)
    pipeline = (act if config.type == 'act' else diffusion)(checkpoint, networks)
    cameras = [*map(input_name, checkpoint.cameras)]
    add_meanings(networks.models, cameras, states, joints, checkpoint.history)
    path = output.resolve() / 'policy.yaml'
    for name, content in (
        ('policy', {'models': networks.models, 'pipeline': pipeline}),
        ('parameters', node_parameters(path, cameras, checkpoint.history, rates_of(config, fps))),
    ):
        text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)
        (output / f'{name}.yaml').write_text(text)
    print(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog='python -m trt_ros.exporting.lerobot', description='Export a policy of LeRobot.'
    )
    parser.add_argument('checkpoint', type=Path, help='folder with config.json')
    parser.add_argument('--joints', required=True, help='names of the actions, as in a,b,c')
    parser.add_argument('--states', default='', help='names of the states, if they differ')
    parser.add_argument('--fps', required=True, type=float, help='rate of the data set in Hz')
    parser.add_argument('--output', type=Path, help='folder of the bundle; CHECKPOINT/bundle')
    args = parser.parse_args(arguments)
    if not 0.001 <= args.fps <= 1000:
        fail(f'--fps is {args.fps}.', 'Give the rate of the data set, 0.001 to 1000 Hz.')
    joints = args.joints.split(',')
    states = args.states.split(',') if args.states else joints
    export(args.checkpoint, args.output or args.checkpoint / 'bundle', joints, states, args.fps)


if __name__ == '__main__':
    main()
