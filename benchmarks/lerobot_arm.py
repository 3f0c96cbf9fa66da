"""
ACT of LeRobot on a simulated arm: trained, and run by LeRobot and by the policy node.

    python benchmarks/lerobot_arm.py train /tmp/arm       # LeRobot and torch
    python benchmarks/lerobot_arm.py lerobot /tmp/arm     # LeRobot's own loop
    python -m trt_ros.exporting.lerobot /tmp/arm --joints shoulder,elbow --fps 10
    python benchmarks/lerobot_arm.py node /tmp/arm        # ROS 2: the policy node, over topics

A camera sees the arm and a red disc, which the arm is to touch with its tip.
"""

from __future__ import annotations

import argparse
import atexit
from collections.abc import Callable, Iterator
import itertools
from pathlib import Path
import signal
import subprocess
import sys
import time

import cv2
import numpy as np

LINKS, SIZE, STEPS, SPEED, RADIUS = (0.5, 0.4), 64, 30, 0.15, 0.125
SAMPLES, CHUNK, EXECUTED, FPS = 3000, 10, 5, 10.0
CAMERA, PAUSE = 'observation.images.camera', 0.1
JOINTS = ['shoulder', 'elbow']


def tip(q: np.ndarray) -> np.ndarray:
    """Return elbow and tip of the arm, (2, 2)."""
    angles = np.cumsum(q)
    return np.cumsum(np.array(LINKS)[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1), 0)


class Arm:
    """An arm of two joints and a disc, with positions drawn from a seed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.q = rng.uniform((0, 0.4), (np.pi, 2.6))
        self.goal = rng.uniform((0, 0.4), (np.pi, 2.6))
        self.target = tip(self.goal)[1]

    def image(self) -> np.ndarray:
        """Return the picture of the camera, RGB."""
        pixels = np.full((SIZE, SIZE, 3), 30, np.uint8)

        def place(xy: np.ndarray) -> tuple[int, int]:
            x, y = (xy * (1, -1) + 1) * SIZE * 8
            return round(x), round(y)

        cv2.circle(
            pixels, place(self.target), round(RADIUS * SIZE * 8), (230, 40, 40), -1, cv2.LINE_AA, 4
        )
        points = [place(each) for each in (np.zeros(2), *tip(self.q))]
        for a, b in itertools.pairwise(points):
            cv2.line(pixels, a, b, (220, 220, 220), 2, cv2.LINE_AA, 4)
        return pixels

    def expert(self) -> np.ndarray:
        """Return what a script would do: positions a step nearer to the goal."""
        return self.q + np.clip(self.goal - self.q, -SPEED, SPEED)

    def step(self, action: np.ndarray) -> None:
        """Move towards commanded positions."""
        self.q = self.q + np.clip(np.asarray(action, np.float64) - self.q, -SPEED, SPEED)

    @property
    def has_touched(self) -> bool:
        """Whether the tip is on the disc."""
        return bool(np.linalg.norm(tip(self.q)[1] - self.target) < RADIUS)


def train(folder: Path, minutes: float) -> None:
    """Train a small ACT on what the script does; its backbone keeps its random weights."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors
    import torch

    torch.manual_seed(0)
    images, states, chunks = [], [], []
    for seed in range(SAMPLES):
        arm = Arm(1000 + seed)
        images.append(arm.image())
        states.append(arm.q)
        chunk = []
        for _ in range(CHUNK):
            chunk.append(arm.expert())
            arm.step(chunk[-1])
        chunks.append(chunk)
    pixels = torch.from_numpy(np.array(images)).permute(0, 3, 1, 2)
    q, a = (torch.tensor(np.array(each), dtype=torch.float32) for each in (states, chunks))
    some = pixels[::9] / 255.0
    mean, std = (each[:, None, None] for each in (some.mean((0, 2, 3)), some.std((0, 2, 3))))
    stats = {
        CAMERA: {'mean': mean, 'std': std},
        'observation.state': {'mean': q.mean(0), 'std': q.std(0)},
        'action': {'mean': a.mean((0, 1)), 'std': a.std((0, 1))},
    }
    config = ACTConfig(
        input_features={
            CAMERA: PolicyFeature(FeatureType.VISUAL, (3, SIZE, SIZE)),
            'observation.state': PolicyFeature(FeatureType.STATE, (2,)),
        },
        output_features={'action': PolicyFeature(FeatureType.ACTION, (2,))},
        pretrained_backbone_weights=None,
        chunk_size=CHUNK,
        n_action_steps=EXECUTED,
        dim_model=96,
        n_heads=4,
        dim_feedforward=192,
        n_encoder_layers=2,
        n_vae_encoder_layers=1,
        latent_dim=8,
        dropout=0.0,
        device='cpu',
        push_to_hub=False,
    )
    policy = ACTPolicy(config)
    before, after = make_pre_post_processors(config, dataset_stats=stats)
    backbone = policy.model.backbone
    settle(backbone, (some[:100] - mean) / std)
    features = []
    with torch.no_grad():
        for i, part in enumerate(pixels.split(50)):
            features.append(backbone((part / 255.0 - mean) / std)['feature_map'])
            if i % 5 == 0:
                print(f'{i * 50} of {SAMPLES} images', flush=True)
    maps = torch.cat(features)

    class Known(torch.nn.Module):
        """A backbone whose results are its inputs."""

        def forward(self, x):
            return {'feature_map': x}

    policy.model.backbone = Known()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    began, count = time.process_time(), 0
    rng = np.random.default_rng(0)
    policy.train()
    while (spent := (time.process_time() - began) / 60) < minutes:
        optimizer.param_groups[0]['lr'] = 1e-3 * min(1, count / 100) * (1 - spent / minutes)
        at = rng.integers(SAMPLES, size=64)
        batch = before({'observation.state': q[at], 'action': a[at]})
        batch[CAMERA] = maps[at]
        batch['action_is_pad'] = torch.zeros(len(at), CHUNK, dtype=torch.bool)
        loss, parts = policy(batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 10)
        optimizer.step()
        count += 1
        if count % 100 == 0:
            print(f'{spent:.1f} min, step {count}: {parts}', flush=True)
    policy.model.backbone = backbone
    for each in (policy, before, after):
        each.save_pretrained(folder)
    print(f'{count} steps')


def settle(backbone, images) -> None:
    """Give the frozen normalizations of an untrained backbone the statistics of images."""
    import torch

    def hook(layer, inputs):
        layer.running_mean.copy_(inputs[0].mean((0, 2, 3)))
        layer.running_var.copy_(inputs[0].var((0, 2, 3)))

    hooks = [
        layer.register_forward_pre_hook(hook)
        for layer in backbone.modules()
        if hasattr(layer, 'running_mean')
    ]
    with torch.no_grad():
        backbone(images)
    for each in hooks:
        each.remove()


def by_lerobot(folder: Path) -> Callable[[Arm], Iterator[np.ndarray]]:
    """Return LeRobot's own loop."""
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors
    import torch

    policy = ACTPolicy.from_pretrained(folder)
    before, after = make_pre_post_processors(policy.config, str(folder))

    def run(arm: Arm) -> Iterator[np.ndarray]:
        policy.reset()
        while True:
            image = torch.from_numpy(arm.image()).permute(2, 0, 1) / 255.0
            state = torch.tensor(arm.q, dtype=torch.float32)
            batch = before({CAMERA: image, 'observation.state': state})
            yield after(policy.select_action(batch))[0].numpy()

    return run


def by_node(folder: Path) -> Callable[[Arm], Iterator[np.ndarray]]:
    """Return the loop of the policy node in simulated time: topics of sensors, clock, commands."""
    from lifecycle_msgs.msg import Transition
    from lifecycle_msgs.srv import ChangeState
    import rclpy
    from rosgraph_msgs.msg import Clock
    from sensor_msgs.msg import Image, JointState
    from std_msgs.msg import Float64MultiArray

    given = {
        'rate_hz': 0.0,  # A run per image: the simulation waits for it.
        'chunk_actions': EXECUTED,
        'output': 'multi_array',
        'blend_seconds': 0.0,
        'use_sim_time': True,
        'qos_reliability': 'reliable',
        'autostart': True,
    }
    command = [sys.executable, '-m', 'trt_ros.executables', 'policy', '--ros-args']
    command += ['--params-file', str(folder / 'bundle' / 'parameters.yaml')]
    command += [part for name, value in given.items() for part in ('-p', f'{name}:={value}')]
    process = subprocess.Popen(command)
    atexit.register(process.send_signal, signal.SIGINT)
    rclpy.init()
    node = rclpy.create_node('simulation')
    clocks, cameras, states = (
        node.create_publisher(kind, topic, 10)
        for kind, topic in ((Clock, 'clock'), (Image, 'camera'), (JointState, 'joint_states'))
    )
    commands: list[Float64MultiArray] = []
    node.create_subscription(Float64MultiArray, '/policy/commands', commands.append, 10)
    client = node.create_client(ChangeState, '/policy/change_state')
    client.wait_for_service()
    now = 100.0

    def wait(seconds: float, is_done: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_done():
            rclpy.spin_once(node, timeout_sec=0.01)

    def change(transition: int) -> None:
        request = ChangeState.Request(transition=Transition(id=transition))
        rclpy.spin_until_future_complete(node, client.call_async(request))

    def run(arm: Arm) -> Iterator[np.ndarray]:
        nonlocal now
        change(Transition.TRANSITION_DEACTIVATE)
        change(Transition.TRANSITION_ACTIVATE)
        wait(60, lambda: bool(cameras.get_subscription_count()))
        while True:
            now += 1 / FPS
            clock = Clock()
            clock.clock.sec, clock.clock.nanosec = divmod(round(1e9 * now), 10**9)
            image = Image(height=SIZE, width=SIZE, step=3 * SIZE, encoding='rgb8')
            image.data = arm.image().tobytes()
            state = JointState(name=JOINTS, position=arm.q.tolist())
            for publisher, message in ((cameras, image), (states, state)):
                message.header.stamp = clock.clock
                publisher.publish(message)
            wait(PAUSE)  # For the run; one that takes longer is used a step later.
            commands.clear()
            clocks.publish(clock)
            wait(1.0, lambda: bool(commands))
            if commands:  # Else there are no actions yet.
                yield np.array(commands[-1].data)

    return run


def evaluate(run: Callable[[Arm], Iterator[np.ndarray]], count: int) -> None:
    """Print how often the arm touches the disc, and how near its tip comes."""
    touched, distances = [], []
    for seed in range(count):
        arm = Arm(seed)
        for _, action in zip(range(STEPS), run(arm)):
            arm.step(action)
        touched.append(arm.has_touched)
        distances.append(np.linalg.norm(tip(arm.q)[1] - arm.target))
    print(f'{sum(touched)} of {count} episodes succeeded; distances of the tip at the end:')
    print(np.round(distances, 3).tolist())


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('verb', choices=('train', 'lerobot', 'node'))
    parser.add_argument('folder', type=Path)
    parser.add_argument('--minutes', type=float, default=3, help='of training, on one processor')
    parser.add_argument('--episodes', type=int, default=100)
    args = parser.parse_args()
    if args.verb == 'train':
        train(args.folder, args.minutes)
    else:
        loop = by_lerobot if args.verb == 'lerobot' else by_node
        evaluate(loop(args.folder), args.episodes)


if __name__ == '__main__':
    main()
