"""Opening of pipelines: of one network, of a bundle, or of a cascade."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
import math
from os import PathLike
from typing import Any

from trt_ros.engine.download import local_model
from trt_ros.errors import ParameterError
from trt_ros.families.family import Family
from trt_ros.families.head import Head
from trt_ros.progress import Reporter
from trt_ros.regular_file import FILE_SCHEMES
from trt_ros.runtime.backends import cpu_backend, open_network
from trt_ros.runtime.cascade import open_cascade
from trt_ros.runtime.faster import faster_of
from trt_ros.runtime.fitting import default_families, fit
from trt_ros.runtime.options import PipelineOptions, TiledOptions, options_of
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.runtime.runner import Runner

Families = tuple[Family[Head[Any]], ...]


def open_any(
    model: PipelineOptions | str | PathLike[str],
    changes: Mapping[str, Any],
    families: Families | None,
    report: Reporter,
    batch: int,
    runner: Runner | None,
) -> Pipeline[Any]:
    """Open a pipeline; see `Pipeline.open`."""
    with ExitStack() as undo, ExitStack() as compiling:
        if runner is not None:
            undo.callback(runner.close)
        if not isinstance(batch, int) or batch < 1:
            raise ParameterError(f'batch is {batch!r}.', remedy='Set it to a number from 1.')
        if not (report.cancelled is None or hasattr(report.cancelled, 'is_set')):
            raise ParameterError(
                f'cancelled is {report.cancelled!r}.', remedy='Pass a threading.Event.'
            )
        options = options_of(model, changes)
        if isinstance(options, TiledOptions) and options.tiles:
            batch = math.prod(options.tile_grid)
        if options.model_path.startswith(FILE_SCHEMES):
            path = local_model(options.model_path, report, options.engine_cache_dir)
            options = replace(options, model_path=path)
        opened = partial(_opened, report=report, compiling=compiling)
        if options.is_cascade and runner is None:
            pipeline: Pipeline[Any] = open_cascade(options, families, batch, opened)
        else:
            pipeline = opened(options, families, batch, runner=runner)
        undo.callback(pipeline.close)
        if runner is None:
            report('warming up')
            pipeline.warm_up()
            compiling.close()
            silent = Reporter(cancelled=report.cancelled)
            pipeline, lines = faster_of(
                pipeline, options, lambda other: open_any(other, {}, families, silent, batch, None)
            )
            undo.callback(pipeline.close)
            pipeline._choice += lines
        report('ready', 100.0)
        undo.pop_all()
        return pipeline


def _opened(
    options: PipelineOptions,
    families: Families | None,
    batch: int,
    *,
    report: Reporter,
    compiling: ExitStack,
    runner: Runner | None = None,
) -> Pipeline[Any]:
    """Return a pipeline that is not warmed up."""
    with ExitStack() as undo:
        network, backend, lines = (
            open_network(options, report, batch)
            if runner is None
            else (runner, cpu_backend(), (f'backend {runner.backend}',))
        )
        undo.callback(network.close)
        compiling.enter_context(network.compiling(report))
        report('choosing the decoder')
        fitted = fit(
            network,
            options,
            families or default_families(network, options),
            infer=network.infer if runner is None else None,
        )
        pipeline: Pipeline[Any] = backend.pipeline(network, fitted, batch)
        pipeline._choice = lines
        undo.pop_all()
        return pipeline
