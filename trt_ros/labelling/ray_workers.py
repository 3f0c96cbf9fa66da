"""Labelling by actors of Ray, on this machine or on a cluster that may grow."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
import socket
from typing import Any

from trt_ros.errors import BackendError, ParameterError, TrtRosError, requires
from trt_ros.labelling.job import LabelReport
from trt_ros.labelling.task import LabelTask, as_trt_ros_error
from trt_ros.labelling.workers import MAX_ATTEMPTS, Labeler, worker_died
from trt_ros.regular_file import FILE_SCHEMES
from trt_ros.runtime.options import LabeledOptions

WAIT_SECONDS = 10.0  # Until it is reported that no actor starts.
CONNECT_SECONDS = 10.0  # Where nobody listens, Ray itself tries for minutes.


def label_with_ray(
    address: str,
    options: LabeledOptions,
    tasks: Iterable[LabelTask],
    on_done: Callable[[LabelTask, LabelReport | TrtRosError], object],
    *,
    count: int | None = None,
    gpus: float | None = None,
    on_log: Callable[[Sequence[str]], object] = lambda lines: None,
) -> None:
    """
    Label recordings. Ray places the actors, restarts those that die, and retries their recordings.

    :param address: of a cluster, 'auto' or, to start Ray on this machine, 'local'.
    :param tasks: checked ones; taken when an actor is free.
    :param on_done: called with each task and its report or error.
    :param count: maximum number of actors; those that do not fit yet start when the cluster has
        grown. None for as many as fit now.
    :param gpus: number of GPUs per actor; None for 1 if the cluster has any, for a backend that
        may use them.
    :param on_log: called with the log lines of the first pipeline, and while no actor starts.
    :raises TrtRosError: when Ray cannot be reached, nothing fits, or no pipeline can be opened.
    """
    ray = _connected(address)
    resources = ray.cluster_resources()
    if gpus is None:
        can_use = options.backend != 'onnxruntime' and not options.is_remote
        gpus = float(can_use and resources.get('GPU', 0) >= 1)
    needs = {'GPU': gpus} if gpus else {'CPU': 1.0}
    fitting = min(int(resources.get(name, 0.0) / each) for name, each in needs.items())
    if count is None and not fitting:
        raise ParameterError(
            f'No worker fits into the cluster of Ray: {gpus:g} GPUs per worker.',
            cause=f'It has {resources.get("GPU", 0):g} GPUs.',
            remedy='Set --gpus-per-worker to less, or 0 for the CPU; or --workers, to wait until '
            'the cluster has grown.',
        )
    if not (options.is_remote or options.model_path.startswith(FILE_SCHEMES)):
        path = str(Path(options.model_path).expanduser().absolute())
        options = replace(options, model_path=path)
    kind = ray.remote(
        num_cpus=0 if gpus else 1,
        num_gpus=gpus,
        max_restarts=-1,
        max_task_retries=MAX_ATTEMPTS - 1,
    )(LabelActor)
    actors = [kind.remote(options) for _ in range(count or fitting)]
    try:
        _schedule(ray, actors, iter(tasks), needs, on_done, on_log)
    finally:
        for each in actors:
            ray.kill(each)


def _connected(address: str) -> Any:
    remedy = 'pip install ray, here and on the machines of the cluster; or use --workers.'
    with requires('the Python package ray', '--ray', remedy, BackendError):
        import ray
    try:
        if not ray.is_initialized():
            host, _, port = address.rpartition(':')
            if port.isdecimal() and '/' not in address:
                socket.create_connection((host.strip('[]'), int(port)), CONNECT_SECONDS).close()
            ray.init(address, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Of all types: a full disk, a node that starts too slowly.
        raise BackendError(
            f'Ray at {address} cannot be reached.',
            cause=str(error),
            remedy='Start a cluster with `ray start --head`, correct the address of --ray, or '
            'leave it out.',
        ) from error
    return ray


def _schedule(
    ray: Any,
    actors: Sequence[Any],
    tasks: Any,
    needs: dict[str, float],
    on_done: Callable[[LabelTask, LabelReport | TrtRosError], object],
    on_log: Callable[[Sequence[str]], object],
) -> None:
    """Send a recording to each actor that has started, and another one when it is done."""
    opening = {each.open.remote(): each for each in actors}
    running = dict[Any, tuple[Any, LabelTask]]()
    is_first = True
    task: LabelTask | None = next(tasks, None)
    while task is not None or running:
        ended, _ = ray.wait([*opening, *running], timeout=WAIT_SECONDS if is_first else None)
        if not ended:
            on_log([_waiting(ray, needs)])
        for reference in ended:
            if reference in opening:
                actor, lines = opening.pop(reference), _outcome(ray, reference, actors[0])
                if isinstance(lines, TrtRosError):
                    raise lines
                if is_first:
                    on_log(lines)
                is_first = False
            else:
                actor, done = running.pop(reference)
                on_done(done, _outcome(ray, reference, done))
            if task is not None:
                sent = replace(task, path=task.path.absolute(), output=task.output.absolute())
                running[actor.label.remote(sent)] = actor, task
                task = next(tasks, None)


def _outcome(ray: Any, reference: Any, task: Any) -> Any:
    """Return the result of a call, or the error why there is none."""
    path = getattr(task, 'path', Path('any'))
    try:
        return ray.get(reference)
    except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):
        return worker_died(path)
    except Exception as error:  # The other recordings may be good.
        return as_trt_ros_error(error, path)


def _waiting(ray: Any, needs: dict[str, float]) -> str:
    free, all_ = ray.available_resources(), ray.cluster_resources()
    return 'Waiting for Ray to start a worker: it needs ' + ' and '.join(
        f'{amount:g} {name}, of which {free.get(name, 0):g} of {all_.get(name, 0):g} are free'
        for name, amount in needs.items()
    )


class LabelActor:
    """A pipeline in a process of Ray, which ends with it."""

    def __init__(self, options: LabeledOptions) -> None:
        self._labeler = Labeler(options)
        self._opened = self._labeler.open()

    def open(self) -> tuple[str, ...] | TrtRosError:
        """Return the log lines of the pipeline, or why it cannot be opened."""
        return self._opened

    def label(self, task: LabelTask) -> LabelReport | TrtRosError:
        """Label a recording, of which this may be another attempt."""
        if isinstance(self._opened, TrtRosError):
            return self._opened
        return self._labeler.label(task.again())
