"""Properties of an ONNX file or an engine, without a GPU."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from trt_ros.cli._flags import add_flags, model_argument


def add_arguments(parser: ArgumentParser) -> None:
    model = 'ONNX file, engine or bundle; of a folder of ONNX files, a bundle is proposed'
    layers = (
        'list the layers of an engine with types, formats, kernels and memory, or the operators '
        'of a model'
    )
    add_flags(
        parser,
        ('model', model_argument, None, model),
        ('--layers', layers),
        ('--picture FILE.svg', Path, None, 'draw the networks of a bundle'),
        ('--json', 'print everything as JSON'),
    )


def run(args: Namespace) -> int:
    """Print the properties of the file."""
    from trt_ros.cli._inspect import inspect

    return inspect(args)
