"""Tensors, several images and states through the captured graph, on a CUDA of our own."""

from collections import Counter
from contextlib import closing

import numpy as np
import pytest

from support.device_arrays import OnGpu
from support.host_context import ASKED, HostContext, captured
from trt_ros.errors import BadFrameError, CapacityError, ParameterError, TensorMismatchError
from trt_ros.families.registry import TENSORS
from trt_ros.model.feeds import FEEDS
from trt_ros.model.feeds.base import Given
from trt_ros.model.feeds.state import StateFeed
from trt_ros.runtime.fitting import fit
from trt_ros.runtime.gpu.staging import SMALL_NBYTES
from trt_ros.runtime.options import PipelineOptions
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess


def tensor(name, shape, dtype='float32', mode='input'):
    return TensorSpec(name, shape, dtype, mode)


def with_step(context, arrays):
    """Add the step to the state."""
    arrays['hn'][:] = context.engine.add(arrays['h'], arrays['step'])
    arrays['total'][:] = arrays['hn']


@pytest.fixture
def counter(make_engine, cuda):
    """Return an engine that adds its step to its state."""

    def make(shape=(1, 2), add=np.add):
        engine = make_engine()
        engine.add = add
        engine.inputs = (tensor('step', shape), tensor('h', shape))
        engine.outputs = (
            tensor('hn', shape, mode='output'),
            tensor('total', shape, mode='output'),
        )
        engine.create_execution_context = lambda strategy: HostContext(
            engine, with_step, lambda context, _: context.shapes['step']
        )
        return engine

    return make


@pytest.fixture
def open_inputs(open_fitted):
    def open_inputs(engine, inputs, outputs=(), **options):
        fitted = fit(engine, PipelineOptions(inputs=inputs, outputs=outputs), TENSORS)
        return open_fitted(engine, fitted, **options)

    return open_inputs


STATEFUL = ('step=tensor:step', 'h=state:hn')
STEP = np.array([[1, 10]], np.float32)


@pytest.mark.parametrize('slots', [1, 2])
@pytest.mark.parametrize('unified_memory', ['off', 'on'])
@pytest.mark.parametrize(('settings', 'first'), [('', 0), ('?initial=5,5', 5)])
def test_a_state_goes_from_run_to_run_and_is_reset(
    counter, open_inputs, slots, unified_memory, settings, first
):
    pipeline = open_inputs(
        counter(),
        ('step=tensor:step', f'h=state:hn{settings}'),
        ('total',),
        frames_in_flight=slots,
        unified_memory=unified_memory,
    )
    pipeline.warm_up()
    assert 'decoding on the CPU' in ' '.join(pipeline.log_lines)
    for _ in range(2):
        for count in (1, 2, 3, 4):
            # A converted tensor has a graph of its own, whose capture is no run.
            step = STEP.astype(np.float64) if count == 3 else STEP
            found = pipeline.infer({'step': step}, ASKED)
            assert {name: value.tolist() for name, value in found.items()} == {
                'total': [[first + count, first + 10 * count]]
            }
        pipeline.reset_state()


@pytest.mark.parametrize('slots', [1, 2])
@pytest.mark.parametrize('settings', ['', '&scale=2'])
def test_a_held_array_is_sent_when_it_changes(counter, open_inputs, cuda, slots, settings):
    inputs = ('step=tensor:step', f'h=tensor:h?held=true{settings}')
    pipeline = open_inputs(counter(), inputs, frames_in_flight=slots)
    pipeline.warm_up()
    factor = 2 if settings else 1
    held = np.array([[3, 4]], np.float32)
    held.flags.writeable = False

    def run(array):
        copies = cuda.calls['cudaMemcpyAsync']
        found = pipeline.infer({'step': STEP, 'h': array}, ASKED)['hn']
        assert found.tolist() == (STEP + factor * array).tolist()
        return cuda.calls['cudaMemcpyAsync'] - copies

    assert [run(held) for _ in range(4)] == [1, 0, 0, 0]
    other = held + 1
    for _ in range(3):  # It may change in place.
        assert run(other) == 1
        assert run(other.copy()) == run(other) == 0
        other += 1
    assert run(held) == 1
    pipeline.reset_state()
    assert run(held) == 0


def test_a_held_array_is_sent_again_with_other_shapes(counter, open_inputs):
    engine = counter((1, -1), add=lambda held, step: held[:, :1] + step)
    inputs = ('step=tensor:step', 'h=tensor:h?held=true&capacity=1,1')
    engine.inputs = (engine.inputs[0], tensor('h', (-1, -1)))
    pipeline = open_inputs(engine, inputs)
    held = np.array([[7]], np.float32)
    held.flags.writeable = False
    for size in (1, 3, 1, 2):
        step = np.zeros((1, size), np.float32)
        assert pipeline.infer({'step': step, 'h': held}, ASKED)['hn'].tolist() == [[7] * size]


@pytest.mark.parametrize('slots', [1, 2])
@pytest.mark.parametrize('settings', ['', '&order=newest', '&fill=zeros'])
def test_a_history_equals_that_of_the_cpu(counter, open_inputs, cuda, slots, settings):
    inputs = ('step=tensor:step', f'h=tensor:h?history=4{settings}')
    pipeline = open_inputs(counter((1, 8)), inputs, frames_in_flight=slots)
    pipeline.warm_up()
    feed, step = pipeline.feeds['h'], np.zeros((1, 8), np.float32)
    for _ in range(2):
        memory = feed.initial()
        for number in range(7):
            copies = cuda.calls['cudaMemcpyAsync']
            # A converted value now and then, whose graph is another.
            value = np.array([[number, -number]], float if number == 5 else np.float32)
            found = pipeline.infer({'step': step, 'h': value}, ASKED)['hn']
            memory, _ = feed.stage(Given(array=value, memory=memory))
            assert found.tolist() == memory.tolist()
            if number in (2, 3, 4):
                assert cuda.calls['cudaMemcpyAsync'] == copies
        pipeline.reset_state()


@pytest.mark.slow
@pytest.mark.parametrize('slots', [1, 2])
@pytest.mark.parametrize('use_graph', [True, False])
@pytest.mark.parametrize('binding', ['counter:5', 'noise:normal?seed=7', 'noise:uniform'])
def test_a_counter_and_noise_equal_those_of_the_cpu(
    counter, open_inputs, numbers, cuda, slots, use_graph, binding
):
    pipeline = open_inputs(
        counter(),
        ('step=tensor:step', f'h={binding}'),
        frames_in_flight=slots,
        use_graph=use_graph,
    )
    feed = pipeline.feeds['h']
    # Neither the warm-up nor the capture of a graph counts, with a converted tensor another one.
    for warm_up in (True, False):
        memory = feed.initial()
        if warm_up:
            pipeline.warm_up()
        else:
            pipeline.reset_state()
        for number in range(5):
            copies = cuda.calls['cudaMemcpyAsync']
            step = STEP.astype(np.float64) if number > 2 else STEP
            found = pipeline.infer({'step': 0 * step}, ASKED)['hn']
            assert found.tobytes() == (0 + feed.stage(Given(memory=memory))[0]).tobytes()
            memory = feed.keep({}, memory, found)
            if use_graph and number in (1, 2):
                assert cuda.calls['cudaMemcpyAsync'] == copies


def test_warming_up_the_network_for_another_shape_does_not_count(counter, open_inputs, numbers):
    engine = counter((1, -1), add=lambda number, step: number[:, :1] + step)
    pipeline = open_inputs(engine, ('step=tensor:step', 'h=counter:5'), frames_in_flight=2)
    for number, size in enumerate((1, 2, 1, 3, 3, 2)):
        step = np.zeros((1, size), np.float32)
        found = pipeline.infer({'step': step}, ASKED)['hn']
        assert found.tolist() == [[5 + number] * size]


def test_nonfinite_outputs_are_counted_after_the_warm_up(counter, open_inputs, caplog):
    def add(state, step):
        return np.where(step == 0, np.nan, state + step)

    pipeline = open_inputs(counter(add=add), STATEFUL)
    pipeline.warm_up()
    key = 'frames with non-finite values'
    caplog.clear()
    for step, count in ((STEP, '0'), (0 * STEP, '1'), (STEP, '2')):
        pipeline.infer({'step': step}, ASKED)
        assert pipeline.diagnostics()[key] == count
    (message,) = [each.getMessage() for each in caplog.records]
    assert message.endswith('States keep them: reset the states.')


def test_a_run_of_tensors_is_one_graph_launch_without_pageable_copies(counter, open_inputs, cuda):
    pipeline = open_inputs(counter(), ('*=tensor:tensors',))
    pipeline.warm_up()
    before = Counter(cuda.calls)
    cuda.releases.clear()
    for _ in range(3):
        pipeline.infer({'step': STEP, 'h': STEP}, ASKED)
    assert +cuda.releases == {'cudaEventSynchronize': 3}  # A flood beside it can take the GIL.
    calls = cuda.calls - before
    assert calls['cudaGraphLaunch'] == 3
    # The graph has the copies; outside of it there are none, of pageable memory or other.
    assert calls['cudaMemcpyAsync'] == 0
    assert pipeline.options.gpu_timeout == 0
    assert pipeline.diagnostics()['zero-copy frames'] == '0 of 3'
    # All inputs are one node, all outputs another one.
    (graph,) = captured(pipeline)
    assert graph.graph.node_count == 3
    pipeline.faults.check_time()
    pipeline.faults.check()  # No run is counted any more, or 0 seconds would be exceeded.
    with pytest.raises(TensorMismatchError, match='beyond the range of float32'):
        for _ in range(2):
            pipeline.infer({'step': np.array([[1e300, 1]]), 'h': STEP}, ASKED)


def test_a_run_after_a_refused_one_waits_for_the_run_before_it(counter, open_inputs, cuda):
    """Runs share activations and tensors: two must not overlap on the GPU."""
    pipeline = open_inputs(counter(), STATEFUL, frames_in_flight=2)
    pipeline.warm_up()
    first = pipeline.submit({'step': STEP}, ASKED)
    with pytest.raises(TensorMismatchError, match='beyond the range of float32'):
        pipeline.submit({'step': np.array([[1e300, 1]])}, ASKED)
    before = cuda.calls['cudaStreamWaitEvent']
    second = pipeline.submit({'step': STEP}, ASKED)
    assert cuda.calls['cudaStreamWaitEvent'] == before + 1
    for each in (first, second):
        each.result()


def test_shapes_of_tensors_may_change_and_old_ones_are_dropped(counter, open_inputs):
    pipeline = open_inputs(counter((-1, -1)), ('*=tensor:tensors',))
    pipeline.warm_up()
    for size in (1, 5, 2, 9, 3, 7, 1, 5):
        value = np.full((2, size), size, np.float32)
        found = pipeline.infer({'step': value, 'h': value}, ASKED)['hn']
        assert found.tolist() == [[2 * size] * size] * 2
    for slot in pipeline.slots.all:
        assert len(slot.buffers.numbers) == 4 and len(slot._captured) <= 5


def test_a_slot_does_not_repeat_a_run_whose_shape_was_dropped(counter, open_inputs, cuda):
    pipeline = open_inputs(counter((1, -1)), ('*=tensor:tensors',), frames_in_flight=2)

    def inputs(size):
        return dict.fromkeys(('step', 'h'), np.full((1, size), size, np.float32))

    first = pipeline.submit(inputs(1), ASKED)
    for size in (2, 3, 4, 5):  # In the other slot.
        pipeline.infer(inputs(size), ASKED)
    assert first.result()['hn'].tolist() == [[2]]
    captured = cuda.calls['cudaStreamBeginCapture']
    for _ in pipeline.slots.all:
        assert pipeline.infer(inputs(1), ASKED)['hn'].tolist() == [[2]]
    assert cuda.calls['cudaStreamBeginCapture'] == captured + 2


@pytest.mark.parametrize('inputs', [{'step': STEP}, {'step': STEP, 'h': STEP, 'more': STEP}])
def test_a_run_of_other_tensors_than_the_last_is_no_repetition(counter, open_inputs, inputs):
    pipeline = open_inputs(counter(), ('*=tensor:tensors',), frames_in_flight=1)
    pipeline.infer({'step': STEP, 'h': STEP}, ASKED)
    with pytest.raises(TensorMismatchError, match=r"'h' is missing|named more"):
        pipeline.infer(inputs, ASKED)
    last = pipeline.slots.all[0]._last
    assert last.takes({'step': STEP, 'h': STEP})
    assert not last.takes(inputs)
    assert not last.takes({'step': STEP, 'other': STEP})


def test_outputs_of_bfloat16_are_float32(counter, open_inputs):
    engine = counter()
    engine.outputs = (tensor('hn', (1, 2), 'bfloat16', mode='output'),)

    def compute(context, arrays):
        arrays['hn'].view(np.uint16)[:, :2] = [[0x3F80, 0xC000]]

    engine.create_execution_context = lambda strategy: HostContext(
        engine, compute, lambda context, _: context.shapes['step']
    )
    found = open_inputs(engine, ('*=tensor:tensors',)).infer({'step': STEP, 'h': STEP}, ASKED)
    assert (found['hn'].dtype, found['hn'].tolist()) == (np.float32, [[1, -2]])


def test_the_log_says_once_what_a_new_shape_costs(counter, open_inputs, caplog):
    caplog.set_level('INFO', 'trt_ros')
    pipeline = open_inputs(counter((1, -1)), ('*=tensor:tensors',), frames_in_flight=2)
    for size, reports in ((1, 0), (1, 0), (5, 1), (1, 1), (2, 1)):
        value = np.zeros((1, size), np.float32)
        pipeline.infer({'step': value, 'h': value}, ASKED)
        assert caplog.text.count('tensors of another shape') == reports
    assert '?capacity= in inputs' in caplog.text


@pytest.mark.parametrize('slots', [1, 2])
@pytest.mark.parametrize(('size', 'settings'), [(-1, 'capacity=4&pad=9'), (4, 'pad=9')])
def test_a_padded_input_and_its_mask_have_one_graph_per_slot(
    counter, open_inputs, cuda, caplog, slots, size, settings
):
    caplog.set_level('INFO', 'trt_ros')
    pipeline = open_inputs(
        counter((1, size)), (f'step=tensor:step?{settings}', 'h=mask:step'), frames_in_flight=slots
    )
    pipeline.warm_up()
    captured = cuda.calls['cudaStreamBeginCapture']
    for size, dtype in ((3, 'f4'), (0, 'f4'), (4, 'f8'), (1, 'i2'), (2, '>f4')):
        step = np.arange(2, 2 + size, dtype=dtype).reshape(1, size)
        found = pipeline.infer({'step': step}, ASKED)['hn']
        assert found.tolist() == [[3, 4, 5, 6][:size] + [9] * (4 - size)]
    assert cuda.calls['cudaStreamBeginCapture'] == captured
    assert [len(slot._captured) for slot in pipeline.slots.all] == [1] * slots
    assert 'another shape' not in caplog.text
    with pytest.raises(CapacityError, match=r'step came as \(1, 5\)'):
        pipeline.infer({'step': np.zeros((1, 5))}, ASKED)


def copying(engine):
    """Return a context of a network that returns its input `x`, and `plus` if any, as `y`."""

    def compute(_, arrays):
        arrays['y'][:] = arrays['x'] + arrays.get('plus', 0)

    return HostContext(engine, compute, lambda context, _: context.shapes['x'])


@pytest.mark.parametrize('slots', [1, 2])
@pytest.mark.parametrize('unified_memory', ['off', 'on'])
@pytest.mark.parametrize(
    ('shape', 'run', 'layout'),
    [
        ((1, 3, 3, 8, 12), (1, 3, 3, 8, 12), 'nchw'),
        ((3, 3, 8, 12), (3, 3, 8, 12), 'nchw'),
        ((-1, -1, 3, 8, 12), (1, 3, 3, 8, 12), 'nchw'),
        ((1, 3, 8, 12, 3), (1, 3, 8, 12, 3), 'nhwc'),
    ],
)
def test_a_stack_of_images_equals_that_of_the_cpu(
    make_engine, open_inputs, numbers, cuda, slots, unified_memory, shape, run, layout
):
    engine = make_engine()
    engine.inputs = (tensor('k', (1,)), tensor('x', shape))
    engine.outputs = (tensor('y', shape, mode='output'),)
    engine.create_execution_context = lambda strategy: copying(engine)
    pipeline = open_inputs(
        engine,
        ('x=images:a,b,c?mean=0.4&resize=letterbox', 'k=constant:1'),
        frames_in_flight=slots,
        unified_memory=unified_memory,
    )
    preprocess = Preprocess((8, 12), mean=(0.4,), layout=layout)
    rng = np.random.default_rng(0)
    for number in range(4):
        # Sizes that alternate between the images: another graph.
        sizes = ((20, 32), (48, 16), (7, 9))
        frames = [
            Frame.from_pixels(rng.integers(0, 256, (*size, 3), dtype=np.uint8))
            for size in (sizes if number % 2 else sizes[::-1])
        ]
        cuda.launched.clear()
        found = pipeline.infer({'x': frames}, ASKED)['y']
        want = np.concatenate([preprocess(frame)[0] for frame in frames]).reshape(run)
        assert found.shape == run
        np.testing.assert_allclose(found, want, atol=1e-5)
        if number > 1:  # Those before are captured.
            assert cuda.launched == ['preprocess'] * 3
    depth = Frame.from_pixels(np.zeros((4, 4), np.uint16), '16UC1')
    with pytest.raises(BadFrameError, match='depth image'):
        pipeline.infer({'x': [*frames[:2], depth]}, ASKED)


def test_each_input_takes_its_own_images_in_its_own_way(make_engine, open_inputs, numbers, cuda):
    engine = make_engine()
    engine.inputs = (
        tensor('x', (2, 3, 8, 12)),
        tensor('plus', (2, 3, 8, 12)),
        tensor('first', (2, 1, 32, 32)),
    )
    engine.outputs = (tensor('y', (2, 3, 8, 12), mode='output'),)
    engine.create_execution_context = lambda strategy: copying(engine)
    inputs = ('first=images:a,b?scale=1.0', 'x=images:c,a', 'plus=tensor:plus')
    pipeline = open_inputs(engine, inputs, frames_in_flight=1)
    images = [np.full((8, 12, 3), value, np.uint8) for value in (255, 0, 51, 102)]
    plus = np.repeat([1, 2], 3 * 8 * 12).reshape(2, 3, 8, 12)  # Converted.
    for _ in range(2):
        cuda.launched.clear()
        given = {'first': images[:2], 'x': images[2:], 'plus': plus}
        found = pipeline.infer(given, ASKED)['y']
        np.testing.assert_allclose(found[:, 0, 0, 0], [1.2, 2.4], rtol=1e-6)
    assert cuda.launched == ['preprocess'] * 4


def test_a_large_tensor_does_not_disturb_the_run_before(counter, open_inputs, cuda, set_constants):
    """Its transfer goes to memory of the slot; the graph copies it into the network's input."""
    set_constants(CHUNK_NBYTES=1 << 16)
    shape = (1, 40_000)
    pipeline = open_inputs(counter(shape), ('*=tensor:tensors',), frames_in_flight=2)
    values = [np.full(shape, value, np.float32) for value in (1, 2, 3)]
    for value in values:
        pipeline.infer({'step': value, 'h': value}, ASKED)
    slot = pipeline.slots.all[0]
    buffers = slot.buffers_for(1, {'step': values[0], 'h': values[0]})
    before = bytes(cuda._memory[buffers.tensors['step'].ptr])
    with pipeline.gpu.context:
        launched = slot.stage_inputs([], ASKED, None, None, {'step': values[0], 'h': values[0]})
    assert bytes(cuda._memory[buffers.tensors['step'].ptr]) == before
    sends = [piece.send for piece in launched.captured.pieces if piece.send[2]]
    image = slot.memory.image
    assert sends and all(image.ptr <= each[0] < image.ptr + image.nbytes for each in sends)


@pytest.mark.parametrize('unified_memory', ['off', 'on'])
def test_large_registered_tensors_are_read_where_they_are(
    counter, open_inputs, cuda, unified_memory
):
    shape = (1, 40_000)
    pipeline = open_inputs(
        counter(shape), ('*=tensor:tensors',), frames_in_flight=1, unified_memory=unified_memory
    )
    lent = np.full(shape, 3, np.float32)
    pipeline.device.register(lent.view(np.uint8).reshape(-1))
    for value in (3, 4):
        lent[:] = value
        found = pipeline.infer({'step': lent, 'h': lent}, ASKED)['hn']
        assert np.unique(found).tolist() == [2 * value]
    assert pipeline.diagnostics()['zero-copy frames'] == '2 of 2'


class OnCpu(StateFeed):
    """A kind that has no class for the GPU."""

    kind = 'on_cpu'
    form = 'on_cpu:OUTPUT'


def test_a_kind_of_feed_without_a_class_on_the_gpu_is_refused(counter, open_inputs, monkeypatch):
    monkeypatch.setitem(FEEDS, OnCpu.kind, OnCpu)
    with pytest.raises(TensorMismatchError, match='of the kind on_cpu, which runs on the CPU'):
        open_inputs(counter(), ('step=tensor:step', 'h=on_cpu:hn'))


def fixed(engine):
    """Return a context whose shapes are those of the engine, and which computes nothing."""
    shapes = {spec.name: spec.shape for spec in (*engine.inputs, *engine.outputs)}
    return HostContext(engine, lambda *_: None, lambda _, name: shapes[name])


def test_rejects_a_shape_tensor_in_host_memory(counter, open_inputs):
    engine = counter()
    engine.on_host = {'h'}
    with pytest.raises(TensorMismatchError, match=r'h .* is a shape tensor in host memory'):
        open_inputs(engine, ('*=tensor:tensors',))
    assert engine.is_closed


def test_an_output_whose_shape_depends_on_the_data_is_refused_by_name(counter, open_inputs):
    engine = counter()
    engine.outputs = (tensor('chosen', (-1, 2), mode='output'),)
    engine.create_execution_context = lambda strategy: fixed(engine)
    with pytest.raises(
        TensorMismatchError,
        match=r'The shape of output chosen depends on the data(.|\n)*Remedy: Use the ONNX file',
    ):
        open_inputs(engine, ('*=tensor:tensors',)).warm_up()


def test_contexts_cannot_share_a_state(counter, open_inputs):
    with pytest.raises(ParameterError, match=r'contexts is 2, but the network has states\.'):
        open_inputs(counter(), STATEFUL, ('total',), frames_in_flight=2, contexts=2)


@pytest.mark.parametrize('columns', [2, SMALL_NBYTES])
@pytest.mark.parametrize('unified_memory', ['off', 'on'])
def test_a_tensor_in_gpu_memory_is_copied_there(counter, open_inputs, columns, unified_memory):
    shape = (1, columns)
    pipeline = open_inputs(counter(shape), STATEFUL, ('total',), unified_memory=unified_memory)
    pipeline.warm_up()
    step = np.arange(columns, dtype=np.float32).reshape(shape)
    with closing(OnGpu(step, pipeline.gpu)) as on_gpu:
        for count, given in enumerate((step, on_gpu, on_gpu, step, on_gpu), 1):
            found = pipeline.infer({'step': given}, ASKED)['total']
            assert found.tolist() == (count * step).tolist()


@pytest.mark.parametrize(
    ('settings', 'array', 'error', 'message'),
    [
        ('', np.ones((1, 2)), TensorMismatchError, r'came in GPU memory as \(1, 2\) float64'),
        ('', np.ones((1, 3), 'f'), TensorMismatchError, r'as \(1, 3\) float32'),
        ('', np.ones((1, 4), 'f')[:, ::2], TensorMismatchError, r'with strides \(16, 8\)'),
        ('?scale=2', np.ones((1, 2), 'f'), BadFrameError, 'converted, padded, held'),
        ('?held=true', np.ones((1, 2), 'f'), BadFrameError, 'converted, padded, held'),
        ('?capacity=2', np.ones((1, 2), 'f'), BadFrameError, 'converted, padded, held'),
    ],
)
def test_a_tensor_in_gpu_memory_that_is_not_copied_as_it_is_is_refused(
    counter, open_inputs, settings, array, error, message
):
    engine = counter()
    if 'capacity' in settings:
        engine.inputs = (tensor('step', (1, -1)), engine.inputs[1])
    inputs = (f'step=tensor:step{settings}', 'h=tensor:h')
    pipeline = open_inputs(engine, inputs)
    with closing(OnGpu(array, pipeline.gpu)) as on_gpu, pytest.raises(error, match=message):
        pipeline.infer({'step': on_gpu, 'h': STEP}, ASKED)
    assert pipeline.infer({'step': STEP, 'h': STEP}, ASKED)['hn'].shape == (1, 2)
    on_cpu = pipeline.feeds['h'].stage
    with closing(OnGpu(STEP, pipeline.gpu)) as on_gpu:
        value = pipeline.feeds['h'].check(on_gpu)
        with pytest.raises(BadFrameError, match='but is read on the CPU'):
            on_cpu(Given(array=value))
