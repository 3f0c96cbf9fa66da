"""
Export of a network to ONNX, by the library that made it.

SOURCE is a checkpoint of Ultralytics (yolo11n.pt), torchvision:NAME, rfdetr:CLASS,
transformers:MODEL, or the folder of a checkpoint of transformers or of a policy of LeRobot.
"""

from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
import json
from pathlib import Path
import shlex
import subprocess
import sys

from trt_ros.cli._flags import add_flags, image_size, refuse_without_effect
from trt_ros.errors import ModelError, ParameterError

#: Command that exports with a library, where it is installed.
COMMANDS = {
    'ultralytics': 'yolo export model={} format=onnx',
    'torchvision': 'trt-ros export torchvision:{}',
    'rfdetr': 'trt-ros export rfdetr:{}',
    'transformers': 'optimum-cli export onnx --model {} out',
    'lerobot': 'python -m trt_ros.exporting.lerobot {}',
}


def add_arguments(parser: ArgumentParser) -> None:
    add_flags(
        parser,
        ('source SOURCE', str, None, 'network to export'),
        ('--output FILE.onnx', Path, None, 'file to write'),
        ('--input-size HxW', image_size, (), 'size of the input'),
    )
    parser.add_argument(
        'options', nargs='*', metavar='-- OPTIONS', help='further options of an export of LeRobot'
    )


def run(args: Namespace) -> int:
    """Export the network in a process of its own, and print the path of the file."""
    library, source = library_of(args.source)
    is_lerobot = library == 'lerobot'
    refuse_without_effect(
        ('--input-size', args.input_size, not is_lerobot, 'another library than LeRobot'),
        ('-- OPTIONS', args.options, is_lerobot, 'LeRobot'),
    )
    if library == 'rfdetr' and len(set(args.input_size)) > 1:
        raise ParameterError(
            f'--input-size is {"x".join(map(str, args.input_size))}, but the networks of rfdetr '
            'take squares.',
            remedy=f'Set it to {args.input_size[0]}.',
        )
    if find_spec(library) is None:
        raise ParameterError(
            f'{library} is not installed, which exports {args.source}.',
            cause=f'The Python is {sys.executable}.',
            remedy=f'pip install {library}; or run, where it is: '
            + COMMANDS[library].format(shlex.quote(source)),
        )
    if is_lerobot:
        command = ['trt_ros.exporting.lerobot', source, *args.options]
        command += ['--output', str(args.output)] if args.output else []
    else:
        output = args.output or Path(Path(source).name).with_suffix('.onnx')
        size = map(str, args.input_size)
        command = ['trt_ros.exporting.libraries', library, source, str(output), *size]
    done = subprocess.run([sys.executable, '-m', *command], stdout=sys.stderr)
    if done.returncode:
        raise ModelError(
            f'{library} cannot export {args.source}.',
            cause=f'Its process ended with exit code {done.returncode}; its output is above.',
            remedy='Check the source; or export it as docs/models.md describes.',
        )
    if not is_lerobot:
        print(output)
    return 0


def library_of(source: str) -> tuple[str, str]:
    """Return the library that exports a network, and its name for that, or raise ModelError."""
    from trt_ros.engine.builder.model_file import check_model_file

    library, _, name = source.partition(':')
    if name and library in ('torchvision', 'rfdetr', 'transformers'):
        return library, name
    path = Path(source)
    if (path / 'config.json').is_file():
        is_policy = 'type' in json.loads((path / 'config.json').read_text())
        return 'lerobot' if is_policy else 'transformers', source
    if path.suffix == '.pt' and not path.exists():
        return 'ultralytics', source
    try:
        check_model_file(path)
    except ModelError as error:
        if 'yolo export' in error.remedy and path.suffix == '.pt':
            return 'ultralytics', source
        raise
    raise ModelError(
        f'{source} is no network of a library that trt-ros exports.',
        remedy='Give one of the sources that trt-ros export --help lists, or an ONNX file to the '
        'other verbs.',
    )
