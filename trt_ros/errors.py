"""Every error of trt_ros: the problem, its cause, the remedy."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape lone surrogates, as which Python keeps the bytes of a name that is not UTF-8."""
    return text.encode(errors='backslashreplace').decode()


class TrtRosError(Exception):
    """
    Something the user can act on; printed without a traceback.

    :param problem: what went wrong, one sentence.
    :param cause: why, where it is known.
    :param remedy: what to do about it, where there is something to do.
    """

    def __init__(self, problem: str, *, cause: str = '', remedy: str = '') -> None:
        # ROS's log and most terminals raise on a file name that is not UTF-8.
        problem, cause, remedy = map(printable, (problem, cause, remedy))
        self.problem, self.cause, self.remedy = problem, cause, remedy
        parts = [problem, cause and f'Cause: {cause}', remedy and f'Remedy: {remedy}']
        super().__init__('\n'.join(filter(None, parts)))


class ParameterError(TrtRosError):
    """A parameter or option that cannot be honoured."""


class ModelError(TrtRosError):
    """A model file that cannot be read, or is not what it should be."""


class TensorMismatchError(TrtRosError):
    """A tensor, or a network's inputs and outputs, of another shape or dtype than expected."""


class ScoreRangeError(TensorMismatchError):
    """
    Numbers that are read as scores and are none.

    :param score: the one that is farthest from 0 to 1.
    """

    kind = 'scores outside 0 to 1'

    def __init__(self, score: float) -> None:
        super().__init__(
            f'The network gives a score of {score:.6g}, scores are 0 to 1.',
            cause='Its outputs are not those of this decoder, or the export lacks the sigmoid or '
            'softmax of the scores.',
            remedy='Set `decoder` to the family of the network, or export it with the sigmoid or '
            'softmax. The node `tensor` publishes the outputs of any network.',
        )


class BackendError(TrtRosError):
    """An inference library that is missing, broken, or of the wrong version."""


class TimeLimitError(BackendError):
    """Work in a child process that took longer than allowed."""


class MemoryLimitError(ModelError):
    """A model whose loading, running or building takes more memory than allowed."""


class GpuFailedError(TrtRosError):
    """The GPU, its driver or this process's use of it failed: nothing opened there works again."""


class ClosedError(TrtRosError):
    """Use after close()."""

    def __init__(self, what: str) -> None:
        super().__init__(f'{what} is closed.', remedy='Open a new one.')


class BadFrameError(TrtRosError):
    """
    An image that cannot be used; the node drops it, counts it by `kind` and goes on.

    :param kind: a few words that never hold a number, so that drops are counted by cause.
    """

    def __init__(self, kind: str, problem: str, *, cause: str = '', remedy: str = '') -> None:
        super().__init__(problem, cause=cause, remedy=remedy)
        self.kind = kind
