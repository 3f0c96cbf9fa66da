"""The robot demo: a quadruped sees an object and walks to it, over ROS topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
import os
from pathlib import Path
import time

import cv2
import numpy as np
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image

from demo.processes import NodeProcess, running
from demo.robot.film import FRAMES_PER_SECOND, Film, Scene, write_film
from demo.robot.pictures import MODEL
from demo.robot.seek_node import SeekNode
from demo.robot.sim_node import SimNode
from demo.robot.world import CLASSES, CONTROL_SECONDS, RADIUS, WALK
from demo.show import START_SECONDS, prepare
from trt_ros.errors import TrtRosError
from trt_ros.ros.qos import RESULTS

MAX_SECONDS = 60.0  # Of simulated time.
LAST_SECONDS = 1.0  # After the arrival.
FRAMES_EVERY = round(1 / FRAMES_PER_SECOND / CONTROL_SECONDS)  # Control steps.


def show_robot(seed: int, target: str, output: Path) -> str:
    """
    Run the demo of the robot and print its progress.

    :param output: folder of the film, the picture, the table and the logs.
    :returns: the table.
    :raises TrtRosError: when a node fails, or the robot falls or does not arrive.
    """
    prepare(output)
    print(
        'Starting detector, detections_3d, overlay and policy in processes of their own; '
        f'ROS_DOMAIN_ID={os.environ["ROS_DOMAIN_ID"]}, on this machine only.',
        flush=True,
    )
    with running() as nodes, world(seed, target) as (run, spin_once):
        nodes += start_nodes(output)
        walk(run, spin_once, nodes)
    table = run.table()
    (output / 'robot.txt').write_text(table + '\n')
    print(f'Rendering {len(run.scenes)} pictures of the film.', flush=True)
    film = Film(run.sim.layout, target)
    pictures = [film.render(scene) for scene in run.scenes]
    cv2.imwrite(str(output / 'robot.png'), pictures[len(pictures) // 2])
    film_path = write_film(output, pictures)
    if not run.seeker.has_arrived or run.has_fallen:
        raise TrtRosError('The robot did not arrive.', cause=table, remedy=f'Read {output}/*.log.')
    return f'{table}\nfilm: {film_path}'


def start_nodes(output: Path) -> Iterator[NodeProcess]:
    """Start the nodes of trt_ros."""
    common = {'use_sim_time': True, 'autostart': True}
    yield NodeProcess.start(
        'detector',
        output,
        common | {'model_path': str(MODEL), 'score_threshold': 0.5, 'qos_reliability': 'reliable'},
    )
    yield NodeProcess.start(
        'detections_3d',
        output,
        common,
        remap={'detections': 'detector/detections', 'depth_info': 'camera_info'},
    )
    yield NodeProcess.start('overlay', output, common, remap={'detections': 'detector/detections'})
    yield NodeProcess.start(
        'policy',
        output,
        common
        # The simulation waits for commands: none is late.
        | {'model_path': str(WALK), 'output': 'multi_array', 'deadline': 5.0},
    )


@contextmanager
def world(seed: int, target: str) -> Iterator[tuple[RobotRun, Callable[[float], None]]]:
    """Yield the nodes of the demo, and a function that handles one of their messages."""
    context = Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    parameters = [Parameter('seed', value=seed), Parameter('target', value=target)]
    sim = SimNode(context=context, parameter_overrides=parameters)
    seek = SeekNode(context=context, parameter_overrides=parameters[1:])
    executor = SingleThreadedExecutor(context=context)
    for node in (sim, seek):
        executor.add_node(node)
    try:
        yield RobotRun(sim, seek), executor.spin_once
    finally:
        executor.shutdown()
        for node in (sim, seek):
            node.destroy_node()
        context.try_shutdown()


def walk(run: RobotRun, spin_once: Callable[[float], None], nodes: Sequence[NodeProcess]) -> None:
    """
    Simulate until the robot has arrived, has fallen, or MAX_SECONDS are over.

    :raises TrtRosError: when a node has exited, or none commands within START_SECONDS.
    """
    deadline, printed = time.monotonic() + START_SECONDS, 0.0
    while not run.is_over:
        run.step(spin_once)
        if run.sim.has_started and run.seek.arrival_times:
            if run.seconds >= printed:
                printed = run.seconds + 1.0
                print(run.caption, flush=True)
        elif time.monotonic() > deadline:
            missing = 'detections' if run.sim.has_started else 'joint targets'
            raise TrtRosError(
                f'No {missing} received within {START_SECONDS:.0f} s.',
                remedy=f"Read the nodes' logs: {nodes[0].log.parent}/*.log.",
            )
        for node in nodes:
            node.check()


class RobotRun:
    """One walk: the nodes of the demo, and what happens."""

    def __init__(self, sim: SimNode, seek: SeekNode) -> None:
        self.sim, self.seek, self.seeker = sim, seek, seek.seeker
        self.scenes: list[Scene] = []
        self.seconds, self.meters = 0.0, 0.0  # Since the robot has begun to walk.
        self.has_fallen = False
        self.touched: set[str] = set()
        self._arrived_seconds: float | None = None
        self._began = time.monotonic()
        self._seen = np.zeros((*sim.view.depth.shape, 3), np.uint8)
        sim.create_subscription(Image, 'overlay/image', self._see, RESULTS)

    @property
    def is_over(self) -> bool:
        """Whether the robot has fallen, has arrived, or was too slow."""
        arrived = self._arrived_seconds
        return (
            self.has_fallen
            or self.seconds >= MAX_SECONDS
            or (arrived is not None and self.seconds >= arrived + LAST_SECONDS)
        )

    @property
    def distance(self) -> float:
        """Distance from the trunk's center to the surface of the target in meters."""
        target = self.sim.layout.find(self.seeker.target)
        position = self.sim.simulation.data.qpos[:2]
        return float(np.linalg.norm(position - target.xy)) - RADIUS[target.name]

    @property
    def caption(self) -> str:
        """Time, task and progress."""
        if self.seeker.target not in self.seeker.known:
            return f'{self.seconds:5.1f} s  searching the {self.seeker.target}'
        state = 'arrived at' if self.seeker.has_arrived else 'walking to'
        return f'{self.seconds:5.1f} s  {state} the {self.seeker.target}, {self.distance:.2f} m'

    def step(self, spin_once: Callable[[float], None]) -> None:
        """Simulate one control step and record it."""
        before = self.sim.simulation.data.qpos[:2].copy()
        self.sim.tick(spin_once)
        if not (self.sim.has_started and self.seek.arrival_times):
            self._began = time.monotonic()
            return
        if round(self.seconds / CONTROL_SECONDS) % FRAMES_EVERY == 0:
            qpos = self.sim.simulation.data.qpos.copy()
            self.scenes.append(Scene(qpos, self._seen, self.caption))
        self.seconds += CONTROL_SECONDS
        self.meters += float(np.linalg.norm(self.sim.simulation.data.qpos[:2] - before))
        self.has_fallen = self.sim.simulation.has_fallen
        self.touched |= self.sim.simulation.touched() & set(CLASSES)
        if self.seeker.has_arrived and self._arrived_seconds is None:
            self._arrived_seconds = self.seconds

    def _see(self, message: Image) -> None:
        pixels = np.frombuffer(message.data, np.uint8)
        self._seen = pixels.reshape(message.height, message.width, 3)

    def table(self) -> str:
        """Return the results, a line each."""
        arrived = self._arrived_seconds
        real_seconds = time.monotonic() - self._began
        detection = [
            at - self.sim.image_times[stamp]
            for stamp, at in self.seek.arrival_times.items()
            if stamp in self.sim.image_times
        ]
        rows = {
            'target': self.seeker.target,
            'arrived after': 'never' if arrived is None else f'{arrived:.1f} s',
            'walked': f'{self.meters:.2f} m',
            'distance to the target': f'{self.distance:.2f} m',
            'falls': str(int(self.has_fallen)),
            'touched': ', '.join(sorted(self.touched)) or 'nothing',
            'images located': str(len(detection)),
            'image to objects in space': _percentiles(detection),
            'sensors to joint targets': _percentiles(self.sim.command_seconds),
            'control steps without command': str(self.sim.late_commands),
            'simulated per real second': f'{self.seconds / max(real_seconds, 1e-9):.2f} s',
        }
        return '\n'.join(f'{name:30} {value}' for name, value in rows.items())


def _percentiles(seconds: Sequence[float]) -> str:
    if not seconds:
        return 'none'
    half, most = 1000 * np.percentile(seconds, (50, 99))
    return f'{half:.1f} ms (p99 {most:.1f} ms)'
