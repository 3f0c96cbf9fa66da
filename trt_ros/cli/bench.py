"""
Latency and throughput of frames, from image in hand to result.

Like trtexec, with preprocessing, copies and decoding. Where TensorRT cannot run, ONNX Runtime on
the CPU is measured.
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trt_ros.cli._bench import (
    in_flight,
    refuse_bad_arguments,
    refuse_for_cascades,
    refuse_options,
    refuse_other_batch,
)
from trt_ros.cli._flags import (
    add_flags,
    add_option_flags,
    comma_separated,
    given_options,
    model_argument,
    positive,
)
from trt_ros.cli.build import add_build_arguments, build_options
from trt_ros.engine.options import PRECISIONS, BuildOptions
from trt_ros.errors import TrtRosError
from trt_ros.profiling import recording
from trt_ros.regular_file import write_text
from trt_ros.runtime.options import BUNDLE_SUFFIXES, ModelOptions, PipelineOptions, TiledOptions

if TYPE_CHECKING:
    from trt_ros.runtime.gpu.pipeline import GpuPipeline
    from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
    from trt_ros.vision.frame import Frame


LARGEST_SIDE = 16384  # Of a camera image, in pixels.
#: Options of the pipeline that are flags.
OPTIONS = (
    *('inputs', 'outputs', 'decoder', 'tiles', 'tile_overlap', 'gpu_wait', 'frames_in_flight'),
    *('contexts', 'remote_timeout', 'remote_ca_path', 'remote_token_path'),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        'model',
        type=model_argument,
        help='ONNX file, an engine, or grpc://HOST:8001/NAME of an inference server',
    )
    add_build_arguments(parser, 'onnxruntime')
    group = parser.add_argument_group('measurement')
    group.add_argument(
        '--image-size',
        type=_size,
        action='append',
        metavar='WxH',
        dest='sizes',
        help='size of the camera image; may be given several times (default: 1920x1080)',
    )
    add_flags(
        group,
        ('--encoding NAME', str, 'bgr8', 'encoding of the camera image'),
        ('--frames N', positive, 200, 'frames per measurement'),
        ('--warm-up N', positive, 20, 'frames before the measured ones'),
        (
            '--precisions P,P,..',
            comma_separated(_precision),
            (),
            'compare precisions, such as fp32,fp16,bf16: time, memory, error, power',
        ),
        ('--no-graph', 'launch each kernel separately, without a CUDA graph'),
        ('--no-transfers', 'no copies to and from the GPU: kernels read pinned memory in place'),
        (
            '--profiling',
            'record NVTX ranges for Nsight Systems: nsys profile trt-ros bench MODEL --profiling',
        ),
        ('--layers', 'measure each layer of the network, too'),
        ('--json FILE', Path, None, 'write all numbers'),
        ('--export-times FILE.csv', Path, None, 'write the times of every frame'),
    )
    more = {'default': None, 'note': ' (default: 2; with ONNX Runtime or states 1)'}
    add_option_flags(group, OPTIONS, more={'frames_in_flight': more})


def run(args: Namespace) -> int:
    """Measure, print and write the results."""
    from trt_ros.cli._bench import export_times
    from trt_ros.runtime.backends import choose_backend

    refuse_bad_arguments(args)
    is_remote = isinstance(args.model, str)
    backend, chosen = choose_backend('triton' if is_remote else args.backend)
    is_on_gpu = backend.name not in ('onnxruntime', 'triton')
    is_bundle = str(args.model).endswith(BUNDLE_SUFFIXES)
    args.frames_in_flight = in_flight(args, 2 if is_on_gpu and not is_bundle else 1)
    refuse_options(args, backend, chosen, is_on_gpu=is_on_gpu)
    with recording() if args.profiling else nullcontext() as profiler:
        if profiler:
            print(profiler)
        log_lines, results = _on_the_gpu(args) if is_on_gpu else _on_the_cpu(args)
    if args.export_times:
        export_times(args.export_times, results)
    for found in results:
        del found['times_ms']
    if args.json:
        text = json.dumps({'log': log_lines, 'results': results}, indent=1)
        write_text(args.json, text, 'Choose another file with --json.')
    return 0


def _on_the_gpu(args: Namespace) -> tuple[Sequence[str], list[dict[str, Any]]]:
    from trt_ros.cli._bench import print_gpu, print_precisions
    from trt_ros.runtime.cpu.measure import Work
    from trt_ros.runtime.gpu.measure import frames_per_second, layer_times, measure

    log_lines: list[str] = []
    results = []
    for precision in args.precisions or ('',):
        options = build_options(args)
        if precision:
            options = replace(options, precision=precision)
        whole, agreement = _open_gpu(args, options)
        # The graph of the detector of a cascade has the other network, too.
        pipeline: GpuPipeline = getattr(whole, 'detector', whole)
        with closing(whole):
            refuse_other_batch(args, pipeline.max_batch)
            whole.warm_up()
            log_lines += whole.log_lines
            print('\n'.join(whole.log_lines))
            for frame in _frames(args) if pipeline.shared.images else [None]:
                work = Work.of(pipeline, frame)
                frames_per_second(pipeline, work, args.warm_up)  # Raises the clocks.
                found = measure(pipeline, frame, rounds=args.frames)
                found['frames_in_flight'] = args.frames_in_flight
                if precision:
                    found |= {'precision': precision, 'agreement': agreement}
                if args.layers:
                    found['layers_ms'] = layer_times(pipeline, work, min(args.frames, 50))
                results.append(found)
                print_gpu(found)
    if args.precisions:
        print_precisions(results)
    return log_lines, results


def _open_gpu(args: Namespace, options: BuildOptions) -> tuple[Any, dict[str, float]]:
    """Open a network; return a pipeline, the caller's to close, and its agreement, if wanted."""
    from trt_ros.runtime.gpu.measure import frames_of
    from trt_ros.runtime.gpu.open import open_tensor_runner
    from trt_ros.runtime.pipeline import Pipeline

    network = given_options(args, TiledOptions)
    unified_memory = 'on' if args.no_transfers else 'auto'
    if network.is_cascade:
        refuse_for_cascades(args, options)
        network = replace(network, unified_memory=unified_memory)
        return Pipeline.open(network, batch=options.batch), {}
    if network.tiles:
        options = replace(options, batch=math.prod(network.tile_grid))
    runner = open_tensor_runner(
        network, options, use_graph=not args.no_graph, unified_memory=unified_memory
    )
    try:
        agreement = _agreement(args, runner) if args.precisions else {}
    except BaseException:
        runner.close()
        raise
    return frames_of(runner, runner.options, batch=options.batch), agreement


def _agreement(args: Namespace, runner: TensorRTRunner) -> dict[str, float]:
    """Return largest error and lowest cosine of all outputs against ONNX Runtime, or {}."""
    from trt_ros.model.run_inputs import image_feeds
    from trt_ros.runtime.agreement import agreements
    from trt_ros.runtime.cpu.measure import network_tensors, open_on_the_cpu

    try:
        options = replace(given_options(args, TiledOptions), backend='onnxruntime')
        with closing(open_on_the_cpu(options, 1)) as steps:
            frame = next(_frames(args)) if image_feeds(steps.feeds) else None
            tensors = network_tensors(steps, frame)
            want = steps.runner.infer(tensors)
    except TrtRosError as error:
        print(f'outputs are not compared with ONNX Runtime: {error.problem}')
        return {}
    got = runner.infer(tensors)
    found = agreements(got, {name: each for name, each in want.items() if name in got}).values()
    if not found:
        return {}
    return {
        'max_error': max(each.max_error for each in found),
        'cosine': min(each.cosine for each in found),
    }


def _on_the_cpu(args: Namespace) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """Measure a network that ONNX Runtime or a server runs."""
    options = given_options(args, TiledOptions)
    if options.is_cascade:
        from trt_ros.runtime.cascade import members_of

        detector, members = members_of(options)
        networks = [
            _of_one_network(Namespace(**{**vars(args), 'model': Path(each.model_path)}), each)
            for each in (detector, *members)
        ]
        return (
            [line for lines, _ in networks for line in lines],
            [found for _, results in networks for found in results],
        )
    return _of_one_network(args, options)


def _of_one_network(
    args: Namespace, options: PipelineOptions
) -> tuple[Sequence[str], list[dict[str, Any]]]:
    from trt_ros.cli._bench import print_cpu
    from trt_ros.model.run_inputs import image_feeds
    from trt_ros.runtime.cpu.measure import (
        Work,
        measure_steps,
        network_tensors,
        open_on_the_cpu,
        overlapped_frames_per_second,
        percentiles,
    )
    from trt_ros.runtime.cpu.onnx_runner import operator_times

    batch = build_options(args).batch
    if isinstance(options, ModelOptions):  # Of a network of regions.
        batch = options.max_regions
    results = []
    with closing(open_on_the_cpu(options, batch)) as steps:
        refuse_other_batch(args, steps.max_batch)
        log_lines = (*steps.log_lines, f'warm-up: {args.warm_up} runs')
        print('\n'.join(log_lines))
        for frame in _frames(args) if image_feeds(steps.feeds) else [None]:
            times = measure_steps(steps, frame, args.frames, args.warm_up)
            host_ms = {name: percentiles(each) for name, each in times.items()}
            found: dict[str, Any] = {
                'image': Work.of(steps, frame).description,
                'batch': steps.max_batch,
                'frames_in_flight': args.frames_in_flight,
                'frames_per_second': overlapped_frames_per_second(
                    steps, frame, args.frames, args.frames_in_flight
                )
                if args.frames_in_flight > 1
                else 1e3 * steps.max_batch / host_ms['frame']['mean'],
                'frame_times_ms': times['frame'],
                'times_ms': times,
                'host_ms': host_ms,
            }
            if args.layers:
                tensors = network_tensors(steps, frame)
                found['layers_ms'] = operator_times(args.model, tensors, min(args.frames, 50))
            results.append(found)
            print_cpu(found)
    return log_lines, results


def _frames(args: Namespace) -> Iterator[Frame]:
    import numpy as np

    from trt_ros.vision.frame import ENCODINGS, Frame

    for width, height in args.sizes or [(1920, 1080)]:
        rows = height * 3 // 2 if args.encoding in ('nv12', 'nv21') else height
        step = width * ENCODINGS[args.encoding]
        data = np.random.default_rng(0).integers(0, 256, step * rows, dtype=np.uint8)
        yield Frame(data, width, height, step, args.encoding)


def _size(text: str) -> tuple[int, int]:
    try:
        width, height = map(int, text.lower().split('x'))
    except ValueError:
        raise ArgumentTypeError(f'{text} is not WIDTHxHEIGHT') from None
    if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
        raise ArgumentTypeError(f'width and height of {text} are not 1 to {LARGEST_SIDE}')
    return width, height


def _precision(text: str) -> str:
    if text not in PRECISIONS:
        raise ArgumentTypeError(f'{text!r} is not one of {", ".join(PRECISIONS)}')
    return text
