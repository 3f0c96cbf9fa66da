"""Arguments of `trt-ros bench` that cannot be honored, and its output."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
import csv
from itertools import zip_longest
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._flags import given_options, refuse_bundle
from trt_ros.cli.build import build_options
from trt_ros.engine.options import BuildOptions, flag_of
from trt_ros.errors import ParameterError, printable
from trt_ros.regular_file import check_output_file, writing_whole
from trt_ros.runtime.options import TiledOptions, changed_options

if TYPE_CHECKING:
    from trt_ros.runtime.backends import Backend


def refuse_bad_arguments(args: Namespace) -> None:
    """:raises ParameterError: when an argument is invalid, before anything is measured."""
    from trt_ros.vision.frame import ENCODINGS

    if args.encoding not in ENCODINGS:
        raise ParameterError(
            f'The image encoding {args.encoding!r} is not supported.',
            remedy=f'Choose one of {", ".join(ENCODINGS)}.',
        )
    if args.layers:
        refuse_bundle(args.model, '--layers')
    for path in filter(None, (args.json, args.export_times)):
        check_output_file(path)
    if args.precisions and args.precision != 'auto':
        raise ParameterError(
            '--precision and --precisions cannot be combined.', remedy='Remove one of them.'
        )


def refuse_for_cascades(args: Namespace, options: BuildOptions) -> None:
    """:raises ParameterError: when an option is for one network."""
    plain = BuildOptions(
        precision=options.precision, batch=options.batch, input_size=options.input_size
    )
    if options != plain or args.no_graph or args.precisions:
        raise ParameterError(
            'An option of the engine, --no-graph or --precisions is given for a bundle of a '
            'detector and a classifier.',
            remedy='Leave it out, or give the ONNX file of one of its networks.',
        )


def refuse_options(args: Namespace, backend: Backend, chosen: str, *, is_on_gpu: bool) -> None:
    """:raises ParameterError: when an option has no effect with this backend."""
    refused = changed_options(given_options(args, TiledOptions), backend.ignores)
    if not is_on_gpu:
        options = build_options(args)
        refused += changed_options(options, vars(options).keys() - {'batch', 'input_size'})
        names = ['precisions', 'no_graph', 'no_transfers', *['layers'] * (not backend.is_local)]
        refused += [name for name in names if getattr(args, name)]
    if refused:
        flags = ', '.join(map(flag_of, dict.fromkeys(refused)))
        raise ParameterError(
            f'{flags} cannot be used with {backend.title}.',
            cause=chosen,
            remedy='Leave it out.'
            if is_on_gpu
            else 'Leave it out, or run `trt-ros doctor` to see why TensorRT is not used.'
            if backend.is_local
            else 'Leave it out: the server decides.',
        )


def in_flight(args: Namespace, default: int) -> int:
    """Return the frames in flight; raise ParameterError for several with states."""
    from trt_ros.model.bindings import parse_bindings
    from trt_ros.model.feeds import FEEDS
    from trt_ros.model.feeds.history import HISTORY

    bindings = parse_bindings(tuple(args.inputs))
    if not any(FEEDS[each.kind].has_memory or HISTORY in each.settings for each in bindings):
        return int(args.frames_in_flight or max(default, args.contexts))
    if (args.frames_in_flight or 1) > 1:
        raise ParameterError(
            f'--frames-in-flight {args.frames_in_flight} cannot be used with states.',
            cause='A run needs the states of the run before it.',
            remedy='Leave --frames-in-flight out.',
        )
    return 1


def refuse_other_batch(args: Namespace, max_batch: int) -> None:
    """:raises ParameterError: when --batch differs from what would be measured."""
    batch = build_options(args).batch
    if 'batch' in args and batch != max_batch:
        raise ParameterError(
            f'batch is {batch}, but this network runs with a batch of {max_batch}.',
            remedy='Leave --batch out, or export with a dynamic batch (build an '
            f'engine with --batch {batch}).',
        )


LAYERS = 20  # The slowest ones are printed.


def print_cpu(found: Mapping[str, Any]) -> None:
    """Print the times of ONNX Runtime."""
    in_flight = found['frames_in_flight']
    _heading(found, f' with {in_flight} in flight' if in_flight > 1 else '')
    _row('image in hand to result', found['host_ms']['frame'])
    for name, summary in found['host_ms'].items():
        if name != 'frame':
            _row(f'  {name}', summary)
    _print_layers(found)


def print_gpu(found: Mapping[str, Any]) -> None:
    """Print the times of TensorRT."""
    from trt_ros.engine.builder.advice import advise_on_layers
    from trt_ros.engine.builder.layers import EngineLayer

    _heading(found, f' with {found["frames_in_flight"]} in flight')
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
        print(f'{kind} memory (MB): {text}, total {sum(owners.values()) / 1e6:.1f}')
    print(f'device memory peak (MB): {found["memory_peak"]["total"] / 1e6:.1f}')
    for name, value in found['gpu_state'].items():
        print(f'{name}: {value or "none"}')
    if found['watts'] is not None:
        print(f'power (W): {found["watts"]:.0f}')
    _print_layers(found)
    times = found.get('layers_ms', {})
    for line in advise_on_layers([EngineLayer(name) for name in times], times=times):
        print(printable(f'advice: {line}'))


def _heading(found: Mapping[str, Any], condition: str) -> None:
    batch = f' in batches of {found["batch"]}' if found['batch'] > 1 else ''
    precision = f', {found["precision"]}' if 'precision' in found else ''
    rate = f'{found["frames_per_second"]:.0f} frames/s'
    print(f'\n{printable(found["image"])}{batch}{precision}: {rate}{condition}')
    print(f'{"µs":34}{"p50":>11}{"p90":>11}{"p99":>11}{"max":>11}')


def _row(name: str, summary: Mapping[str, float]) -> None:
    cells = ''.join(f'{summary[key] * 1e3:11.1f}' for key in ('p50', 'p90', 'p99', 'max'))
    print(f'{name:34}{cells}')


def _print_layers(found: Mapping[str, Any]) -> None:
    layers = sorted(found.get('layers_ms', {}).items(), key=lambda item: -item[1])
    for name, ms in layers[:LAYERS]:
        print(f'  {ms * 1e3:8.1f} µs  {printable(name)[:80]}')
    sys.stdout.flush()


def print_precisions(results: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per precision and image size, and which precision is the fastest."""
    for image in dict.fromkeys(found['image'] for found in results):
        rows = [found for found in results if found['image'] == image]
        print(f'\n{printable(image)}')
        print(
            f'{"precision":10}{"GPU p50 (µs)":>14}{"p99 (µs)":>10}{"frames/s":>10}'
            f'{"GPU (MB)":>10}{"max error":>11}{"cosine":>10}{"power (W)":>11}'
        )
        for found in rows:
            gpu = found['graph_ms']['gpu']
            error, watts = found['agreement'], found['watts']
            print(
                f'{found["precision"]:10}{gpu["p50"] * 1e3:14.1f}{gpu["p99"] * 1e3:10.1f}'
                f'{found["frames_per_second"]:10.0f}'
                f'{sum(found["memory"]["device"].values()) / 1e6:10.1f}'
                + (
                    f'{error["max_error"]:11.3g}{error["cosine"]:10.6f}'
                    if error
                    else f'{"?":>11}{"?":>10}'
                )
                + (f'{"?":>11}' if watts is None else f'{watts:11.0f}')
            )
        print(fastest(rows))


def fastest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one sentence on the fastest of several precisions of one network."""
    first = rows[0]
    best = min(rows, key=lambda found: found['graph_ms']['gpu']['p50'])
    if best is first:
        return f'{first["precision"]} is the fastest here.'
    factor = first['graph_ms']['gpu']['p50'] / best['graph_ms']['gpu']['p50']
    text = f'{best["precision"]} is {factor:.2f} times as fast as {first["precision"]}'
    if best['agreement']:
        text += f'; cosine similarity to ONNX Runtime {best["agreement"]["cosine"]:.6f}'
    return f'{text}.'


def export_times(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the times of every frame as CSV: one line per frame, one column per step, in ms."""
    steps = list(dict.fromkeys(step for found in results for step in found['times_ms']))
    with (
        writing_whole(path, 'Choose another file with --export-times.'),
        path.open('w', newline='', encoding='utf-8') as file,
    ):
        table = csv.writer(file)
        table.writerow(['image', 'precision', 'frame number', *(f'{step} (ms)' for step in steps)])
        for found in results:
            columns = (found['times_ms'].get(step, ()) for step in steps)
            for number, times in enumerate(zip_longest(*columns)):
                cells = ('' if ms is None else f'{ms:.4f}' for ms in times)
                table.writerow([found['image'], found.get('precision', ''), number, *cells])
