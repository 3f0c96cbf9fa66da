"""
Memory formats of the input of a network: do they save a reformat, and how much time.

    python benchmarks/gpu_formats.py [--precision fp16]     # builds; with a GPU, it also measures

The first convolution of YOLOv8s (3 to 32 channels, 3 x 3, stride 2, of 640 x 640) alone, and all
of ResNet-50. nhwc and nhwc8 are HWC and HWC8 in the ONNX file: a transpose at the beginning, of 3
channels and of 8, five of which have zero weights. Microseconds per run, the median of CUDA graphs
of 20 runs, without any copies.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
import tempfile
from typing import Any

from gpu_models import Net, resnet50
import numpy as np
import onnx

from trt_ros.cuda.device import Event, Graph, Stream, open_gpu
from trt_ros.cuda.memory import Account, DeviceBuffer, fill_async
from trt_ros.driver import nvidia_driver
from trt_ros.engine.builder.layers import parse_inspector
from trt_ros.engine.builder.onnx_precision import convert
from trt_ros.trt import Library, load_trt

FORMATS = ('LINEAR', 'HWC', 'HWC8', 'HWC16', 'CHW2', 'CHW4', 'CHW16', 'CHW32')
RUNS, ROUNDS = 20, 100


def models(folder: Path, precision: str) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes of the networks, with float32 inputs and with those of `precision`."""
    net = Net()
    net.save(
        folder / 'first.onnx',
        {'y': (net.conv('images', 32, 3, 2, 'relu'), (1, 32, 320, 320))},
        640,
    )
    resnet50(folder / 'resnet50.onnx')
    for name in ('first', 'resnet50'):
        path = folder / f'{name}.onnx'
        yield f'{name} fp32', path.read_bytes()
        for dtypes in ('keep', 'lower'):
            model, _ = convert(path, precision, io_dtypes=dtypes)
            yield f'{name} {precision} {dtypes}', model.SerializeToString()
        for channels in (3, 8):
            channels_last(model, channels)
            suffix = '' if channels == 3 else channels
            yield f'{name} {precision} nhwc{suffix}', model.SerializeToString()


def channels_last(model: onnx.ModelProto, channels: int) -> None:
    """Let the image of a network be NHWC of so many channels, those beyond 3 of zero weight."""
    graph = model.graph
    (image,) = graph.input
    dims = image.type.tensor_type.shape.dim
    if graph.node[0].op_type != 'Transpose':
        for node in graph.node:
            node.input[:] = ['nchw' if name == 'images' else name for name in node.input]
        graph.node.insert(
            0, onnx.helper.make_node('Transpose', ['images'], ['nchw'], perm=[0, 3, 1, 2])
        )
        dims[1].dim_value, dims[2].dim_value = (dims[i].dim_value for i in (2, 3))
    dims[3].dim_value = channels
    first = next(node for node in graph.node if node.op_type == 'Conv')
    weight = next(each for each in graph.initializer if each.name == first.input[1])
    values = onnx.numpy_helper.to_array(weight)
    added = channels - values.shape[1]
    values = np.pad(values, ((0, 0), (0, added), (0, 0), (0, 0)))
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))


def build(library: Library, model: bytes, format_: str, direct: bool) -> tuple[Any, str]:
    """Return the plan, or None and the reason."""
    trt = library.trt
    builder = library.new_builder()
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, library.log)
    assert parser.parse(model)
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if direct:
        config.set_flag(trt.BuilderFlag.DIRECT_IO)
    network.get_input(0).allowed_formats = 1 << int(getattr(trt.TensorFormat, format_))
    with library.log.collect() as captured:
        plan = builder.build_serialized_network(network, config)
    return plan, ' '.join(captured.errors)[-150:]


def measure(library: Library, plan: Any) -> str:
    """Run a plan; return its time, and its layers with those that reformat."""
    runtime = library.new_runtime()
    engine = runtime.deserialize_cuda_engine(plan)
    formats = library.trt.LayerInformationFormat
    text = engine.create_engine_inspector().get_engine_information(formats.JSON)
    layers = [f'{each.kind} {each.name}'.lower() for each in parse_inspector(text)]
    reformats = sum('reformat' in each for each in layers)
    context = engine.create_execution_context()
    with ExitStack() as owned:
        stream = owned.enter_context(closing(Stream()))
        begin, end = (owned.enter_context(closing(Event(timing=True))) for _ in range(2))
        for index in range(engine.num_io_tensors):
            # Large enough for CHW32 of the image.
            memory = owned.enter_context(closing(DeviceBuffer(64 << 20, 'tensor', Account())))
            fill_async(memory.ptr, 0, memory.nbytes, stream.handle)
            context.set_tensor_address(engine.get_tensor_name(index), memory.ptr)
        for _ in range(3):
            assert context.execute_async_v3(stream.handle)
        stream.synchronize()

        def work(handle: int) -> None:
            for _ in range(RUNS):
                assert context.execute_async_v3(handle)

        graph = owned.enter_context(closing(Graph.capture(stream.handle, work)))
        times = []
        for _ in range(ROUNDS):
            begin.record(stream.handle)
            graph.launch(stream.handle)
            end.record(stream.handle)
            end.wait()
            times.append(end.ms_since(begin) * 1e3 / RUNS)
        strides = tuple(context.get_tensor_strides(engine.get_tensor_name(0)))
        return (
            f'{np.median(times):7.2f} us, {graph.node_count // RUNS} nodes, {len(layers)} layers, '
            f'{reformats} reformats, {engine.get_tensor_format(engine.get_tensor_name(0)).name} '
            f'{strides}, {engine.num_aux_streams} aux streams'
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('--precision', default='fp16', choices=('fp16', 'bf16'))
    precision = parser.parse_args().precision
    library = load_trt()
    with ExitStack() as owned:
        folder = owned.enter_context(tempfile.TemporaryDirectory())
        gpu = open_gpu(0) if nvidia_driver().gpus else None
        print(library, gpu or 'no GPU')
        if gpu is not None:
            owned.enter_context(gpu.context)
        for name, model in models(Path(folder), precision):
            for format_ in ('LINEAR',) if 'nhwc' in name else FORMATS:
                for direct in (False, True):
                    plan, reason = build(library, model, format_, direct)
                    if plan is None:
                        found = f'not built: {reason}'
                    else:
                        found = 'built' if gpu is None else measure(library, plan)
                    print(f'{name:20} {format_:6} {"direct" if direct else "":6} {found}')
                    if plan is None:
                        break


if __name__ == '__main__':
    main()
