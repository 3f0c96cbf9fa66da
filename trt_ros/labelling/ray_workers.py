"""Workers that are actors of Ray, on this machine or on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trt_ros.errors import BackendError, ParameterError, TrtRosError, requires
from trt_ros.labelling.job import LabelReport
from trt_ros.labelling.labeler import Labeler
from trt_ros.labelling.task import LabelTask
from trt_ros.labelling.workers import Worker, WorkerDiedError
from trt_ros.runtime.options import LabeledOptions

START_SECONDS = 10.0  # Until a worker that does not start is reported.


def open_ray(
    address: str, options: LabeledOptions, count: int, gpus: float | None
) -> tuple[Callable[[], Worker], int]:
    """
    Connect to a cluster.

    :param address: of a cluster, 'auto' or, to start Ray on this machine, 'local'.
    :param count: wanted number of workers.
    :param gpus: number of GPUs per worker; None for 1 if the cluster has any, for a backend that
        may use them.
    :returns: a function that starts a worker, and the number of workers that the cluster can run.
    :raises BackendError: when Ray is not installed, or cannot be reached.
    :raises ParameterError: when the cluster cannot run a worker.
    """
    remedy = 'pip install ray, here and on the machines of the cluster; or use --workers.'
    with requires('the Python package ray', '--ray', remedy, BackendError):
        import ray
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
    needs = {'GPU': gpus} if gpus else {'CPU': cpus}
    return lambda: RayWorker(ray, actor, options, needs), count


class RayWorker(Worker):
    """
    An actor of Ray.

    :param needs: amounts of the resources of the cluster that it takes, by name.
    """

    def __init__(
        self, ray: Any, actor: Any, options: LabeledOptions, needs: Mapping[str, float]
    ) -> None:
        self._ray, self._needs = ray, needs
        self._actor = actor.remote(options)

    def open(self, on_wait: Callable[[str], object]) -> Sequence[str]:
        """Open the pipeline; see Worker.open."""
        started = self._actor.__ray_ready__.remote()
        if not self._ray.wait([started], timeout=START_SECONDS)[0]:
            free, all_ = self._ray.available_resources(), self._ray.cluster_resources()
            on_wait(
                'Waiting for Ray to start a worker: it needs '
                + ' and '.join(
                    f'{amount:g} {name}, of which {free.get(name, 0):g} of {all_.get(name, 0):g} '
                    'are free'
                    for name, amount in self._needs.items()
                )
            )
        lines: tuple[str, ...] = self._get(self._actor.open.remote())
        return lines

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
