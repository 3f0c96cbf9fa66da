"""
Latency and throughput of frames, from image in hand to result.

Like trtexec, with preprocessing, copies and decoding. Where TensorRT cannot run, ONNX Runtime on
the CPU is measured.
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._arguments import model_argument, positive
from trt_ros.cli._option_flags import add_option_flags
from trt_ros.cli.build import add_build_arguments, build_options
from trt_ros.engine.options import BuildOptions
from trt_ros.runtime.options import PipelineOptions

if TYPE_CHECKING:
    import numpy as np

    from trt_ros.runtime.backends import Backend
    from trt_ros.vision.frame import Frame


#: Options of the pipeline that are flags.
OPTIONS = ('inputs', 'outputs', 'remote_timeout', 'remote_ca_path', 'remote_token_path')


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        'model',
        type=model_argument,
        help='ONNX file, an engine, or grpc://HOST:8001/NAME of an inference server',
    )
    add_build_arguments(parser)
    group = parser.add_argument_group('measurement')
    add = group.add_argument
    add(
        '--image-size',
        type=_size,
        action='append',
        metavar='WxH',
        dest='sizes',
        help='size of the camera image; may be given several times (default: 1920x1080)',
    )
    add('--encoding', default='bgr8', help='encoding of the camera image (default: bgr8)')
    add(
        '--frames',
        type=positive,
        default=200,
        metavar='N',
        help='frames per measurement (default: 200)',
    )
    add('--slots', type=positive, metavar='N', help='frames or batches in flight (default: 2)')
    add(
        '--no-graph',
        action='store_true',
        help='launch each kernel separately, without a CUDA graph',
    )
    add(
        '--no-transfers',
        action='store_true',
        help='no copies to and from the GPU: kernels read pinned memory in place',
    )
    add_option_flags(group, OPTIONS)
    add('--layers', action='store_true', help='measure each layer of the network, too')
    add('--json', type=Path, metavar='FILE', help='write all numbers')
    add('--plot', type=Path, metavar='FILE.png', help='plot the latency of each frame')


def run(args: Namespace) -> int:
    """Measure, print and write the results."""
    import numpy as np

    from trt_ros.errors import ParameterError
    from trt_ros.media import check_picture_path
    from trt_ros.runtime.backends import choose_backend
    from trt_ros.vision.frame import ENCODINGS

    if args.encoding not in ENCODINGS:
        raise ParameterError(
            f'The image encoding {args.encoding!r} is not supported.',
            remedy=f'Choose one of {", ".join(ENCODINGS)}.',
        )
    if args.plot:
        check_picture_path(args.plot)
    if args.json and not args.json.parent.is_dir():
        raise ParameterError(
            f'The file {args.json} cannot be written.',
            cause=f'The folder {args.json.parent} does not exist.',
            remedy='Create the folder, or use another one.',
        )
    is_remote = isinstance(args.model, str)
    backend, chosen = choose_backend('triton' if is_remote else args.backend)
    log_lines, results = (
        _on_the_cpu(args, backend, chosen)
        if backend.name in ('onnxruntime', 'triton')
        else _on_the_gpu(args)
    )
    if args.json:
        args.json.write_text(json.dumps({'log': log_lines, 'results': results}, indent=1))
    if args.plot:
        _plot(args.plot, {found['image']: np.array(found['frame_times_ms']) for found in results})
    return 0


def _on_the_gpu(args: Namespace) -> tuple[Sequence[str], list[dict[str, Any]]]:
    from trt_ros.runtime.gpu.graph_options import GraphOptions
    from trt_ros.runtime.gpu.measure import Work, layer_times, measure
    from trt_ros.runtime.gpu.open import open_frames

    pipeline = open_frames(
        args.model,
        build_options(args),
        GraphOptions(
            device=args.device,
            slots=args.slots or 2,
            use_graph=not args.no_graph,
            unified_memory='on' if args.no_transfers else 'auto',
        ),
        backend=args.backend,
        cache_dir=args.cache_dir,
        options=_options(args),
    )
    results = []
    try:
        _refuse_other_batch(args, pipeline.max_batch)
        pipeline.warm_up()
        log_lines = pipeline.log_lines
        print('\n'.join(log_lines))
        for frame in _frames(args) if pipeline.shared.images else [None]:
            found = measure(pipeline, frame, rounds=args.frames)
            if args.layers:
                work = Work.of(pipeline, frame)
                found['layers_ms'] = layer_times(pipeline, work, min(args.frames, 50))
            results.append(found)
            _print(found)
    finally:
        pipeline.close()
    return log_lines, results


def _on_the_cpu(
    args: Namespace, backend: Backend, chosen: str
) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """Measure a network that ONNX Runtime or a server runs."""
    from trt_ros.errors import ParameterError
    from trt_ros.runtime.cpu.measure import Summary, measure_steps, open_on_the_cpu
    from trt_ros.runtime.feeds import description, image_feeds, measured_inputs, split_inputs

    options, plain = build_options(args), BuildOptions()
    refused = [
        name
        for name, value in vars(options).items()
        if value != getattr(plain, name) and name not in ('batch', 'input_size')
    ]
    refused += [
        name for name in ('slots', 'no_graph', 'no_transfers', 'layers') if getattr(args, name)
    ]
    if refused:
        flags = ', '.join(f'--{name.replace("_", "-")}' for name in refused)
        raise ParameterError(
            f'{flags} cannot be used with {backend.title}.',
            cause=chosen,
            remedy='Leave it out, or run `trt-ros doctor` to see why TensorRT is not used.'
            if backend.is_local
            else 'Leave it out: the server decides.',
        )
    steps, lines = open_on_the_cpu(replace(_options(args), backend=backend.name), options.batch)
    results = []
    try:
        _refuse_other_batch(args, steps.max_batch)
        log_lines = (chosen, *lines)
        print('\n'.join(log_lines))
        for frame in _frames(args) if image_feeds(steps.feeds) else [None]:
            times = measure_steps(steps, frame, args.frames)
            host_ms = {name: vars(Summary.of(each)) for name, each in times.items()}
            found: dict[str, Any] = {
                'image': description(
                    *split_inputs(steps.feeds, measured_inputs(steps.feeds, frame))
                ),
                'batch': steps.max_batch,
                'frames_per_second': 1e3 * steps.max_batch / host_ms['frame']['mean'],
                'frame_times_ms': times['frame'],
                'host_ms': host_ms,
            }
            results.append(found)
            _heading(found)
            _row('image in hand to result', host_ms['frame'])
            for name in ('preprocess', 'network', 'decode'):
                _row(f'  {name}', host_ms[name])
    finally:
        steps.close()
    return log_lines, results


def _options(args: Namespace) -> PipelineOptions:
    return PipelineOptions(
        model_path=str(args.model),
        input_size=build_options(args).input_size,
        **{name: getattr(args, name) for name in OPTIONS},
    )


def _refuse_other_batch(args: Namespace, max_batch: int) -> None:
    """:raises ParameterError: when --batch differs from what would be measured."""
    from trt_ros.errors import ParameterError

    batch = build_options(args).batch
    if 'batch' in args and batch != max_batch:
        raise ParameterError(
            f'batch is {batch}, but this network runs with a batch of {max_batch}.',
            remedy='Leave --batch out, or export with a dynamic batch (build an '
            f'engine with --batch {batch}).',
        )


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
    return width, height


def _heading(found: dict[str, Any], condition: str = '') -> None:
    batch = f' in batches of {found["batch"]}' if found['batch'] > 1 else ''
    print(f'\n{found["image"]}{batch}: {found["frames_per_second"]:.0f} frames/s{condition}')
    print(f'{"µs":34}{"p50":>9}{"p90":>9}{"p99":>9}{"max":>9}')


def _row(name: str, summary: dict[str, float]) -> None:
    cells = ''.join(f'{summary[key] * 1e3:9.1f}' for key in ('p50', 'p90', 'p99', 'max'))
    print(f'{name:34}{cells}')


def _print(found: dict[str, Any]) -> None:
    _heading(found, ' with all slots in flight')
    for name, summary in found['stages_ms'].items():
        _row(f'GPU, separate steps: {name}', summary)
    _row('GPU, all steps', found['graph_ms']['gpu'])
    _row('wall, launch to result', found['graph_ms']['wall'])
    _row('  without GPU', found['wall_minus_gpu_ms'])
    _row('wall, image in hand to result', found['host_ms']['frame'])
    _row('  copy of the image in', found['host_ms']['bring in'])
    _row('one plain copy of the image', found['host_ms']['plain copy'])
    for kind, owners in found['memory'].items():
        text = ', '.join(f'{owner} {nbytes / 1e6:.1f}' for owner, nbytes in owners.items())
        print(f'{kind} memory (MB): {text}')
    for name, ms in sorted(found.get('layers_ms', {}).items(), key=lambda item: -item[1])[:20]:
        print(f'  {ms * 1e3:8.1f} µs  {name[:80]}')
    sys.stdout.flush()


def _plot(path: Path, series: dict[str, np.ndarray]) -> None:
    """Plot the latency of each frame, one panel per image size, with median and p99."""
    import cv2
    import numpy as np

    from trt_ros.media import write_picture

    width, height, margin = 900, 260, 60
    picture = np.full((height * len(series), width, 3), 255, np.uint8)
    for number, (title, times) in enumerate(series.items()):
        top = number * height
        top_value = max(float(times.max()), 1e-6) * 1.1
        x = np.linspace(margin, width - margin, len(times))
        y = top + height - margin - times / top_value * (height - 2 * margin)
        points = np.stack([x, y], axis=1).round().astype(np.int32)
        cv2.polylines(picture, [points.reshape(-1, 1, 2)], False, (180, 100, 30), 1, cv2.LINE_AA)
        p50, p99 = np.percentile(times, [50, 99])
        for value, name in ((p50, 'p50'), (p99, 'p99')):
            at = round(top + height - margin - value / top_value * (height - 2 * margin))
            cv2.line(picture, (margin, at), (width - margin, at), (160, 160, 160), 1)
            cv2.putText(
                picture,
                f'{name} {value * 1e3:.0f} us',
                (width - margin - 120, at - 4),
                cv2.FONT_HERSHEY_SIMPLEX,
                0.4,
                (60, 60, 60),
                1,
                cv2.LINE_AA,
            )
        cv2.putText(
            picture,
            f'{title}: image in hand to result, {len(times)} frames',
            (margin, top + 30),
            cv2.FONT_HERSHEY_SIMPLEX,
            0.5,
            (0, 0, 0),
            1,
            cv2.LINE_AA,
        )
    write_picture(path, picture)
