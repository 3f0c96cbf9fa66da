"""How far a slow opening is: what `trt_ros.progress` says, under the name the runtime uses."""

from trt_ros.progress import CancelledError, Progress, Reporter

__all__ = ['CancelledError', 'Progress', 'Reporter']
