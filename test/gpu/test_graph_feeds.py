"""Tensors, several images and states through the captured graph, compared with ONNX Runtime."""

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto
import pytest

from support.save_network import save_network, save_pool
from trt_ros.errors import BadFrameError, CapacityError
from trt_ros.families.registry import TENSORS
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame

pytestmark = pytest.mark.gpu


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """Write a network, see `save_network`, with weights."""

    def write(*graph: Any, **weights: np.ndarray) -> Path:
        return Path(save_network(tmp_path / 'network.onnx', *graph, constants=weights))

    return write


@pytest.fixture
def both(gpu, nothing_left):
    """Open a network on the GPU and with ONNX Runtime."""
    opened: list[Pipeline] = []

    def both(path: Path, frames_in_flight: int = 1, **options: Any) -> tuple[Pipeline, Pipeline]:
        ours: Pipeline = Pipeline.open(
            str(path),
            families=TENSORS,
            backend='tensorrt_rtx',
            device=gpu.index,
            frames_in_flight=frames_in_flight,
            **options,
        )
        opened.append(ours)
        assert ours.diagnostics()['CUDA graph fallbacks'] == ''
        runner = OnnxRuntimeRunner.open(path, threads=1)
        reference = Pipeline.open(str(path), families=TENSORS, runner=runner, **options)
        opened.append(reference)
        return ours, reference

    yield both
    for pipeline in opened:
        pipeline.close()


def weights(*shape: int, seed: int = 0, scale: float = 0.3) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)


def assert_close(ours, reference) -> None:
    """Compare outputs; TensorRT-RTX computes float32 convolutions and products in TF32."""
    assert list(ours) == list(reference)
    for name, want in reference.items():
        largest = float(np.abs(want).max())
        np.testing.assert_allclose(ours[name], want, atol=6e-3 * largest + 1e-5, err_msg=name)


def assert_equal_runs(
    ours: Pipeline,
    reference: Pipeline,
    values: Iterable[Any],
    *,
    in_flight: int = 1,
    reset: int | None = None,
    check: Callable[[Any, Any], None] = assert_close,
) -> list[Any]:
    """Compare runs, so many of them in flight, with a reset before one; return their results."""
    pending, found = deque(), []

    def collect(most: int) -> None:
        while len(pending) > most:
            run, value = pending.popleft()
            found.append(run.result())
            check(found[-1], reference(value))

    for number, value in enumerate(values):
        collect(in_flight - 1)
        if number == reset:
            collect(0)
            ours.reset_state()
            reference.reset_state()
        pending.append((ours.submit(value), value))
    collect(0)
    return found


def converted_at_times(number: int) -> type:
    """Return the type of a run: a tensor that is converted now and then has another graph."""
    return np.float64 if number % 7 == 3 else np.float32


def picture(seed: int, width: int = 160, height: int = 120, encoding: str = 'bgr8') -> Frame:
    rng = np.random.default_rng(seed)
    if encoding == '32FC1':
        return Frame.from_pixels(rng.uniform(0, 9, (height, width)).astype(np.float32), encoding)
    if encoding in ('mono16', '16UC1'):
        return Frame.from_pixels(rng.integers(0, 9000, (height, width)).astype('u2'), encoding)
    return Frame.from_pixels(rng.integers(0, 256, (height, width, 3), dtype=np.uint8), encoding)


@pytest.fixture
def gru(write) -> Path:
    """Return a GRU cell of 8 inputs and 16 states, written out."""
    return write(
        'xh = Concat <axis = 1> (x, h) z_ = MatMul(xh, wz) z = Sigmoid(z_) '
        'r_ = MatMul(xh, wr) r = Sigmoid(r_) rh = Mul(r, h) xrh = Concat <axis = 1> (x, rh) '
        'n_ = MatMul(xrh, wn) n = Tanh(n_) d = Sub(h, n) zd = Mul(z, d) hn = Add(n, zd) '
        'y = MatMul(hn, wy)',
        {'x': (1, 8), 'h': (1, 16)},
        {'y': (1, 4), 'hn': (1, 16)},
        wz=weights(24, 16, seed=1),
        wr=weights(24, 16, seed=2),
        wn=weights(24, 16, seed=3),
        wy=weights(16, 4, seed=4),
    )


def test_auto_takes_the_faster_of_gpu_and_cpu(gru, gpu, nothing_left):
    inputs = ('x=tensor:x', 'h=state:hn')
    runner = OnnxRuntimeRunner.open(gru, threads=1)
    with (
        Pipeline.open(gru, families=TENSORS, inputs=inputs) as ours,
        Pipeline.open(gru, families=TENSORS, inputs=inputs, runner=runner) as reference,
    ):
        (line,) = [each for each in ours.log_lines if 'us on the GPU' in each]
        assert ('CPU, which is used' in line) == (ours.backend == 'onnxruntime')
        for seed in range(5):
            value = {'x': weights(1, 8, seed=seed)}
            assert_close(ours(value), reference(value))


@pytest.mark.parametrize('frames_in_flight', [1, 2])
@pytest.mark.parametrize(
    ('binding', 'dtype'),
    [
        *(
            (binding, dtype)
            for binding in ('counter:2040', 'noise:normal?seed=7', 'noise:uniform')
            for dtype in (TensorProto.FLOAT, TensorProto.FLOAT16)
        ),
        ('counter:-2', TensorProto.INT32),
        ('counter:100', TensorProto.INT64),
    ],
)
@pytest.mark.parametrize('size', [7, 5000])
def test_counters_and_noise_equal_those_of_the_cpu_bit_for_bit(
    write, both, frames_in_flight, binding, dtype, size
):
    path = write(
        'numbers = Cast <to = 1> (k) y = Mul(x, numbers)',
        {'x': (1,), 'k': [dtype, (3, size)]},
        {'y': (3, size)},
    )
    ours, reference = both(path, frames_in_flight, inputs=('x=tensor:x', f'k={binding}'))
    for each in (ours, reference):
        each.warm_up()

    def are_equal(got, want):
        assert got['y'].tobytes() == want['y'].tobytes()

    values = [{'x': np.ones(1, converted_at_times(number))} for number in range(20)]
    found = assert_equal_runs(
        ours, reference, values, in_flight=frames_in_flight, reset=12, check=are_equal
    )
    assert found[0]['y'].tobytes() == found[12]['y'].tobytes() != found[11]['y'].tobytes()


@pytest.mark.parametrize('frames_in_flight', [1, 2])
@pytest.mark.parametrize('unified_memory', ['off', 'on'])
def test_a_recurrent_network_equals_onnxruntime_over_100_frames(
    gru, both, frames_in_flight, unified_memory
):
    ours, reference = both(
        gru,
        frames_in_flight,
        inputs=('x=tensor:x', 'h=state:hn'),
        outputs=('y',),
        unified_memory=unified_memory,
    )
    rng = np.random.default_rng(0)
    steps = [rng.normal(size=(1, 8)).astype(converted_at_times(number)) for number in range(100)]
    assert_equal_runs(ours, reference, [{'x': step} for step in steps], reset=60)


def test_states_follow_each_other_with_two_runs_in_flight(gru, both):
    ours, reference = both(gru, 2, inputs=('x=tensor:x', 'h=state:hn'))
    rng = np.random.default_rng(1)
    steps = [{'x': rng.normal(size=(1, 8)).astype(np.float32)} for _ in range(50)]
    assert_equal_runs(ours, reference, steps, in_flight=2)


@pytest.mark.parametrize('frames_in_flight', [1, 2])
@pytest.mark.parametrize('settings', ['', '&scale=0.5'])
@pytest.mark.parametrize('width', [6, 20000])
def test_a_held_array_equals_onnxruntime(write, both, frames_in_flight, settings, width):
    shape = (1, width)
    path = write('y = Mul(x, held)', {'x': shape, 'held': shape}, {'y': shape})
    inputs = ('x=tensor:x', f'held=tensor:held?held=true{settings}')
    ours, reference = both(path, frames_in_flight, inputs=inputs)
    held = [weights(1, width, seed=seed) for seed in range(3)]
    for each in held:
        each.flags.writeable = False
    values = [
        {
            'x': weights(1, width, seed=number).astype(converted_at_times(number)),
            'held': held[number // 4 % 3],
        }
        for number in range(20)
    ]
    assert_equal_runs(ours, reference, values, in_flight=frames_in_flight)


@pytest.mark.parametrize('frames_in_flight', [1, 2])
@pytest.mark.parametrize('settings', ['', '&order=newest', '&fill=zeros&scale=0.5'])
@pytest.mark.parametrize('width', [6, 20000])
def test_a_history_equals_onnxruntime(write, both, frames_in_flight, settings, width):
    """Small values are copied by the graph, large ones before it."""
    shapes = {'x': (1, 5, width)}, {'y': (1, 3, width)}
    path = write('y = MatMul(weights, x)', *shapes, weights=weights(1, 3, 5))
    inputs = (f'x=tensor:x?history=5{settings}',)
    ours, reference = both(path, frames_in_flight, inputs=inputs)
    values = [
        weights(width, seed=number).astype(converted_at_times(number)) for number in range(20)
    ]
    assert_equal_runs(ours, reference, [{'x': value} for value in values], reset=12)


@pytest.mark.parametrize('frames_in_flight', [1, 2])
def test_held_images_and_histories_of_images_equal_onnxruntime(write, both, frames_in_flight):
    path = write(
        'difference = Sub(x, goal) y = Add(past, difference)',
        {'x': (1, 3, 32, 48), 'goal': (1, 3, 32, 48), 'past': (1, 4, 3, 32, 48)},
        {'y': (1, 4, 3, 32, 48)},
    )
    bindings = ('goal=image:goal?held=true', 'x=image:x', 'past=image:x?history=4')
    ours, reference = both(path, frames_in_flight, inputs=bindings)
    rng = np.random.default_rng(0)
    images = [Frame.from_pixels(rng.integers(0, 256, (60, 80, 3), np.uint8)) for _ in range(20)]
    values = [
        {'goal': images[number // 4], 'x': image, 'past': image}
        for number, image in enumerate(images)
    ]
    assert_equal_runs(ours, reference, values, reset=12)


@pytest.mark.parametrize('frames_in_flight', [1, 2])
def test_a_padded_input_has_one_graph_and_equals_the_unpadded_run(
    both, tmp_path, frames_in_flight
):
    path = Path(save_pool(tmp_path / 'pool.onnx'))
    ours, reference = both(
        path,
        frames_in_flight,
        inputs=('points=tensor:points?capacity=64', 'valid=mask:points', 'count=count:points'),
    )
    plain = OnnxRuntimeRunner.open(path, threads=1)
    graphs = [list(slot._captured.items()) for slot in ours.slots.all]
    rng = np.random.default_rng(0)
    for count in (*rng.integers(1, 65, 100), 64, 1):
        points = rng.normal(size=(1, count, 2)).astype(np.float32)
        valid = np.ones((1, count), bool)
        want = plain.infer({'points': points, 'valid': valid, 'count': np.array([count])})
        inputs = {'points': points.astype(np.float64) if count % 2 else points}
        assert_close(ours(inputs), want)
        assert_close(reference(inputs), want)
    plain.close()
    # One set of buffers, and one graph of it per slot: those of the warm-up.
    assert [list(slot._captured.items()) for slot in ours.slots.all] == graphs
    for slot in ours.slots.all:
        (captured,) = slot._captured.values()
        assert len(captured) == 1
    with pytest.raises(CapacityError):
        ours({'points': np.zeros((1, 65, 2), np.float32)})


@pytest.fixture
def flow(write) -> Path:
    """Return a network of two images of different sizes and channels."""
    return write(
        'l = Conv <pads = [1, 1, 1, 1]> (left, wl) r = Conv <pads = [1, 1, 1, 1]> (right, wr) '
        'flow = Sub(l, r)',
        {'left': (1, 3, 64, 96), 'right': (1, 1, 64, 96)},
        {'flow': (1, 2, 64, 96)},
        wl=weights(2, 3, 3, 3),
        wr=weights(2, 1, 3, 3, seed=1),
    )


@pytest.mark.parametrize('unified_memory', ['off', 'on'])
def test_two_images_of_any_geometry_equal_onnxruntime(flow, both, unified_memory):
    ours, reference = both(
        flow,
        2,
        inputs=('right=image:right?resize=letterbox', 'left=image:left?mean=0.4&std=0.2'),
        unified_memory=unified_memory,
    )
    encodings = ('bgr8', 'mono16', '32FC1', '16UC1')
    for number in range(24):
        left = picture(number, 160 if number % 3 else 1930, 120 if number % 2 else 1090)
        right = picture(99 - number, 200, 130, encodings[number % 4])
        inputs = {'left': left, 'right': right}
        assert_close(ours(inputs), reference(inputs))


@pytest.mark.parametrize('frames_in_flight', [1, 2])
@pytest.mark.parametrize('unified_memory', ['off', 'on'])
@pytest.mark.parametrize(
    ('shape', 'run', 'settings'),
    [
        ((1, 3, 3, 64, 96), [1, 3, 3, 64, 96], 'mean=0.4,0.5,0.6&std=0.2'),
        ((3, 3, 64, 96), [3, 3, 64, 96], 'resize=stretch'),
        (('n', 3, 64, 96), [3, 3, 64, 96], 'antialias=true'),
        (('batch', 'n', 3, 64, 'w'), [1, 3, 3, 64, 96], 'channel_order=bgr&input_size=64,96'),
        ((1, 3, 64, 96, 3), [1, 3, 64, 96, 3], 'resize=letterbox&pad_value=0'),
    ],
)
def test_a_stack_of_images_equals_onnxruntime(
    write, both, frames_in_flight, unified_memory, shape, run, settings
):
    ours, reference = both(
        write('y = Mul(x, x)', {'x': shape}, {'y': shape}),
        frames_in_flight,
        inputs=[f'x=images:front,left,right?{settings}'],
        unified_memory=unified_memory,
    )
    sizes = ((640, 480), (320, 240), (97, 131))
    cases = [
        [
            picture(3 * number + place, *sizes[(place + number) % 3], ('bgr8', 'rgb8')[number % 2])
            for place in range(3)
        ]
        for number in range(12)
    ]
    values = [{'x': frames} for frames in cases]
    for got in assert_equal_runs(ours, reference, values, in_flight=frames_in_flight):
        assert list(got['y'].shape) == run
    depth = picture(0, 64, 48, '16UC1')
    for pipeline in (ours, reference):
        with pytest.raises(BadFrameError, match='depth'):
            pipeline({'x': [*cases[0][:2], depth]})


@pytest.mark.parametrize('encoding', ['16UC1', '32FC1', 'mono16'])
def test_color_and_depth_equal_onnxruntime(write, both, encoding):
    path = write(
        'y = Conv <pads = [1, 1, 1, 1]> (x, w)',
        {'x': (1, 4, 64, 96)},
        {'y': (1, 2, 64, 96)},
        w=weights(2, 4, 3, 3),
    )
    ours, reference = both(path, inputs=('x=image:color,depth?mean=0,0,0,2&std=1,1,1,3',))
    for number in range(4):
        second = picture(number, *((320, 240), (300, 300))[number % 2], encoding)
        inputs = {'x': (picture(number, 640, 480), second)}
        assert_close(ours(inputs), reference(inputs))


@pytest.mark.parametrize('frames_in_flight', [1, 2])
@pytest.mark.parametrize('is_registered', [False, True])
def test_large_tensors_in_flight_do_not_disturb_each_other(
    write, both, frames_in_flight, is_registered
):
    shape = (1, 3, 640, 640)
    path = write('d = Sub(a, b) y = Mul(d, d)', {'a': shape, 'b': shape}, {'y': shape})
    ours, reference = both(path, frames_in_flight, inputs=('*=tensor:tensors',))
    rng = np.random.default_rng(0)
    values = [{name: rng.normal(size=shape).astype(np.float32) for name in 'ab'} for _ in range(6)]
    lent = [array.reshape(-1).view(np.uint8) for value in values for array in value.values()]
    for array in lent * is_registered:
        ours.device.register(array)
    found = assert_equal_runs(ours, reference, values * 3, in_flight=frames_in_flight)
    count = len(found) * is_registered
    assert ours.diagnostics()['zero-copy frames'] == f'{count} of {len(found)}'
    for array in lent * is_registered:
        ours.device.unregister(array)


def test_integers_bools_and_half_floats_are_converted(write, both):
    path = write(
        'fi = Cast <to = 1> (i) fh = Cast <to = 1> (h) y = Where(m, fi, fh)',
        {
            'i': [TensorProto.INT64, (2, 5)],
            'h': [TensorProto.FLOAT16, (2, 5)],
            'm': [TensorProto.BOOL, (2, 5)],
        },
        {'y': (2, 5)},
    )
    ours, reference = both(path, inputs=('*=tensor:tensors',))
    rng = np.random.default_rng(0)
    for integers in ('uint8', 'int32', 'int64'):
        inputs = {
            'i': rng.integers(0, 100, (5, 2)).astype(integers).T,
            'h': rng.normal(size=(2, 5)),
            'm': rng.integers(0, 2, (2, 5)).astype(np.uint8),
        }
        assert_close(ours(inputs), reference(inputs))


def test_bench_measures_a_network_of_tensors(gru, gpu, tmp_path, capsys):
    from trt_ros.cli import main

    result = tmp_path / 'times.json'
    flags = ['--frames', '20', '--device', str(gpu.index), '--json', str(result)]
    assert main(['bench', str(gru), *flags]) == 0
    assert 'x [1, 8], h [1, 16]' in capsys.readouterr().out
    assert result.is_file()


@pytest.mark.parametrize('frames_in_flight', [1, 2])
def test_an_input_joined_from_parts_equals_onnxruntime(write, both, frames_in_flight):
    path = write(
        'y = MatMul(obs, w) action = Tanh(y)',
        {'obs': ('batch', 20)},
        {'action': ('batch', 4)},
        w=weights(20, 4),
    )
    inputs = (
        'obs=concat:q,last,scale,z,command',
        'q=joints:js#position[a,b,c]?history=2&default=0.5',
        'last=state:action',
        'scale=constant:1,2',
        'z=noise:normal?seed=3',
        'command=twist:cmd_vel#linear[x,y],angular[z]?held=true&initial=0.25',
    )
    ours, reference = both(path, frames_in_flight, inputs=inputs)
    values = [
        {'q': weights(3, seed=number), 'command': weights(3, seed=number // 4)}
        for number in range(30)
    ]
    assert_equal_runs(ours, reference, values, reset=20)
