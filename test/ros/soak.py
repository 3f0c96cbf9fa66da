"""
Three nodes in one container live among images of all kinds, and must end as they began.

    python soak.py SECONDS SEED

Camera, detector and overlay run at 60 Hz while parameters, lifecycle transitions, reloads and
viewers are drawn at random. In between all becomes quiet; then, by the nodes' own diagnostics,
every frame was published or dropped for a known cause, and nothing is held that was not before.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
import os
from pathlib import Path
import random
import signal
import sys
import tempfile
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
import numpy as np
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from soak_nodes import BAD, STAMP
from vision_msgs.msg import Detection2DArray

CHECKOUT = Path(__file__).parents[2]
sys.path += [str(CHECKOUT / 'test'), str(CHECKOUT / 'tools')]
os.environ.setdefault('TRT_ROS_TEST_DEADLINE_SECONDS', '300')  # Others use this machine meanwhile.

from demo.domain import reserved_domain  # noqa: E402

from support.containers import Container  # noqa: E402
from support.ros_nodes import NodeProcess, RemoteNode  # noqa: E402
from support.ros_peer import Peer  # noqa: E402
from support.waiting import wait_until  # noqa: E402

CONTAINER = 'soak_container'
PLUGINS = {  # In the order of their loading.
    'camera': 'soak_nodes:Camera',
    'detector': 'soak_nodes:SoakDetector',
    'overlay': 'trt_ros.nodes.overlay:OverlayNode',
}
MODEL = CHECKOUT / 'trt_ros' / 'demo' / 'shapes.onnx'
HARMLESS = {'replaced by a newer frame', 'node stopped', 'no subscribers'}
CAUSES = {  # Why a frame may be dropped.
    'camera': set(),
    'detector': HARMLESS | set(BAD),
    'overlay': HARMLESS | set(BAD) | {'no partner', 'reset'},
}
STATES = ['unconfigured', 'inactive', 'active']
TRANSITIONS = {  # From where it is possible, to where it leads.
    'configure': ('unconfigured', 'inactive'),
    'cleanup': ('inactive', 'unconfigured'),
    'activate': ('inactive', 'active'),
    'deactivate': ('active', 'inactive'),
}
VIEWED = {'/image': Image, '/overlay/image': Image, '/detector/detections': Detection2DArray}
BOND_PERIODS = (0.0, 0.05 if find_spec('bond') else 0.0)
RATES_HZ = (0.0, 5.0, 30.0, 1000.0)
LEAST_EPOCHS = 9
KIB_A_LOAD = 105  # What stays of each node that goes, also of a bare one of rclpy 7.1.
#: How much more may be held at the end of a run than after its first third. Freed memory stays
#: resident, and DDS holds as many of the larger images as chance brought together.
ALLOWED_GROWTH = {
    'resident KiB': 64 * 1024,
    'C heap KiB': 20 * 1024,
    'Python blocks': 800,
    'threads': 1,
    'open files': 2,
    'memory areas': 10,
    'lent buffers': 0,
}


# --------------------------------------------------------------------------------------- judging


def unaccounted(values: Mapping[str, str]) -> int:
    """Return how many frames neither came out nor were dropped, by a node's diagnostics."""
    dropped = sum(int(count) for key, count in values.items() if key.startswith('dropped: '))
    return int(values['frames received']) - int(values['frames published']) - dropped


def unknown_causes(values: Mapping[str, str], known: set[str]) -> set[str]:
    """Return the causes of dropped frames that are none of the known ones."""
    return {key.removeprefix('dropped: ') for key in values if key.startswith('dropped: ')} - known


def growth(held: Sequence[float]) -> float:
    """
    Return how much more is held at the end than after the first third, in which caches fill.

    Noise only ever adds, so the least of the last third is held against the least of the second.
    """
    third = len(held) // 3
    return min(held[-third:]) - min(held[third:-third])


def leaks(samples: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a complaint about each quantity that has grown more than it may."""
    complaints = []
    for name, allowed in ALLOWED_GROWTH.items():
        held = [sample[name] for sample in samples if name in sample]
        if held and growth(held) > allowed:
            complaints.append(
                f'{name}: {growth(held):.0f} more at the end, {allowed} are allowed; '
                f'{", ".join(f"{each:.0f}" for each in held)}'
            )
    return complaints


# --------------------------------------------------------------------------------------- running


class Soak:
    """Owns what is drawn; what it does depends on the seed alone, not on time."""

    def __init__(self, peer: Peer, container: Container, seed: int) -> None:
        self.peer, self.container = peer, container
        self.draw = random.Random(seed)
        self.nodes = {name: RemoteNode(peer, name) for name in PLUGINS}
        self.states = dict.fromkeys(PLUGINS, 'unconfigured')
        self.ids: dict[str, int] = {}
        self.unloaded_at = dict.fromkeys(PLUGINS, 0)
        self.is_by_reference: dict[str, bool] = {}
        self.viewers: dict[str, Any] = {}
        self.samples: list[dict[str, float]] = []
        self.statuses: dict[str, Any] = {}  # The last of each node, with the time it was made.
        self.last_stamp = 0
        self.detected = 0
        self.troubles: list[str] = []
        self.subscribe(DiagnosticArray, '/diagnostics', self._on_diagnostics, 100)
        topic = '/detector/detections'
        self.subscribe(Detection2DArray, topic, self._on_detections, 100, raw=True)

    def subscribe(self, *arguments: Any, **options: Any) -> Any:
        create = self.peer.node.create_subscription
        return self.peer.run_on_executor(lambda: create(*arguments, **options))

    def unsubscribe(self, subscription: Any) -> None:
        destroy = self.peer.node.destroy_subscription
        self.peer.run_on_executor(lambda: destroy(subscription))

    # What is heard.

    def _on_diagnostics(self, array: DiagnosticArray) -> None:
        made = array.header.stamp.sec * 10**9 + array.header.stamp.nanosec
        status = array.status[0]
        name = status.name.partition(':')[0]
        values = {value.key: value.value for value in status.values}
        if made > self.unloaded_at[name]:
            self.statuses[name] = made, values
        if status.level == DiagnosticStatus.ERROR:
            self.troubles.append(f'{name}: {status.message}')

    def _on_detections(self, message: bytes) -> None:
        seconds, nanoseconds = np.frombuffer(message[STAMP], '<u4').tolist()
        stamp = seconds * 10**9 + nanoseconds
        if stamp <= self.last_stamp:
            self.troubles.append(f'detections of {stamp} came after those of {self.last_stamp}')
        self.last_stamp = stamp
        self.detected += 1

    # What is done.

    def load(self, name: str) -> None:
        parameters = {'autostart': False}
        if name == 'detector':
            # The bond's messages take 30 memory areas, for good: before these are counted.
            parameters |= {'model_path': str(MODEL), 'bond_period': BOND_PERIODS[-1]}
            # Both values in every run, however short.
            parameters['frames_in_flight'] = self.draw.randint(1, 2) if name in self.ids else 2
        by_reference = self.is_by_reference[name] = self.draw.random() < 0.75
        answer = self.container.load(
            PLUGINS[name],
            node_name=name,
            remap_rules=['detections:=detector/detections'] if name == 'overlay' else [],
            parameters=parameters.items(),
            extra=[('use_intra_process_comms', by_reference)],
        )
        assert answer.success, answer.error_message
        self.ids[name] = answer.unique_id
        self.states[name] = 'unconfigured'

    def reload(self, name: str) -> None:
        assert self.container.unload(self.ids[name]).success
        self.unloaded_at[name] = time.time_ns()
        self.statuses.pop(name, None)
        self.nodes[name] = RemoteNode(self.peer, name)
        self.load(name)

    def change(self, name: str, label: str) -> None:
        """Ask for a transition, which succeeds exactly where it is possible."""
        before, after = TRANSITIONS[label]
        is_possible = self.states[name] == before
        assert self.nodes[name].change(label) == is_possible, (
            f'{label} of {name} while {self.states[name]}'
        )
        if is_possible:
            self.states[name] = after

    def bring(self, name: str, state: str) -> None:
        """Bring a node to a state by the transitions in between."""
        while (at := STATES.index(self.states[name])) != (to := STATES.index(state)):
            up, down = ('configure', 'activate'), (None, 'cleanup', 'deactivate')
            self.change(name, up[at] if at < to else down[at])

    def twice(self, name: str) -> None:
        """Ask for a possible transition twice at once: one succeeds."""
        label = self.draw.choice(['activate', 'deactivate'])
        before, after = TRANSITIONS[label]
        self.nodes[name].change('hello')
        asked = [self.nodes[name].ask_transition(label) for _ in range(2)]
        done = [self.peer.wait(each, label).success for each in asked]
        is_possible = self.states[name] == before
        assert sum(done) == is_possible, f'{label} twice of {name} while {self.states[name]}'
        if is_possible:
            self.states[name] = after

    def set_parameter(self) -> None:
        draw = self.draw
        always = [
            ('detector', {'score_threshold': draw.random()}),
            (
                'detector',
                {'iou_threshold': draw.random(), 'max_detections': draw.randint(1, 1000)},
            ),
            ('detector', {'class_id_format': draw.choice(['name', 'index'])}),
            ('detector', {'lazy': draw.random() < 0.5}),
            ('detector', {'max_rate_hz': draw.choice(RATES_HZ)}),
            ('overlay', {'max_rate_hz': draw.choice(RATES_HZ)}),
            ('camera', {'bad_share': draw.choice([0.0, 0.1, 0.5])}),
        ]
        never = [
            ('detector', {'score_threshold': 7.0}),
            ('detector', {'max_detections': 0, 'lazy': True}),
            ('overlay', {'max_rate_hz': -1.0}),
        ]
        unconfigured = [
            ('detector', {'qos_reliability': draw.choice(['auto', 'reliable', 'best_effort'])}),
            ('detector', {'frames_in_flight': draw.randint(1, 2)}),
            ('detector', {'bond_period': draw.choice(BOND_PERIODS)}),
            ('overlay', {'queue_size': draw.randint(1, 50)}),
            ('overlay', {'qos_depth': draw.randint(1, 10)}),
        ]
        drawn = draw.choice(always + never + unconfigured)
        name, values = drawn
        is_now = drawn in unconfigured and self.states[name] == 'unconfigured'
        node = self.nodes[name]
        # A parameter may always be set to the value that it has.
        is_kept = all(node.get(key) == value for key, value in values.items())
        is_allowed = drawn in always or is_now or is_kept
        reason = node.set(**values)
        assert (not reason) == is_allowed, f'{name} {values} while {self.states[name]}: {reason!r}'

    def view(self) -> None:
        """Let a viewer of another process come, or go."""
        topic = self.draw.choice(sorted(VIEWED))
        if topic in self.viewers:
            self.unsubscribe(self.viewers.pop(topic))
        else:
            policies = [ReliabilityPolicy.BEST_EFFORT, ReliabilityPolicy.RELIABLE]
            qos = QoSProfile(depth=1, reliability=self.draw.choice(policies))
            viewed = VIEWED[topic], topic, lambda message: None, qos
            self.viewers[topic] = self.subscribe(*viewed, raw=True)

    def act(self, *, is_calm: bool) -> None:
        what = self.draw.choice(
            ['set', 'set', 'set', 'view'] + ([] if is_calm else ['change', 'change', 'twice'])
        )
        name = self.draw.choice(sorted(PLUGINS))
        if what == 'set':
            self.set_parameter()
        elif what == 'change':
            # Most of the time something that gets frames to flow, now and then a clean-up.
            self.change(name, self.draw.choices(sorted(TRANSITIONS), [4, 1, 2, 3])[0])
        elif what == 'twice':
            self.twice(name)
        else:
            self.view()

    def epoch(self) -> None:
        """Run all, act on them, let all be quiet, and account for what came."""
        is_calm = self.draw.random() < 0.4
        before = {name: self.counted(name, 'received') for name in PLUGINS}
        self.run_all()
        for _ in range(self.draw.randint(3, 10)):
            time.sleep(self.draw.uniform(0.0, 1.5))
            self.act(is_calm=is_calm)
        self.run_all()  # Whoever died of what was done is found.
        if is_calm:
            self.bring('camera', 'inactive')
            for name in ('detector', 'overlay'):
                if self.is_by_reference['camera'] and self.is_by_reference[name]:
                    self.expect_all(name, before)
        for name in self.draw.sample(sorted(PLUGINS), 3):
            self.bring(name, 'inactive')
        self.account()

    def run_all(self) -> None:
        """Bring all nodes to be active, and a frame through all of them."""
        for name in [*self.draw.sample(['detector', 'overlay'], 2), 'camera']:
            self.bring(name, 'active')
        self.hear('overlay')
        drawn = self.counted('overlay', 'published')
        # The overlay draws for subscribers.
        viewer = self.subscribe(Image, '/overlay/image', lambda message: None, 1)
        wait_until(
            lambda: self.counted('overlay', 'published') > drawn,
            'a frame to get through all nodes',
        )
        self.unsubscribe(viewer)

    def expect_all(self, name: str, before: Mapping[str, int]) -> None:
        """Wait until a node that was active all the time has received all that was published."""
        self.hear('camera')
        self.hear(name)

        def received(name: str) -> int:
            return self.counted(name, 'received') - before[name]

        wait_until(
            lambda: received('camera') == received(name), f'{name} to receive all: {self.statuses}'
        )

    def counted(self, name: str, what: str) -> int:
        """Return how many frames a node has received, or published."""
        return int(self.statuses[name][1][f'frames {what}']) if name in self.statuses else 0

    def hear(self, name: str) -> None:
        """Wait for diagnostics of a node that were made after now."""
        now = time.time_ns()
        wait_until(lambda: self.statuses.get(name, (0, {}))[0] > now, f'diagnostics of {name}')

    def account(self) -> None:
        """Hold what all nodes say, which they do once a second, now that they are inactive."""
        for name in PLUGINS:
            self.hear(name)
        for name in PLUGINS:
            values = self.statuses[name][1]
            assert values['state'] == 'inactive', (name, values)
            assert unaccounted(values) == 0, f'{name} lost {unaccounted(values)} frames: {values}'
            strange = unknown_causes(values, CAUSES[name])
            assert not strange, f'{name} dropped frames for {strange}: {values}'
        listed = {number: f'/{name}' for name, number in self.ids.items()}
        assert self.container.list() == listed
        for name, state in self.states.items():
            assert self.nodes[name].state == state
        assert self.container.process.poll() is None
        assert not self.troubles, self.troubles
        assert 'Traceback' not in self.container.node.log
        held = {
            key.removeprefix('held: '): float(value)
            for key, value in self.statuses['camera'][1].items()
            if key.startswith('held: ')
        }
        assert held['lent buffers'] == 0, held
        if 'C heap KiB' in held:
            held['C heap KiB'] -= KIB_A_LOAD * max(self.ids.values())
        self.samples.append(held)

    def report(self) -> str:
        def numbers(name: str) -> str:
            values = self.statuses[name][1]
            return f'{name} {values["frames received"]} in, {values["frames published"]} out'

        return f'{", ".join(map(numbers, PLUGINS))}; held: ' + ', '.join(
            f'{value:.0f} {name}' for name, value in self.samples[-1].items()
        )


@contextmanager
def running(folder: Path) -> Iterator[tuple[Peer, NodeProcess]]:
    """Run the container, and a peer, in a ROS domain of their own."""
    here = Path(__file__).parent
    with reserved_domain() as domain_id:
        peer = Peer(domain_id)
        try:
            container = NodeProcess(
                peer,
                CONTAINER,
                [
                    *(str(here / 'soak_nodes.py'), '--ros-args', '-r', f'__node:={CONTAINER}'),
                    *('-p', 'allow_modules:=true'),
                ],
                {
                    **os.environ,
                    'ROS_DOMAIN_ID': str(domain_id),
                    'ROS_LOG_DIR': str(folder),
                    'PYTHONPATH': os.pathsep.join(
                        filter(None, [str(CHECKOUT), str(here), os.environ.get('PYTHONPATH')])
                    ),
                },
                folder,
            )
            is_over = threading.Event()

            def give_up_when_it_dies() -> None:
                code = container.process.wait()
                if not is_over.is_set():
                    print(f'The container ended with code {code}.', flush=True)
                    os.kill(os.getpid(), signal.SIGTERM)

            threading.Thread(target=give_up_when_it_dies, daemon=True).start()
            try:
                yield peer, container
            finally:
                is_over.set()
                container.stop()
        finally:
            peer.close()


def main(seconds: float, seed: int) -> None:
    """
    Soak for so long at least.

    :raises AssertionError: when something is lost, dead, or grows.
    """
    print(f'seed {seed}, {seconds:.0f} s', flush=True)
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as (peer, container):
        try:
            soak = Soak(peer, Container(container, f'/{CONTAINER}'), seed)
            for name in PLUGINS:
                soak.load(name)
            end = time.monotonic() + seconds
            while time.monotonic() < end or len(soak.samples) < LEAST_EPOCHS:
                soak.epoch()
                print(f'{end - time.monotonic():5.0f} s to go: {soak.report()}', flush=True)
                if soak.draw.random() < 0.25:
                    soak.reload(soak.draw.choice(sorted(PLUGINS)))
            complaints = leaks(soak.samples)
            assert not complaints, '\n'.join(complaints)
        except BaseException:
            print(f'The end of the container:\n{container.log[-8000:]}\n{soak.statuses}')
            raise


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main(float(sys.argv[1]), int(sys.argv[2]))
