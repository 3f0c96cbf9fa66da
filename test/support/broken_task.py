"""A recording whose labelling raises an error that nobody foresaw, in whatever process."""

from dataclasses import dataclass

from trt_ros.labelling.task import LabelTask


@dataclass(frozen=True)
class BrokenTask(LabelTask):
    """A task that raises ZeroDivisionError."""

    def check_outputs(self, topics):
        raise ZeroDivisionError('as of a bug')
