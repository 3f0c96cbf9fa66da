"""Command extension of ros2cli, `ros2 trt VERB`; does not import ros2cli."""

from argparse import ArgumentParser, Namespace


class TrtCommand:
    """Neural networks with TensorRT: build, inspect, detect and more."""

    NAME = 'trt'

    def add_arguments(self, parser: ArgumentParser, cli_name: str) -> None:
        """Add the verbs to the parser of `ros2 trt`; ros2cli calls this."""
        from trt_ros.cli import add_verbs, verbs

        add_verbs(parser, verbs())

    def main(self, *, parser: ArgumentParser, args: Namespace) -> int:
        """Run the parsed verb and return its exit code; ros2cli calls this."""
        from trt_ros.cli import run

        return run(args)
