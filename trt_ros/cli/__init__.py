"""
Command line: `trt-ros VERB`, `python -m trt_ros VERB`.

Each module of this folder is a verb. Its docstring is the verb's help, `add_arguments(parser)`
declares its flags, `run(args)` runs it and returns the exit code. Heavy modules are imported
within `run`.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
import errno
from importlib import import_module
from io import TextIOWrapper
import os
from pathlib import Path
import pkgutil
import signal
import sys
import threading
from types import FrameType
from typing import Any

from trt_ros.errors import DISK_FULL, TrtRosError, file_error
from trt_ros.regular_file import FILE_SCHEMES

#: Flags under the names of the last release; each new one is named as the parameter of the nodes.
RENAMED = {
    '--cache-dir': '--engine-cache-dir',
    '--slots': '--frames-in-flight',
    '--wait': '--gpu-wait',
}
#: Names of tasks, which the verb `infer` recognizes by itself.
TASKS = ('detect', 'segment', 'classify', 'pose', 'depth')


class _VerbParser(argparse.ArgumentParser):
    """A parser that takes files before, between and after the flags."""

    _is_intermixed = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; only if that leaves arguments, take files anywhere."""
        args = [self._renamed(each) for each in args]
        found, left = super().parse_known_args(args, namespace)
        if not left or self._is_intermixed:
            return found, left
        self._is_intermixed = True  # The next call comes back to this one.
        try:
            return self.parse_known_intermixed_args(args)
        finally:
            self._is_intermixed = False

    def _renamed(self, argument: str) -> str:
        old, separator, value = argument.partition('=')
        new = RENAMED.get(old)
        if new is None or new not in self._option_string_actions:
            return argument
        print(f'trt-ros: {old} is now {new}, and will be removed.', file=sys.stderr)
        return new + separator + value


def verbs() -> list[str]:
    """Return the verbs: modules of this folder without a leading '_', with '-' for '_'."""
    return [
        module.name.replace('_', '-')
        for module in pkgutil.iter_modules(__path__)
        if not module.name.startswith('_')
    ]


def make_parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with these verbs."""
    parser = argparse.ArgumentParser(
        prog='trt-ros', description='Neural networks with TensorRT, for ROS 2.'
    )
    add_verbs(parser, names)
    return parser


def add_verbs(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add verbs to a parser, each with its help and flags."""
    subparsers = parser.add_subparsers(
        metavar='VERB', dest='verb', required=True, parser_class=_VerbParser
    )
    for name in names:
        module = import_module(f'{__name__}.{name.replace("-", "_")}')
        text = (module.__doc__ or '').strip()
        subparser = subparsers.add_parser(
            name,
            help=text.partition('\n')[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """
    Raise KeyboardInterrupt on SIGINT, and SystemExit on SIGTERM and SIGHUP (closed terminal).

    Files are then closed. An import ends first: NumPy takes any exception for its own damaged
    installation, and other libraries drop it.
    """

    def end(number: int, frame: FrameType | None) -> None:
        ended = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
        importing = _importing(frame)
        if importing is None:
            raise ended
        traced_by = sys.gettrace()  # A debugger, or coverage.

        def stop(*_: object) -> None:
            sys.settrace(traced_by)
            raise ended

        importing.f_trace, importing.f_trace_opcodes = stop, True
        sys.settrace(lambda *_: None)  # Python calls f_trace only with a global function.

    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(number)) in (signal.SIG_DFL, signal.default_int_handler)
        and threading.current_thread() is threading.main_thread()
    }
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _importing(frame: FrameType | None) -> FrameType | None:
    """Return the frame of a verb, or of this module, whose import has called `frame`."""
    found = None
    while frame is not None and frame.f_code.co_filename != __file__:
        if frame.f_code.co_filename.startswith('<frozen importlib'):
            found = frame.f_back
        frame = frame.f_back
    return found


@_ended_in_order()
def main(argv: Sequence[str] | None = None) -> int:
    """
    Run one verb.

    :returns: the exit code: that of the verb (0 for success), 1 for a TrtRosError, 130 when
        interrupted, 141 when the reader of the output has closed it.
    :raises SystemExit: from argparse: 2 for wrong usage, 0 for --help.
    """
    _escape_unencodable()
    argv = sys.argv[1:] if argv is None else argv
    known = verbs()
    if argv and argv[0] in TASKS:
        print(f'trt-ros: infer runs networks of every task, also for {argv[0]}.', file=sys.stderr)
        argv = ['infer', *argv[1:]]
    try:
        # A known verb is loaded alone: the others add no time and cannot break it.
        args = make_parser([argv[0]] if argv and argv[0] in known else known).parse_args(argv)
    except KeyboardInterrupt:
        return 130
    return run(args)


def _escape_unencodable() -> None:
    """Escape characters that the terminal's encoding lacks, which would raise otherwise."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')


@_ended_in_order()
def run(args: argparse.Namespace) -> int:
    """Run the parsed verb and return its exit code; see `main`."""
    _escape_unencodable()
    try:
        _download_models(args)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except TrtRosError as error:
        print(f'trt-ros {args.verb}: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno in (errno.EPIPE, *DISK_FULL):
            # Python flushes the buffer at exit, which would raise again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return 141
        expected = file_error(error)
        if expected is None:
            raise
        print(f'trt-ros {args.verb}: {expected}', file=sys.stderr)
        return 1


def _download_models(args: argparse.Namespace) -> None:
    """Replace the address of a model by the path of its download."""
    for name in ('model', 'model_path'):
        address = getattr(args, name, None)
        if isinstance(address, str) and address.startswith(FILE_SCHEMES):
            from trt_ros.cli.build import Bar
            from trt_ros.engine.download import local_model
            from trt_ros.progress import Reporter

            with Bar() as bar:
                path = local_model(address, Reporter(bar), getattr(args, 'engine_cache_dir', ''))
            setattr(args, name, path if name == 'model_path' else Path(path))
