"""Engine built from an ONNX file into the engine cache."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
import json
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._flags import add_flags, add_option_flags, given_options, model_argument, number
from trt_ros.engine.options import BuildOptions, Profile, ShapeRange, flag_of
from trt_ros.errors import ParameterError, printable
from trt_ros.progress import Progress, ProgressThrottle, Reporter
from trt_ros.regular_file import writing
from trt_ros.runtime.machine_options import LEAST_BUSY
from trt_ros.runtime.options import BUNDLE_SUFFIXES, PipelineOptions

if TYPE_CHECKING:
    from trt_ros.engine.builder.parent import BuildLog


def add_arguments(parser: ArgumentParser) -> None:
    verbose = "print TensorRT's own log, or with --log extend it, with fusions and kernels"
    add_flags(parser, ('model', model_argument, None, 'model to build, or bundle of models'))
    add_build_arguments(parser)
    add_flags(
        parser,
        ('--force', 'rebuild even if cached'),
        ('--timeout SECONDS', number(float, 1), None, 'stop the build after this time'),
        ('--log FILE', Path, None, "write TensorRT's own log of the build"),
        ('--verbose', verbose),
        ('--json', 'print the result as JSON'),
    )


def add_build_arguments(parser: ArgumentParser, *other_backends: str) -> None:
    """Declare the build options, and `other_backends` that a verb can use besides TensorRT."""
    add = parser.add_argument
    add(
        '--backend',
        choices=('auto', 'tensorrt', 'tensorrt_rtx', *other_backends),
        default='auto',
        help=' or '.join(('TensorRT', *other_backends)) + ' (default: the first one that runs)'
        if other_backends
        else 'TensorRT to use (default: the first one installed)',
    )
    add_option_flags(parser, ('device', 'engine_cache_dir'))
    group = parser.add_argument_group('engine')
    group.add_argument(
        '--profile',
        action='append',
        type=parse_profile,
        dest='profiles',
        metavar='SHAPES',
        help='shapes of dynamic inputs as INPUT=MIN:OPT:MAX[,..], each like '
        '1x3x640x640; may be given several times',
    )
    add_option_flags(
        group,
        cls=BuildOptions,
        # Whether it is given matters to networks of another fixed batch.
        more={**REPEATED, 'batch': {'default': SUPPRESS}},
    )


def build_options(args: Namespace) -> BuildOptions:
    """Return the build options of the command line; raise ParameterError if one is invalid."""
    return given_options(args, BuildOptions)


def run(args: Namespace) -> int:
    """Build the engine, or find it in the cache, and print its properties."""
    from trt_ros.runtime.gpu.profile import with_published_size

    options = build_options(args)
    with _build_log(args) as build_log:

        def build(path: Path, own: BuildOptions) -> dict[str, Any]:
            return _build(args, path, with_published_size(own, path) or own, build_log)

        if args.model.suffix not in BUNDLE_SUFFIXES:
            found = build(args.model, options)
        else:
            members = _members(args.model, options)
            found = {name: build(path, own) for name, path, own in members}
    if args.json:
        print(json.dumps(found, indent=1))
    return 0


def _members(path: Path, options: BuildOptions) -> Iterator[tuple[str, Path, BuildOptions]]:
    """Yield name, file and options of each network of a bundle."""
    from trt_ros.model.leapp import read_bundle
    from trt_ros.runtime.cascade import members_of
    from trt_ros.runtime.gpu.profile import build_options_of, build_options_of_member

    bundle = read_bundle(path)
    if bundle.region_options is None:
        for name, file in bundle.networks.items():
            yield name, file.path, build_options_of_member(options, file)
        return
    detector, *regions = bundle.networks.values()
    yield detector.name, detector.path, options
    _, members = members_of(PipelineOptions(model_path=str(path), precision=options.precision))
    for file, member in zip(regions, members):
        own = build_options_of(member, member.max_regions)
        size, precision = own.input_size, own.precision
        batch = replace(
            options, batch=own.batch, input_size=size, precision=precision, cut_nms=False
        )
        yield file.name, file.path, batch


def _build(
    args: Namespace, onnx: Path, options: BuildOptions, build_log: BuildLog | None
) -> dict[str, Any]:
    from trt_ros.driver import nvidia_driver
    from trt_ros.engine.cache import EngineCache
    from trt_ros.engine.open import build_summary, check_precision
    from trt_ros.trt import load_trt

    device = args.device
    if device == LEAST_BUSY:
        from trt_ros.runtime.gpu.open import reserved_device

        with reserved_device(device) as (device, _):
            pass
    with Bar() as bar:
        entry = EngineCache(args.engine_cache_dir).get_or_build(
            onnx,
            options,
            load_trt(args.backend),
            device=device,
            report=Reporter(bar),
            timeout_seconds=args.timeout,
            force=args.force,
            build_log=build_log,
        )
    if nvidia_driver().gpus and not {*options.compute_capabilities} - {'current'}:
        check_precision(entry.sidecar, device)  # For this machine, where loading it would fail.
    if build_log and not entry.build_reason:
        print('nothing was built, so TensorRT logged nothing: add --force', file=sys.stderr)
    found = {
        'engine': str(entry.path),
        'built': bool(entry.build_reason),
        'why': entry.build_reason,
        **entry.sidecar,
    }
    if args.json:
        return found
    seconds = entry.sidecar['build_seconds']
    how = 'from the cache'
    if entry.build_reason:
        how = f'built in {seconds:.1f} s, reason: {entry.build_reason}'
    for line in (
        f'{how}, {entry.sidecar["plan_nbytes"] / 2**20:.1f} MiB',
        *build_summary(entry.sidecar),
        *entry.sidecar['parser_warnings'],
    ):
        print(printable(line), file=sys.stderr)
    print(entry.path)
    return found


@contextmanager
def _build_log(args: Namespace) -> Iterator[BuildLog | None]:
    """Open the file of TensorRT's own log, if one is wanted, or raise ParameterError."""
    from trt_ros.engine.builder.parent import BuildLog

    if not args.log:
        with open(os.dup(2), 'wb', buffering=0) as stderr:
            yield BuildLog(stderr, verbose=True) if args.verbose else None
        return
    with writing(args.log, 'Set the path of a file in a writable folder.'):
        file = args.log.open('wb', buffering=0)
    with file:
        yield BuildLog(file, args.verbose)


class Bar:
    """Shows progress on stderr: a bar where somebody watches, else a line now and then."""

    def __init__(self) -> None:
        self._watched = sys.stderr.isatty()
        self._is_due = ProgressThrottle()
        self._bar: Any = None

    def __enter__(self) -> Bar:
        if self._watched:
            from tqdm import tqdm

            self._bar = tqdm(
                total=100,
                leave=False,
                file=sys.stderr,
                bar_format='{desc} {bar} {n:.0f} % {elapsed}{postfix}',
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, progress: Progress) -> None:
        """Show a phase and its progress."""
        if self._bar is not None:
            self._bar.set_description_str(printable(progress.phase)[:40], refresh=False)
            self._bar.n = progress.percent or 0
            left = progress.remaining_seconds
            self._bar.set_postfix_str('' if left is None else f'{left:.0f} s left', refresh=False)
            self._bar.refresh()
        elif self._is_due(progress):
            print(printable(str(progress)), file=sys.stderr)


REPEATED: Mapping[str, Mapping[str, Any]] = {
    name: {
        'flags': [flag_of(name)],
        'action': 'append',
        'default': None,
        'type': str,
        'metavar': metavar,
        'note': '; may be given several times',
    }
    for name, metavar in (
        ('fp32', 'NODE|OP'),
        ('tactics', 'KEY=TACTIC'),
        ('plugins', 'FILE'),
        ('compute_capabilities', 'CC'),
    )
}


def parse_profile(text: str) -> Profile:
    """Read 'x=1x3x8x8:1x3x8x8:4x3x8x8,y=..'."""
    ranges = []
    for part in text.split(','):
        name, _, shapes = part.rpartition('=')
        try:
            low, best, high = (
                tuple(map(int, shape.split('x')))
                for shape in (shapes.split(':') if ':' in shapes else [shapes] * 3)
            )
            ranges.append(ShapeRange(name, low, best, high))
        except ParameterError as error:
            raise ArgumentTypeError(str(error)) from error
        except ValueError as error:
            raise ArgumentTypeError(
                f'{text!r} is not INPUT=MIN:OPT:MAX, each like 1x3x640x640'
            ) from error
        if not name:
            raise ArgumentTypeError(f'{text!r} names no input: give INPUT=MIN:OPT:MAX')
    return tuple(ranges)
