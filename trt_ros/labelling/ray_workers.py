"""Workers that are actors of Ray, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trt_ros.errors import BackendError, ParameterError, TrtRosError
from trt_ros.labelling.job import LabelReport
from trt_ros.labelling.task import Labeler, LabelTask
from trt_ros.labelling.workers import Worker, WorkerDiedError
from trt_ros.runtime.options import LabeledOptions


def open_ray(
    address: str, options: LabeledOptions, count: int, gpus: float | None
) -> tuple[Callable[[], Worker], int]:
    """
    Connect to a cluster.

    :param address: of a cluster, 'auto' or, to start Ray on this machine, 'local'.
    :param count: wanted number of workers.
    :param gpus: number of GPUs per worker; None for 1 if the cluster has any, for a backend that
        may use them.
    :returns: a function that opens a worker, and the number of workers that the cluster can run.
    :raises BackendError: when Ray is not installed, or cannot be reached.
    :raises ParameterError: when the cluster cannot run a worker.
    """
    ray = _load_ray()
    try:
        if not ray.is_initialized():
            ray.init(address, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Of all types: a full disk, a node that starts too slowly.
        raise BackendError(
            f'Ray at {address} cannot be reached.',
            cause=str(error),
            remedy='Start a cluster with `ray start --head`, correct the address of --ray, or '
            'leave it out.',
        ) from error
    resources = ray.cluster_resources()
    if gpus is None:
        can_use = options.backend != 'onnxruntime' and not options.is_remote
        gpus = float(can_use and resources.get('GPU', 0) >= 1)
    cpus = 0.0 if gpus else 1.0
    limit = resources.get('GPU', 0.0) / gpus if gpus else resources.get('CPU', 1.0)
    count = min(count, int(limit))
    if count < 1:
        raise ParameterError(
            f'No worker fits into the cluster of Ray: {gpus:g} GPUs per worker.',
            cause=f'It has {resources.get("GPU", 0):g} GPUs.',
            remedy='Set --gpus-per-worker to less, or 0 for the CPU.',
        )
    if options.model_path and not options.is_remote:
        path = str(Path(options.model_path).expanduser().absolute())
        options = replace(options, model_path=path)
    actor = ray.remote(num_cpus=cpus, num_gpus=gpus)(Labeler)
    return lambda: RayWorker(ray, actor, options), count


class RayWorker(Worker):
    """An actor of Ray."""

    def __init__(self, ray: Any, actor: Any, options: LabeledOptions) -> None:
        self._ray = ray
        self._actor = actor.remote(options)
        try:
            self.log_lines = self._get(self._actor.open.remote())
        except BaseException:
            self.close()
            raise

    def label(self, task: LabelTask, on_frames: Callable[[int], object]) -> LabelReport:
        """Label a recording; see Worker.label."""
        task = replace(task, path=task.path.absolute(), output=task.output.absolute())
        report: LabelReport = self._get(self._actor.label.remote(task))
        on_frames(report.resumed + report.frames + sum(report.dropped.values()))
        return report

    def _get(self, reference: Any) -> Any:
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            raise WorkerDiedError from error
        if isinstance(found, TrtRosError):
            raise found
        return found

    def close(self) -> None:
        """End the actor; see Worker.close."""
        self._ray.kill(self._actor)


def _load_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise BackendError(
            'The Python package ray cannot be imported.',
            cause=str(error),
            remedy='pip install ray, here and on the machines of the cluster; or use --workers.',
        ) from error
    return ray
