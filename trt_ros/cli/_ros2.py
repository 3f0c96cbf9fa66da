"""The verbs as `ros2 trt VERB`: a command extension of ros2cli, which needs no import of it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace


class TrtCommand:
    """Neural networks with TensorRT: build, inspect, detect and more."""

    NAME = 'trt'

    def add_arguments(self, parser: ArgumentParser, cli_name: str) -> None:
        """Called by ros2cli with the parser of `ros2 trt`."""
        from trt_ros.cli import add_verbs, verbs

        add_verbs(parser, verbs())

    def main(self, *, parser: ArgumentParser, args: Namespace) -> int:
        """Called by ros2cli; gives the exit code."""
        from trt_ros.cli import run

        return run(args)
