"""Shares of a GPU: streaming multiprocessors (SMs) of their own, by CUDA green contexts."""

from __future__ import annotations

import threading
from typing import Any

from trt_ros.cuda.calls import Context, CudaError, check, driver
from trt_ros.errors import BackendError, ParameterError

_lock = threading.Lock()
_partitions: dict[int, _Partition] = {}  # By device.
_green: dict[int, Any] = {}  # Green contexts by the handle of their CUcontext.


class Share:
    """
    SMs of a GPU that no other share of this process uses, until `close`.

    :param groups: numbers of the groups of SMs in their partition.
    :ivar context: CUDA context of these SMs, current in one thread at a time. It lives as long as
        the process: CUDA crashes where anything made in a green context outlives it.
    """

    def __init__(self, partition: _Partition, groups: tuple[int, ...]) -> None:
        self._partition, self._groups = partition, groups
        self.context = partition.context(groups)

    def __str__(self) -> str:
        sms = sum(self._partition.sm_counts[group] for group in self._groups)
        return f'{sms} of {self._partition.sm_count} SMs'

    def close(self) -> None:
        """Return the SMs, after everything made in the context is released; may be repeated."""
        with _lock:
            self._partition.used.difference_update(self._groups)
            self._groups = ()


class _Partition:
    """The SMs of one GPU, in the smallest groups that it can be split into."""

    def __init__(self, index: int) -> None:
        cuda = driver()
        self._device = check(cuda.cuDeviceGet(index), f'find GPU {index}')
        kind = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        whole = check(cuda.cuDeviceGetDevResource(self._device, kind), 'query the SMs')
        # Without room for groups, the call counts them.
        count = check(cuda.cuDevSmResourceSplitByCount(0, whole, 0, 1), 'count groups of SMs')[1]
        split = cuda.cuDevSmResourceSplitByCount(count, whole, 0, 1)
        self._groups = check(split, 'split the SMs')[0]
        self.sm_count = int(whole.sm.smCount)
        self.sm_counts = [int(group.sm.smCount) for group in self._groups]
        self.used: set[int] = set()
        self._contexts: dict[tuple[int, ...], Context] = {}

    def take(self, share: float) -> tuple[int, ...]:
        """Return the numbers of free groups for a share, rounded down, but at least one."""
        free = [each for each in range(len(self.sm_counts)) if each not in self.used]
        count = max(1, int(share * len(self.sm_counts) + 1e-9))
        if count > len(free):
            raise ParameterError(
                f'gpu_share is {share:g}, but {len(free) / len(self.sm_counts):.2f} of the GPU '
                'is left.',
                cause='Other pipelines of this process have shares of it.',
                remedy='Lower the gpu_share of this node or of others; 0.0 runs on all SMs.',
            )
        return tuple(free[:count])

    def context(self, groups: tuple[int, ...]) -> Context:
        """Return the context of these groups; creates it the first time."""
        if groups not in self._contexts:
            cuda = driver()
            resources = [self._groups[group] for group in groups]
            described = cuda.cuDevResourceGenerateDesc(resources, len(resources))
            flags = cuda.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
            created = cuda.cuGreenCtxCreate(
                check(described, 'describe a share of the GPU'), self._device, flags
            )
            green = check(created, 'create a green context')
            handle = check(cuda.cuCtxFromGreenCtx(green), 'use a green context')
            _green[int(handle)] = green
            self._contexts[groups] = Context(handle)
        return self._contexts[groups]


def open_share(index: int, share: float) -> Share:
    """Reserve SMs of a GPU, whose primary context exists: a fraction up to 1; or raise."""
    with _lock:
        try:
            partition = _partitions.get(index) or _Partition(index)
            _partitions[index] = partition
            opened = Share(partition, partition.take(share))
        except (AttributeError, CudaError, RuntimeError) as error:
            raise BackendError(
                f'gpu_share {share:g} cannot be honored on GPU {index}.',
                cause=f'Its driver or cuda-python cannot split it. {error}',
                remedy='Set gpu_share to 0.0 and order nodes by stream_priority, or install an '
                'NVIDIA driver and cuda-bindings for CUDA 12.4 or newer.',
            ) from error
        partition.used.update(opened._groups)
    return opened


def has_shares(index: int) -> bool:
    """Return whether pipelines of this process have shares of a GPU."""
    with _lock:
        return index in _partitions and bool(_partitions[index].used)


def create_stream(context: Context, priority: int) -> Any:
    """Return the result of the CUDA call that creates a stream in a share; None outside of one."""
    green = _green.get(context.handle)
    if green is None:
        return None
    cuda = driver()
    flags = cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
    return cuda.cuGreenCtxStreamCreate(green, flags, priority)
