"""Options of the frame path on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from trt_ros.errors import ParameterError
from trt_ros.runtime.gpu.waiting import WAITS


@dataclass(frozen=True)
class GraphOptions:
    """
    Options of the frame path on the GPU.

    :param device: CUDA device index.
    :param slots: frames in flight; with 2 the copy of the next frame overlaps the current one.
    :param stream_priority: CUDA stream priority; 0 is the default, lower values run first.
    :param gpu_wait: 'adaptive', 'spin' or 'block'; see GpuWait.
    :param use_graph: False launches every stage separately instead of one CUDA graph.
    :param unified_memory: 'auto' lets kernels read pinned memory directly where the GPU has no
        memory of its own; 'on' and 'off' force it.
    :param gpu_timeout_seconds: a frame that takes longer counts as a GPU failure; 0 disables the
        watchdog.
    :param cache_dir: root of the engine cache, which holds the compiled kernels too; '' for the
        default.
    :param remember_images: whether to capture, at warm-up, graphs for the images of the last time,
        whose sizes the engine cache keeps.
    """

    device: int = 0
    slots: int = 2
    stream_priority: int = 0
    gpu_wait: str = 'adaptive'
    use_graph: bool = True
    unified_memory: str = 'auto'
    gpu_timeout_seconds: float = 10.0
    cache_dir: str = ''
    remember_images: bool = False

    def __post_init__(self) -> None:
        for name, choices in (('gpu_wait', WAITS), ('unified_memory', ('auto', 'on', 'off'))):
            if getattr(self, name) not in choices:
                raise ParameterError(
                    f'Invalid {name} {getattr(self, name)!r}.',
                    remedy=f'Choose one of {", ".join(choices)}.',
                )
        for name, minimum in (('slots', 1), ('gpu_timeout_seconds', 0)):
            if getattr(self, name) < minimum:
                raise ParameterError(
                    f'Invalid {name} {getattr(self, name)}.', remedy=f'Set at least {minimum}.'
                )
