"""Options of the frame path on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from trt_ros.errors import ParameterError


@dataclass(frozen=True)
class GraphOptions:
    """
    Options of the frame path on the GPU.

    :param device: CUDA device index.
    :param slots: frames in flight; with 2 the copy of the next frame overlaps the current one.
    :param stream_priority: CUDA stream priority; 0 is the default, lower values run first.
    :param blocking_sync: the waiting thread sleeps instead of spinning, which frees a CPU core
        and adds 0.1 to 0.4 ms of latency (docs/benchmarks.md).
    :param use_graph: False launches every stage separately instead of one CUDA graph.
    :param unified_memory: 'auto' lets kernels read pinned memory directly where the GPU has no
        memory of its own; 'on' and 'off' force it.
    :param gpu_timeout_seconds: a frame that takes longer counts as a GPU failure; 0 disables the
        watchdog.
    :param cache_dir: root of the engine cache, which holds the compiled kernels too; '' for the
        default.
    """

    device: int = 0
    slots: int = 2
    stream_priority: int = 0
    blocking_sync: bool = False
    use_graph: bool = True
    unified_memory: str = 'auto'
    gpu_timeout_seconds: float = 10.0
    cache_dir: str = ''

    def __post_init__(self) -> None:
        if self.unified_memory not in ('auto', 'on', 'off'):
            raise ParameterError(
                f'Invalid unified_memory {self.unified_memory!r}.',
                remedy='Choose one of auto, on, off.',
            )
        for name, minimum in (('slots', 1), ('gpu_timeout_seconds', 0)):
            if getattr(self, name) < minimum:
                raise ParameterError(
                    f'Invalid {name} {getattr(self, name)}.', remedy=f'Set at least {minimum}.'
                )
