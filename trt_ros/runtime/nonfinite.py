"""Frames whose outputs have non-finite values."""

import logging
import threading

log = logging.getLogger('trt_ros.runtime')


class NonfiniteFrames:
    """
    Counts frames whose outputs have non-finite values, and logs the first one.

    :param advice: sentences at the end of the log line.
    :ivar is_rehearsal: whether nothing is logged.
    """

    def __init__(self, *advice: str) -> None:
        self.count, self.is_rehearsal = 0, False
        self._advice, self._counting = advice, threading.Lock()

    def add(self) -> None:
        """Count a frame."""
        with self._counting:
            is_first = not self.count
            self.count += 1
        if is_first and not self.is_rehearsal:
            problem = 'Network outputs contain NaN or infinite values: results lack them.'
            log.warning('%s', ' '.join([problem, *filter(None, self._advice)]))
