"""Exceptions of trt_ros, each with problem, cause and remedy."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
import errno
import re
from typing import Any

# Control characters, which terminals obey; line separators; invisible characters, and those that
# reorder others; lone surrogates, which stand for the bytes of a file name that is not UTF-8.
_UNSAFE = re.compile(
    '[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb'
    '\ud800-\udfff]'
)
MAX_CHARACTERS, MAX_WORD_CHARACTERS = 4000, 400
_LONG_WORD = re.compile(rf'\S{{{MAX_WORD_CHARACTERS + 1},}}')


def printable(text: str, *, lines: bool = False) -> str:
    """
    Escape and shorten text that comes from outside, for terminals, logs and messages.

    Control and invisible characters become escape sequences, as in a Python string. Long words,
    such as names, and long texts lose their middle.

    :param lines: whether line breaks and tabs stay.
    """
    kept = '\n\t' if lines else ''
    escaped = _UNSAFE.sub(
        lambda found: found[0] if found[0] in kept else ascii(found[0])[1:-1], _shortened(text)
    )
    return _shortened(escaped)


def counted(count: int, noun: str) -> str:
    """
    Return a number and its noun.

    >>> counted(1, 'class name'), counted(2, 'class')
    ('1 class name', '2 classes')
    """
    ending = '' if count == 1 else 'es' if noun.endswith('s') else 's'
    return f'{count} {noun}{ending}'


def meant(name: str, known: Iterable[str]) -> str:
    """Return a 'Did you mean' hint with the nearest known names, in any case; '' without any."""
    known = dict.fromkeys(known)
    close = similar(name, known)
    if not close and len(name) > 2:
        close = [each for each in known if name.lower() in each.lower()][:3]
    return f'Did you mean {" or ".join(map(repr, close))}? ' if close else ''


def similar(name: str, known: Iterable[str], likeness: float = 0.6) -> list[str]:
    """Return up to three known names that are like another one, in any case; the best first."""
    from difflib import get_close_matches  # Not needed to print --help.

    lower: dict[str, list[str]] = {}
    for each in known:
        lower.setdefault(each.lower(), []).append(each)
    found = get_close_matches(name.lower(), lower, 3, likeness)
    return [each for key in found for each in lower[key]][:3]


def _shortened(text: str) -> str:
    words = _LONG_WORD.sub(
        lambda found: _without_middle(found[0], MAX_WORD_CHARACTERS, '...'), text
    )
    return _without_middle(words, MAX_CHARACTERS, ' ... ')


def _without_middle(text: str, size: int, gap: str) -> str:
    end = size // 4
    return text if len(text) <= size else text[: size - end - len(gap)] + gap + text[-end:]


class TrtRosError(Exception):
    """
    An error that the user can act on; printed without a traceback.

    :param problem: the failure with the offending value, one sentence.
    :param cause: the reason, if known.
    :param remedy: the action that solves it, an imperative; empty if there is none.
    """

    def __init__(self, problem: str, *, cause: str = '', remedy: str = '') -> None:
        problem, cause, remedy = (printable(part, lines=True) for part in (problem, cause, remedy))
        self.problem, self.cause, self.remedy = problem, cause, remedy
        parts = [problem, cause and f'Cause: {cause}', remedy and f'Remedy: {remedy}']
        super().__init__('\n'.join(filter(None, parts)))

    def __reduce__(self) -> tuple[Any, ...]:
        # Their own arguments are those of Exception: errors also go from process to process.
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[TrtRosError], args: tuple[str, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def problem_of(error: BaseException) -> str:
    """Return an error in one line: the problem of a TrtRosError, the repr of others."""
    return error.problem if isinstance(error, TrtRosError) else repr(error)


def log_text(error: BaseException) -> str:
    """Return an error as log text: the message of a TrtRosError, the traceback of others."""
    import traceback  # Not needed to print --help.

    if isinstance(error, TrtRosError):
        return str(error)
    return printable(''.join(traceback.format_exception(error)).rstrip(), lines=True)


class ParameterError(TrtRosError):
    """A parameter or option that cannot be honored."""


DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_PATHS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)


def file_error(error: BaseException) -> ParameterError | None:
    """Return an OSError of a path, its permissions or its disk as an error; None for others."""
    if not isinstance(error, OSError):
        return None
    if error.errno not in ((*DISK_FULL, *_OF_PATHS) if error.filename else DISK_FULL):
        return None
    return ParameterError(
        f'{error.filename or "A file"} cannot be read or written.',
        cause=error.strerror or str(error),
        remedy='Correct the path or its permissions, or free space on the disk.',
    )


@contextmanager
def requires(
    package: str, user: str, remedy: str, kind: Callable[..., TrtRosError] = ParameterError
) -> Iterator[None]:
    """Raise a failed import of an optional package as an error that names its user."""
    try:
        yield
    except ImportError as error:
        raise kind(
            f'{user} needs {package}, which cannot be imported.', cause=str(error), remedy=remedy
        ) from error


class ModelError(TrtRosError):
    """A model file that cannot be read, is damaged or is not supported."""

    kind = 'network error'  # The key under which nodes count dropped frames.


class TensorMismatchError(TrtRosError):
    """A tensor, network input or network output of unexpected shape or dtype."""

    kind = 'wrong tensor'  # The key under which nodes count dropped frames.


class CapacityError(TensorMismatchError):
    """An array that is larger than the capacity of its network input."""

    kind = 'over capacity'


class ScoreRangeError(TensorMismatchError):
    """Decoded scores outside 0 to 1; `score` is the farthest."""

    kind = 'scores outside 0 to 1'

    def __init__(self, score: float) -> None:
        super().__init__(
            f'The network returned a score of {score:.6g}, outside 0 to 1.',
            cause='The outputs do not belong to this decoder, or the export lacks the sigmoid or '
            'softmax of the scores.',
            remedy='Set `decoder` to the family of the network, or export it with the sigmoid or '
            'softmax. Use the node `tensor` to publish the outputs of any network.',
        )


class BackendError(TrtRosError):
    """An inference library that is missing, broken, or of the wrong version."""


class RemoteUnavailableError(BackendError):
    """An inference server that does not answer, or not in time; a later request may succeed."""

    kind = 'remote unavailable'  # The key under which nodes count dropped frames.


class TimeLimitError(BackendError):
    """Work in a child process that took longer than allowed."""


class MemoryLimitError(ModelError):
    """A model whose loading, running or building needs more memory than allowed."""


class RemoteRefusedError(ModelError):
    """A request that an inference server refused or could not process."""

    kind = 'remote error'  # The key under which nodes count dropped frames.


class GpuFailedError(TrtRosError):
    """A fault of the GPU or its driver, after which this process cannot use the GPU again."""


class ClosedError(TrtRosError):
    """Use of an object after its close()."""

    def __init__(self, name: str) -> None:
        super().__init__(f'{name} is closed.', remedy='Open a new one.')


class BadFrameError(TrtRosError):
    """An invalid image, dropped and counted by `kind`, a short cause without numbers."""

    def __init__(self, kind: str, problem: str, *, cause: str = '', remedy: str = '') -> None:
        super().__init__(problem, cause=cause, remedy=remedy)
        self.kind = kind
