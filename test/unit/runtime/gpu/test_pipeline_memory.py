"""Memory of the GPU executor: buffers, registered memory."""

from dataclasses import replace

import numpy as np
import pytest

from support.fake_runner import model_of_image
from support.host_context import ASKED, captured, image_bytes
from trt_ros.cuda.calls import CudaError, live
from trt_ros.decode.choice import choose_decoder
from trt_ros.families.family import NetworkDescription
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

CONTEXT_NBYTES = 300_000  # What a context of the fake TensorRT takes.


@pytest.mark.parametrize('decoding', ['gpu', 'cpu'])
def test_eight_cameras_take_more_memory_only_for_inputs_and_outputs(
    open_graph, make_engine, picture, decoding, request
):
    if decoding == 'cpu':
        request.getfixturevalue('decode_on_cpu')
    held = {}
    for cameras in (1, 8):
        pipeline = open_graph(make_engine(-1, max_batch=8), batch=cameras)
        pipeline.warm_up(picture())
        for count in range(1, cameras + 1):
            pipeline.infer_all([picture()] * count, ASKED)
        held[cameras] = pipeline.memory()['device']
    one_image = 4 * (3 * 64 * 96 + 7 * 96)
    pixels = 57_600  # 160 × 120 × 3, and the request of 256 bytes per slot.
    assert held[1]['tensors'] == one_image
    assert held[8]['tensors'] == 8 * one_image
    # Two slots: one is copied to while the other works.
    assert (held[1]['slots'], held[8]['slots']) == (2 * (256 + pixels), 2 * (256 + 8 * pixels))
    assert held[8].get('decoder', 0) == held[1].get('decoder', 0)  # One after another.
    for owner in ('engine', 'activations', 'kernels'):
        assert held[1][owner] == held[8][owner]
    # One per batch size: 1, 2, 4, 8.
    assert (held[1]['contexts'], held[8]['contexts']) == (CONTEXT_NBYTES, 4 * CONTEXT_NBYTES)
    assert (
        set(held[8])
        == set(held[1])
        <= {'engine', 'activations', 'contexts', 'kernels', 'tensors', 'slots', 'decoder'}
    )


def test_a_smaller_batch_is_read_from_the_memory_of_the_largest(
    open_graph, make_engine, cuda, picture, decode_on_cpu
):
    """The outputs of a batch of two in the memory for four, on their way to a decoder's arrays."""
    pipeline = open_graph(make_engine(-1), batch=4)
    pipeline.warm_up(picture())
    slot = pipeline.slots.all[0]
    buffers, largest = slot.buffers_for(2), slot.buffers_for(4)
    assert buffers.tensors['output0'].ptr == largest.tensors['output0'].ptr
    values = np.arange(4 * 7 * 96, dtype=np.float32).reshape(4, 7, 96)
    # Of four images, as the network would leave them; only two are asked for.
    cuda._memory[buffers.tensors['output0'].ptr][:] = values.tobytes()
    outputs = []
    pipeline.decoder = lambda own, *_: outputs.append(own['output0'].copy())
    pipeline.start([picture()] * 2, ASKED).result()
    np.testing.assert_array_equal(np.concatenate(outputs), values[:2])


def test_registered_memory_is_uploaded_directly(open_graph, cuda, picture):
    pipeline = open_graph(frames_in_flight=1)
    ring = np.zeros(100_000, np.uint8)
    pipeline.device.register(ring)
    frame = picture()
    for offset in (0, 77):
        ring[offset : offset + frame.nbytes] = frame.data
        lying = Frame(ring[offset : offset + frame.nbytes], 160, 120, 480, 'bgr8')
        pipeline.infer(lying, ASKED)
    assert image_bytes(pipeline, cuda) == frame.data.tobytes()
    assert captured(pipeline).made == 1  # The address is no part of the graph.
    pipeline.device.unregister(ring)
    assert 'receive buffers' not in pipeline.memory()['pinned']
    pipeline.infer(lying, ASKED)
    assert pipeline.diagnostics()['zero-copy frames'] == '2 of 3'


def test_registered_memory_needs_no_pinned_buffer_and_what_failed_is_allocated_with_the_next(
    open_graph, cuda, picture
):
    pipeline = open_graph(frames_in_flight=1)
    pipeline.infer(picture(), ASKED)
    ring = np.zeros(300_000, np.uint8)
    pipeline.device.register(ring)
    lying = Frame(ring[: 320 * 240 * 3], 320, 240, 960, 'bgr8')
    ring[: lying.nbytes] = picture(320, 240).data
    cuda.fail['cudaMalloc'] = 2
    with pytest.raises(CudaError, match='requested'):
        pipeline.infer(lying, ASKED)
    pipeline.infer(lying, ASKED)
    assert pipeline.memory()['pinned']['slots'] == 512  # The request, and the image's address.
    assert pipeline.memory()['device']['slots'] == 512 + lying.nbytes
    assert image_bytes(pipeline, cuda) == lying.data.tobytes()
    pipeline.infer(picture(320, 240), ASKED)  # Not lent: now there must be.
    assert pipeline.memory()['pinned']['slots'] == 256 + lying.nbytes
    pipeline.infer(lying, ASKED)
    assert len(captured(pipeline)) == 2


def test_zero_copy_captures_one_graph_per_address(open_graph, picture):
    pipeline = open_graph(frames_in_flight=1, unified_memory='on')
    ring = np.zeros(200_000, np.uint8)
    pipeline.device.register(ring)
    for offset in (0, 100_000, 0):
        lying = Frame(ring[offset : offset + 57_600], 160, 120, 480, 'bgr8')
        pipeline.infer(lying, ASKED)
    assert captured(pipeline).made == 2
    assert 'slots' not in pipeline.memory()['device']


@pytest.mark.parametrize('call', ['cudaMalloc', 'cudaHostAlloc', 'cudaEventCreateWithFlags'])
def test_out_of_memory_while_opening_or_capturing_leaves_nothing(open_graph, cuda, picture, call):
    before = live()
    cuda.fail[call] = 2
    with pytest.raises(CudaError, match=r'(?s)(requested|Remedy)'):
        open_graph(frames_in_flight=2).infer(picture(), ASKED)
    if call == 'cudaEventCreateWithFlags':
        assert live() == before


def test_failed_batch_preparation_is_retried(open_graph, cuda, picture):
    pipeline = open_graph(frames_in_flight=1)
    cuda.fail['cudaMemsetAsync'] = 2  # The decoder's counters.
    with pytest.raises(CudaError):
        pipeline.infer(picture(), ASKED)
    before = cuda.calls['cudaMemsetAsync']
    pipeline.infer(picture(), ASKED)
    assert cuda.calls['cudaMemsetAsync'] == before + 2  # And the image's memory.


def test_a_hundred_frames_allocate_nothing(open_graph, cuda, picture):
    pipeline = open_graph()
    frame = picture()
    pipeline.warm_up(frame)
    before = live(), pipeline.memory(), cuda.calls['cudaMalloc'], cuda.calls['cudaHostAlloc']
    for _ in range(100):
        pipeline.infer(frame, ASKED)
    assert before == (
        live(),
        pipeline.memory(),
        cuda.calls['cudaMalloc'],
        cuda.calls['cudaHostAlloc'],
    )


def test_memory_is_reported_per_owner(open_graph, picture):
    pipeline = open_graph(frames_in_flight=1)
    pipeline.infer(picture(), ASKED)
    held, told = pipeline.memory(), pipeline.diagnostics()
    assert (held['device']['engine'], held['device']['activations']) == (1000, 2000)
    assert held['device']['slots'] == held['pinned']['slots'] == 256 + 57_600
    for key in ('GPU memory (MB)', 'GPU memory peak (MB)'):
        assert told[key].endswith(f', total {sum(held["device"].values()) / 1e6:.1f}')
    assert told['frames with non-finite values'] == '0'
    assert told['engine shared by (pipelines)'] == '1'


def test_registering_replaces_the_blocks_that_a_frame_may_be_searching(open_graph):
    pipeline = open_graph(frames_in_flight=1)
    first, second = np.zeros(4096, np.uint8), np.zeros(4096, np.uint8)
    pipeline.device.register(first)
    seen = pipeline.device.blocks
    pipeline.device.register(second)
    pipeline.device.unregister(first)
    assert [block.ptr for block in seen] == [first.ctypes.data]
    assert [block.ptr for block in pipeline.device.blocks] == [second.ctypes.data]


def test_memory_that_cannot_be_page_locked_warns_of_the_consequence(open_graph, cuda, caplog):
    pipeline, ring = open_graph(frames_in_flight=1), np.zeros(4096, np.uint8)
    cuda.fail['cudaHostRegister'] = 2
    pipeline.device.register(ring)
    assert pipeline.device.blocks == ()
    cuda.fail['cudaDeviceSynchronize'] = 2
    pipeline.device.unregister(ring)
    assert [message.partition('. ')[0] for message in caplog.messages] == [
        'Could not page-lock the receive buffers: the CPU copies images from them',
        'Could not unlock the receive buffers',
    ]
    pipeline.close()
    pipeline.device.register(ring)
    assert not cuda.registered


def test_memory_that_libraries_take_at_warm_up_belongs_to_contexts(open_graph, cuda, picture):
    pipeline = open_graph()

    def load_kernels(*_):
        del cuda.before['cudaGraphInstantiate']
        cuda.library_nbytes += 500_000

    cuda.before['cudaGraphInstantiate'] = load_kernels
    pipeline.warm_up(picture())
    assert pipeline.memory()['device']['contexts'] == CONTEXT_NBYTES + 500_000
    cuda.library_nbytes -= 500_000


@pytest.mark.parametrize('contexts', [1, 2, 4])
def test_each_context_has_memory_of_its_own_and_waits_for_no_other(
    open_graph, make_engine, cuda, picture, contexts
):
    one = open_graph(make_engine(1), frames_in_flight=4)
    one.warm_up(picture())
    pipeline = open_graph(make_engine(1), frames_in_flight=4, contexts=contexts)
    pipeline.warm_up(picture())
    held, single = pipeline.memory()['device'], one.memory()['device']
    for owner in ('activations', 'contexts', 'tensors', 'decoder'):
        assert held[owner] == contexts * single[owner]
    for owner in ('engine', 'kernels', 'slots'):
        assert held[owner] == single[owner]
    before = cuda.calls['cudaStreamWaitEvent']
    runs = [pipeline.start([picture()], ASKED) for _ in range(4)]
    # The first runs of all contexts wait for none.
    assert cuda.calls['cudaStreamWaitEvent'] - before == 4 - contexts
    assert len([run.result() for run in runs]) == 4
    pipeline.close()
    assert not +pipeline.account.device


def test_second_slot_adds_only_images_and_results(open_graph, make_engine, picture):
    memory = {}
    for slots in (1, 2):
        pipeline = open_graph(make_engine(-1), batch=4, frames_in_flight=slots)
        pipeline.warm_up(picture())
        memory[slots] = pipeline.memory()
    added = {
        (place, owner): nbytes - memory[1][place][owner]
        for place, owners in memory[2].items()
        for owner, nbytes in owners.items()
        if nbytes != memory[1][place][owner]
    }
    assert added == {
        (place, owner): memory[1][place][owner]
        for place, owner in (('device', 'slots'), ('pinned', 'slots'), ('pinned', 'results'))
    }


def test_constant_input_is_uploaded_once_per_image_slot_and_never_per_frame(
    cuda, make_engine, open_fitted, picture
):
    engine = make_engine(batch=-1)
    decoder = choose_decoder(
        'yolov8', NetworkDescription(engine.inputs, engine.outputs, {}, (64, 96))
    )
    decoder = replace(decoder, constant_inputs={'orig_target_sizes': np.array([[96, 64]])})
    engine.inputs = (TensorSpec('orig_target_sizes', (-1, 2), 'int64', 'input'), *engine.inputs)
    engine.profiles = ({**engine.profiles[0], 'orig_target_sizes': ((1, 2), (1, 2), (4, 2))},)
    fitted = model_of_image(engine, Preprocess((64, 96)), decoder)
    pipeline = open_fitted(engine, fitted, 3)
    for batch in (1, 3):
        for _ in range(2):
            pipeline.start([picture()] * batch, ASKED).wait()
        buffers = pipeline.slots.all[0].buffers_for(batch)
        context, tensor = buffers.execution.context, buffers.tensors['orig_target_sizes']
        assert context.shapes == {'images': (batch, 3, 64, 96), 'orig_target_sizes': (batch, 2)}
        assert context.addresses['orig_target_sizes'] == tensor.ptr
        there = bytes(cuda._memory[tensor.ptr])
        assert np.frombuffer(there, np.int64).reshape(-1, 2).tolist() == [[96, 64]] * 3
