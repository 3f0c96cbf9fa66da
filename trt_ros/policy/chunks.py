"""Action chunks: what to do at a time, by the chunks of several runs."""

from collections import deque
from math import ceil
from typing import NamedTuple

import numpy as np

MODES = ('newest', 'temporal_ensembling', 'real_time_chunking')
#: Weight exp(-WEIGHT * i) of the chunks of a time, the oldest one i = 0, as ACT has it.
WEIGHT = 0.01
#: Part of a period by which a time may be off without a change of the action.
TOLERANCE = 1e-3


class Chunk(NamedTuple):
    """The actions of one run, (horizon, size) float64, from the time of its observation."""

    start: float
    actions: np.ndarray


class ActionChunks:
    """
    The actions of the last runs by time; not thread-safe.

    :param mode: one of MODES: `newest` takes the newest chunk, `temporal_ensembling` the weighted
        mean of all chunks that have an action for a time. `real_time_chunking` holds the actions
        of a new chunk to those committed until it came, and goes over to its own from there.
    :param period: seconds per action.
    :param least: actions of a chunk that are executed before another one is taken.
    :ivar delay: actions that passed while the last chunk was computed.
    """

    def __init__(self, mode: str, period: float, least: int = 0) -> None:
        self._mode, self._period, self._least = mode, period, least
        self._chunks: deque[Chunk] = deque()
        self.delay = 0

    @property
    def horizon(self) -> int:
        """Number of actions of the last chunk; 0 without any."""
        return len(self._chunks[-1].actions) if self._chunks else 0

    def clear(self) -> None:
        """Forget all chunks."""
        self._chunks.clear()

    def add(self, start: float, actions: np.ndarray, now: float) -> None:
        """Add the chunk of a run that has ended, from the time of its observation on."""
        self.delay = max(ceil((now - start) / self._period - TOLERANCE), 0)
        least = min(self._least, self.horizon)
        if least and 0 <= self._index(self._chunks[-1], start) < least:
            return
        if self._mode == 'real_time_chunking' and self._chunks:
            actions = self._held_to_committed(start, actions)
        if self._mode != 'temporal_ensembling':
            self._chunks.clear()
        while self._chunks and self._index(self._chunks[0], start) >= len(self._chunks[0].actions):
            self._chunks.popleft()
        self._chunks.append(Chunk(start, actions))

    def at(self, time: float) -> np.ndarray | None:
        """Return the action of a time, (size,); None where no chunk has one."""
        found: list[np.ndarray] = []
        for chunk in self._chunks:
            index = self._index(chunk, time)
            if len(chunk.actions) == 1 and chunk is self._chunks[-1]:
                # Without a chunk, an action counts until the next one.
                return np.asarray(chunk.actions[0])
            if 0 <= index < len(chunk.actions):
                found.append(chunk.actions[index])
        if len(found) < 2:
            return found[0] if found else None
        weights = np.exp(-WEIGHT * np.arange(len(found)))
        return np.asarray(weights @ np.array(found) / weights.sum())

    def after(self, time: float, count: int) -> np.ndarray:
        """Return the actions from a time on, (up to `count`, size), at least one."""
        found = [self.at(time + step * self._period) for step in range(count)]
        return np.array([each for each in found if each is not None])

    def _index(self, chunk: Chunk, time: float) -> int:
        return int((time - chunk.start) / self._period + TOLERANCE)

    def _held_to_committed(self, start: float, actions: np.ndarray) -> np.ndarray:
        """Return a new chunk whose first actions are those of the chunk in execution."""
        old = self._chunks[-1]
        first = self._index(old, start)
        shared = min(max(len(old.actions) - first, 0), len(actions))
        if first < 0 or shared <= self.delay:
            return actions
        # The weights of the old actions in real-time chunking: 1 while the run took place, then
        # falling to 0 where the old chunk ends.
        rest = (shared - np.arange(shared)) / (shared - self.delay + 1)
        rest = np.clip(rest, 0, 1)
        weights = rest * np.expm1(rest) / np.expm1(1)
        weights[: self.delay] = 1
        weights = weights[:, np.newaxis]
        held = actions.copy()
        held[:shared] = (
            weights * old.actions[first : first + shared] + (1 - weights) * held[:shared]
        )
        return held
