"""The networks of ACT and diffusion policies of LeRobot, written as ONNX."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
import hashlib
from pathlib import Path
from typing import Any, NamedTuple
import warnings

import numpy as np

try:
    import torch
except ImportError:  # The numbers need none.
    torch = None

STATE, ENVIRONMENT, ACTION = 'observation.state', 'observation.environment_state', 'action'
#: Statistics of the normalizations with a lower and an upper value.
RANGES = {'MIN_MAX': ('min', 'max'), 'QUANTILES': ('q01', 'q99'), 'QUANTILE10': ('q10', 'q90')}
OBSERVATIONS = (STATE, ENVIRONMENT)


class Scaling(NamedTuple):
    """A normalization: (x - low) / size - shift; the inverse has no small number in `size`."""

    low: np.ndarray
    divisor: np.ndarray
    size: np.ndarray
    shift: float

    def normalized(self, x: Any) -> Any:
        """Return normalized values; of NumPy or torch."""
        return (x - self.low) / self.divisor - self.shift

    def restored(self, x: Any) -> Any:
        """Return values from normalized ones."""
        return (x + self.shift) * self.size + self.low


def scaling(mode: str, stats: Mapping[str, Any] | None, eps: float) -> Scaling | None:
    """Return a normalization of LeRobot: IDENTITY, MEAN_STD or RANGES; None for none."""
    if mode == 'IDENTITY' or not stats:
        return None
    found = {name: np.asarray(value, np.float32) for name, value in stats.items()}
    needed = RANGES.get(mode, ('mean', 'std'))
    missing = [name for name in needed if name not in found]
    if missing:
        raise SystemExit(f'The statistics for {mode} lack {", ".join(missing)}.')
    low, high = (found[name] for name in needed)
    if mode == 'MEAN_STD':
        return Scaling(low, high + np.float32(eps), high, 0)
    size = np.where(high == low, np.float32(eps), high - low) / 2
    return Scaling(low, size, size, 1)


def coefficients(
    alphas: np.ndarray, timesteps: Sequence[int], stride: int, scheduler: str, prediction: str
) -> np.ndarray:
    """
    Return the numbers of each denoising step, (steps, 6) float32.

    A step is x0 = clip(a * x + b * y) and x = c * x0 + d * x + e * y + f * noise, for the output y
    of the network.

    :param alphas: cumulative products of the schedule, one per timestep of the training.
    :param stride: timesteps between two steps.
    :param scheduler: DDPM or DDIM.
    :param prediction: meaning of y: epsilon or sample.
    """
    rows = []
    for t in timesteps:
        now = float(alphas[t])
        before = float(alphas[t - stride]) if t >= stride else 1.0
        root, noise = now**0.5, (1 - now) ** 0.5
        of_x, of_y = (1 / root, -noise / root) if prediction == 'epsilon' else (0.0, 1.0)
        if scheduler == 'DDPM':
            ratio = now / before
            of_start = before**0.5 * (1 - ratio) / (1 - now)
            again = ratio**0.5 * (1 - before) / (1 - now), 0.0
            variance = max((1 - before) / (1 - now) * (1 - ratio), 1e-20)
            rows.append((of_x, of_y, of_start, *again, variance**0.5 if t > 0 else 0.0))
            continue
        rest = (1 - before) ** 0.5
        again = (0.0, rest) if prediction == 'epsilon' else (rest / noise, -rest * root / noise)
        rows.append((of_x, of_y, before**0.5, *again, 0.0))
    return np.array(rows, np.float32)


def input_name(feature: str) -> str:
    """
    Return the name of the network input of a feature.

    >>> input_name('observation.images.front')
    'front'
    """
    name = feature.removeprefix('observation.').removeprefix('images.')
    return ''.join(letter if letter.isalnum() else '_' for letter in name)


@dataclass
class Checkpoint:
    """A policy of a checkpoint; `scalings` by feature are None where values stay."""

    config: Any
    policy: Any
    scalings: Mapping[str, Scaling | None]

    @property
    def cameras(self) -> list[str]:
        """The features that are images."""
        return [*self.config.image_features]

    @property
    def history(self) -> int:
        """Number of observations per run."""
        return int(self.config.n_obs_steps)

    def examples(self) -> dict[str, Any]:
        """Return examples of the inputs."""
        steps = (self.history,) if self.history > 1 else ()
        features = [*self.cameras, *filter(self.config.input_features.get, OBSERVATIONS)]
        return {
            input_name(each): torch.rand(1, *steps, *self.config.input_features[each].shape)
            for each in features
        }

    def batch(self, names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
        """Return normalized observations by feature, from inputs; images are from 0 to 255."""
        features = {input_name(each): each for each in (*self.cameras, *OBSERVATIONS)}
        found = {}
        for feature, value in zip(map(features.__getitem__, names), values):
            value = value / 255 if feature in self.cameras else value
            scaling = self.scalings.get(feature)
            found[feature] = scaling.normalized(value) if scaling else value
        return found

    def restored(self, actions: Any) -> Any:
        """Return actions from normalized ones."""
        scaling = self.scalings[ACTION]
        return scaling.restored(actions) if scaling else actions


def module_of(run: Callable[..., Any], parts: Sequence[Any] = ()) -> Any:
    """Return a function of modules as a module."""
    module = torch.nn.Module()
    module.parts = torch.nn.ModuleList(parts)
    module.forward = run
    return module


@dataclass
class Exported:
    """Networks that were written to a folder; `models` describe them in the bundle's file."""

    folder: Path
    models: dict[str, Any] = field(default_factory=dict)

    def add(
        self,
        name: str,
        run: Callable[..., tuple[Any, ...]],
        modules: Sequence[Any],
        inputs: Mapping[str, Any],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Write a function of these modules as ONNX; return its outputs for example inputs."""
        path = self.folder / f'{name}.onnx'
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # The exporter's, about itself.
            torch.onnx.export(
                module_of(run, modules).eval(),
                tuple(inputs.values()),
                path,
                dynamo=False,
                opset_version=17,
                input_names=[*inputs],
                output_names=[*outputs],
            )
        made = dict(zip(outputs, run(*inputs.values())))
        self.models[name] = {
            mode: [
                {'name': port, 'dtype': str(x.dtype)[len('torch.') :], 'shape': [*x.shape]}
                for port, x in tensors.items()
            ]
            for mode, tensors in (('inputs', inputs), ('outputs', made))
        }
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self.models[name]['parameters'] = {'model_path': path.name, 'sha256sum': digest}
        return made


def act(checkpoint: Checkpoint, networks: Exported) -> dict[str, Any]:
    """Export an ACT policy, one network whose latent is zero; return the pipeline."""
    policy, examples = checkpoint.policy, checkpoint.examples()

    def run(*values: Any) -> tuple[Any]:
        batch = checkpoint.batch([*examples], values)
        if checkpoint.cameras:
            batch['observation.images'] = [batch[each] for each in checkpoint.cameras]
        return (checkpoint.restored(policy.model(batch)[0]),)

    networks.add('act', run, [policy], examples, ['actions'])
    return {'inputs': {'act': [*examples]}, 'outputs': {'act': ['actions']}}


def diffusion(checkpoint: Checkpoint, networks: Exported) -> dict[str, Any]:
    """Export a diffusion policy as encoder, denoiser in a loop and actions of its result."""
    config, model, count = checkpoint.config, checkpoint.policy.diffusion, checkpoint.history
    model.noise_scheduler.set_timesteps(model.num_inference_steps)
    timesteps = model.noise_scheduler.timesteps
    numbers = coefficients(
        model.noise_scheduler.alphas_cumprod.numpy(),
        timesteps.tolist(),
        config.num_train_timesteps // len(timesteps),
        config.noise_scheduler_type,
        config.prediction_type,
    )
    embed = model.unet.diffusion_step_encoder
    model.unet.diffusion_step_encoder = torch.nn.Identity()
    steps = embed(timesteps)[:, None]
    np.save(networks.folder / 'steps.npy', steps.numpy())
    np.save(networks.folder / 'numbers.npy', numbers)
    is_random = bool(numbers[:, 5].any())
    size = (config.horizon, config.action_feature.shape[0])
    noise = torch.randn(len(timesteps) if is_random else 1, *size)
    examples = checkpoint.examples()
    fit_images(model, config)
    limit = config.clip_sample_range

    def encode(*values: Any) -> tuple[Any, ...]:
        *observed, noise = values
        if count == 1:
            observed = [each[:, None] for each in observed]
        batch = checkpoint.batch([*examples], observed)
        if checkpoint.cameras:
            images = [batch[each] for each in checkpoint.cameras]
            batch['observation.images'] = torch.stack(images, dim=2)
        condition = model._prepare_global_conditioning(batch)
        return condition, noise[:1], *([noise[1:]] if is_random else [])

    def denoise(x: Any, condition: Any, step: Any, numbers: Any, *noise: Any) -> tuple[Any]:
        a, b, c, d, e, f = numbers.unbind()
        y = model.unet(x, step, global_cond=condition)
        x0 = a * x + b * y
        x0 = x0.clamp(-limit, limit) if config.clip_sample else x0
        x = c * x0 + d * x + e * y
        return (x + f * noise[0][noise[1]] if noise else x,)

    made = networks.add(
        'encoder',
        encode,
        [model],
        {**examples, 'noise': noise},
        ['condition', 'start', *(['noises'] if is_random else [])],
    )
    networks.models['encoder']['inputs'][-1]['initial_noise'] = True
    inputs = {
        'x': made['start'],
        'condition': made['condition'],
        'step': steps[0],
        'numbers': torch.from_numpy(numbers[0]),
    }
    values: dict[str, Any] = {'denoiser/step': 'steps.npy', 'denoiser/numbers': 'numbers.npy'}
    flow = {'encoder/condition': ['denoiser/condition'], 'encoder/start': ['denoiser/x']}
    if is_random:
        inputs |= {'noises': made['noises'], 'index': torch.zeros(1, dtype=torch.int64)}
        flow['encoder/noises'] = ['denoiser/noises']
        values['denoiser/index'] = [*range(len(timesteps) - 1), 0]  # The last step has no noise.
    networks.add('denoiser', denoise, [model.unet], inputs, ['x_next'])
    networks.add(
        'head',
        lambda x: (checkpoint.restored(x[:, count - 1 :]),),
        [],
        {'x': made['start']},
        ['actions'],
    )
    loop = {
        'models': ['denoiser'],
        'steps': len(timesteps),
        'carry': {'denoiser/x_next': 'denoiser/x'},
        'values': values,
    }
    return {
        'inputs': {'encoder': [*examples, 'noise']},
        'outputs': {'head': ['actions']},
        'data_flow': {**flow, 'denoiser/x_next': ['head/x']},
        'loops': [loop],
    }


def fit_images(model: Any, config: Any) -> None:
    """Replace resizing and cropping by what ONNX has: antialiasing is two matrix products."""
    if not config.image_features:
        return
    size = old = next(iter(config.image_features.values())).shape[1:]
    matrices: list[Any] = []
    if config.resize_shape:
        size = tuple(config.resize_shape)
        matrices = [
            torch.nn.functional.interpolate(
                torch.eye(a)[None, None], (b, a), mode='bilinear', antialias=True
            )[0, 0]
            for a, b in zip(old, size)
        ]
    cut = [
        slice(round((a - b) / 2), round((a - b) / 2) + b)
        for a, b in zip(size, config.crop_shape or size)
    ]

    def fit(x: Any) -> Any:
        x = matrices[0] @ x @ matrices[1].T if matrices else x
        return x[..., cut[0], cut[1]]

    encoders = model.rgb_encoder
    for each in encoders if isinstance(encoders, torch.nn.ModuleList) else [encoders]:
        each.resize, each.do_crop = module_of(fit), False
