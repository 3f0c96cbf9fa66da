"""Commands of a policy: its actions while all is well, the hold otherwise."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

HOLDS = ('last', 'damping', 'pose')
#: Reasons for the hold.
STOPPED, NOT_ENABLED, NO_ACTION = 'emergency stop', 'not enabled', 'no action yet'
NO_POSE, DEACTIVATED, LOST_GPU = 'no measured pose yet', 'deactivated', 'lost GPU'
STALE, LATE, ENDED = 'stale observations', 'late run', 'no actions left'
AHEAD = 'observations ahead of the clock'
JUMP, NOT_FINITE, JUMPED_BACK = 'jump of the action', 'non-finite values', 'time jumped back'
#: What is not an event: the policy has not begun.
IDLE = (NOT_ENABLED, NO_ACTION, NO_POSE, DEACTIVATED)
#: What is no warning.
EXPECTED = (NOT_ENABLED, NO_ACTION, DEACTIVATED)


@dataclass(frozen=True)
class SafetyOptions:
    """
    Limits of a policy.

    :param max_age: maximum age of the newest observation in seconds, and maximum time by which it
        is ahead.
    :param max_jump: maximum change of an element from one command to the next; 0 for none.
    :param blend_seconds: duration of the way from the present pose, or from the hold, to the
        actions; and to `pose`.
    :param require_enable: whether commands wait for `enable`.
    :param low: lowest values, (size,); `high`: the highest ones.
    :param at_rest: elements that the hold sets to 0, (size,) bool: velocities, efforts.
    :param pose: elements to go to while holding, NaN for others; None to stay.
    """

    max_age: float
    max_jump: float
    blend_seconds: float
    require_enable: bool
    low: np.ndarray
    high: np.ndarray
    at_rest: np.ndarray
    pose: np.ndarray | None = None


@dataclass
class Safety:
    """
    A state machine between the actions of a policy and the robot; not thread-safe.

    Times are seconds of one clock.

    :ivar reason: why the hold is commanded; '' while actions are.
    :ivar holds: number of holds by reason.
    :ivar clipped: number of elements that limits changed.
    :ivar last: the last command; None before the first one.
    :ivar is_stopped: whether the emergency stop is pressed.
    :ivar is_enabled: whether commands are allowed.
    """

    options: SafetyOptions
    reason: str = NO_ACTION
    holds: Counter[str] = field(default_factory=Counter)
    clipped: int = 0
    last: np.ndarray | None = None
    is_stopped: bool = False
    is_enabled: bool = True

    def __post_init__(self) -> None:
        self.is_enabled &= not self.options.require_enable
        self._fault = NO_ACTION
        self._observed = self._since = -np.inf
        self._start: np.ndarray | None = None
        self._now = -np.inf

    def enable(self, is_enabled: bool) -> bool:
        """Allow commands, or not; return whether they are allowed: not while stopped."""
        self.is_enabled = is_enabled and not self.is_stopped
        return self.is_enabled

    def stop(self, is_pressed: bool) -> None:
        """Press or release the emergency stop; commands then wait for `enable`."""
        self.is_stopped = is_pressed
        if is_pressed:
            self.is_enabled = False

    def observe(self, time: float) -> None:
        """Take the time of an observation that a run gets."""
        self._observed = max(self._observed, time)

    def fail(self, reason: str) -> None:
        """Command the hold from now on, until `recover`."""
        self._fault = reason

    def recover(self) -> None:
        """Take notice of a run without a fault."""
        self._fault = ''

    def why_hold(self, now: float) -> str:
        """Return the reason to hold at a time, before the actions are looked at; '' for none."""
        if now < self._now - 1e-6:
            # Of a simulation that was reset: what is known belongs to another time.
            self._observed, self._fault, self._since = -np.inf, JUMPED_BACK, -np.inf
        self._now = now
        if self.is_stopped:
            return STOPPED
        if not self.is_enabled:
            return NOT_ENABLED
        if self._fault:
            return self._fault
        age = now - self._observed
        if abs(age) <= self.options.max_age + 1e-9:
            return ''
        return STALE if age > 0 else AHEAD

    def command(
        self, now: float, action: np.ndarray | None, measured: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Return the command of a time, (size,) float64, from the pose `measured` on; or None."""
        reason = self.why_hold(now) or (ENDED if action is None else '')
        if not reason and self.options.blend_seconds and self.last is measured is None:
            reason = NO_POSE
        if not reason and action is not None:
            found = self._blended(now, action, measured)
            if not np.isfinite(found).all():
                reason = NOT_FINITE
            elif self._is_jump(found):
                reason = JUMP
            else:
                self.last = found
        if reason in (JUMP, NOT_FINITE):
            self.fail(reason)
        if reason:
            return self._held(now, reason)
        self.reason = ''
        return self.last

    def is_blending(self, now: float) -> bool:
        """Return whether commands are still on the way to the actions."""
        return self._start is not None and now - self._since < self.options.blend_seconds

    def clip(self, actions: np.ndarray) -> np.ndarray:
        """Return actions within the limits, and count the elements that were not."""
        clipped: np.ndarray = np.clip(actions, self.options.low, self.options.high)
        self.clipped += int((clipped != actions).sum())
        return clipped

    def _blended(self, now: float, action: np.ndarray, measured: np.ndarray | None) -> np.ndarray:
        clipped = self.clip(action)
        if self.reason:  # The first action after a hold.
            start = measured if self.last is None else self.last
            self._start, self._since = start, now
        if self._start is None or not self.is_blending(now):
            return clipped
        weight = (now - self._since) / self.options.blend_seconds
        return np.asarray(self._start + weight * (clipped - self._start))

    def _is_jump(self, found: np.ndarray) -> bool:
        if not self.options.max_jump or self.last is None:
            return False
        return bool(np.abs(found - self.last).max() > self.options.max_jump)

    def _held(self, now: float, reason: str) -> np.ndarray | None:
        if reason != self.reason:
            if reason not in IDLE:
                self.holds[reason] += 1
            if not self.reason:
                self._start, self._since = self.last, now
            self.reason = reason
        if self.last is None:
            return None
        self.last = np.where(self.options.at_rest, 0.0, self._toward_pose(now))
        return self.last

    def _toward_pose(self, now: float) -> np.ndarray:
        assert self.last is not None
        pose, seconds = self.options.pose, self.options.blend_seconds
        if pose is None or self._start is None:
            return self.last
        weight = min((now - self._since) / seconds, 1.0) if seconds else 1.0
        target = np.where(np.isfinite(pose), pose, self.last)
        return np.asarray(self._start + weight * (target - self._start))
