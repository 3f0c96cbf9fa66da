"""Recordings whose labelling raises an error that nobody foresaw, or ends its process."""

from dataclasses import dataclass
import os
import signal

from trt_ros.labelling.task import LabelTask


@dataclass(frozen=True)
class BrokenTask(LabelTask):
    """A task that raises ZeroDivisionError."""

    def check_outputs(self, topics):
        raise ZeroDivisionError('as of a bug')


class FatalTask(LabelTask):
    """A task that ends the process of each of its attempts in a cluster."""

    def again(self):
        os.kill(os.getpid(), signal.SIGKILL)
