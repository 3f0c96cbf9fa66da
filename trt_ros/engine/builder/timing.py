"""Timing cache of TensorRT: the kernels and their times, which a user can list and change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trt_ros.errors import BackendError, ParameterError
from trt_ros.regular_file import Blob
from trt_ros.trt import Library


def open_timing_cache(
    library: Library, config: Any, path: str | None, tactics: Sequence[str]
) -> Any | None:
    """Return the timing cache of a build, read from a file, with changed tactics; None without."""
    if path is None or library.is_rtx:  # tensorrt_rtx only logs a warning.
        return None
    cache = config.create_timing_cache(Blob(Path(path)).load() or b'')
    if not config.set_timing_cache(cache, False):
        cache = config.create_timing_cache(b'')  # It was of another GPU or release.
        if not config.set_timing_cache(cache, False):
            raise BackendError(
                f'{library} rejected an empty timing cache.', remedy='Set timing_cache to false.'
            )
    for tactic in tactics:
        set_tactic(library, cache, tactic)
    return cache


def keep(cache: Any | None, path: str | None) -> None:
    """Write a timing cache to its file for the next build; does nothing without."""
    times = None if cache is None else cache.serialize()
    if times is not None and path is not None:
        Blob(Path(path)).save(bytes(times))


def set_tactic(library: Library, cache: Any, text: str) -> None:
    """Set the kernel of KEY=TACTIC; raise ParameterError if the cache has no such key."""
    key, _, tactic = text.partition('=')
    try:
        value = library.trt.TimingCacheValue(int(tactic, 0), 0.0)
        is_set = cache.update(library.trt.TimingCacheKey.parse(key), value)
        cause = 'The timing cache has no such key, or the tactic is invalid.'
    except (ValueError, TypeError, RuntimeError) as error:
        is_set, cause = False, str(error)
    if not is_set:
        raise ParameterError(
            f'{library} rejected the tactic {text!r}.',
            cause=cause,
            remedy='Set KEY=TACTIC of kernel_times in the .engine.json of a build with '
            'editable_timing_cache.',
        )


def kernel_times(cache: Any | None) -> dict[str, tuple[int, float]]:
    """Return tactic and milliseconds by key of a timing cache, which must be editable."""
    found = [] if cache is None else cache.queryKeys()
    values = [cache.query(key) for key in found]  # type: ignore[union-attr]
    return {
        str(key): (int(value.tacticHash), float(value.timingMSec))
        for key, value in zip(found, values)
    }
