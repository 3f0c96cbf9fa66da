"""Engine build inside the child process; writes the plan to a file of its parent."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
import os
from pathlib import Path
import threading
import time
from typing import Any, NamedTuple

from trt_ros.child import Events
from trt_ros.driver import nvidia_driver
from trt_ros.engine import precision
from trt_ros.engine.builder import config as settings
from trt_ros.engine.builder import layers
from trt_ros.engine.builder.advice import advise_on_model, advise_on_quantization
from trt_ros.engine.builder.failures import error_from_log, parser_errors
from trt_ros.engine.builder.onnx_check import OnnxInfo, metadata_of, read_onnx, refuse_unbuildable
from trt_ros.engine.builder.onnx_cut_nms import UncuttableError, cut_nms, cut_reason
from trt_ros.engine.builder.onnx_nms import BATCHED
from trt_ros.engine.builder.onnx_nodes import layers_by_precision, nodes, refuse_uint8
from trt_ros.engine.builder.onnx_precision import convert
from trt_ros.engine.builder.onnx_rewrites import rewrite
from trt_ros.engine.builder.profiles import largest_batch, resolve_profiles, sizes_without_effect
from trt_ros.engine.builder.refit import Structure, refitted, structure
from trt_ros.engine.builder.timing import keep, kernel_times, open_timing_cache
from trt_ros.engine.engine import DTYPES
from trt_ros.engine.key import OnnxFile
from trt_ros.engine.options import BuildOptions, Profile
from trt_ros.errors import ModelError, ParameterError, TrtRosError
from trt_ros.tensors import TensorSpec
from trt_ros.trt import Library, load_trt


class Steps(dict[str, tuple[int, int]]):
    """Steps that are done, and all, of the open phases by name, the outermost first."""

    _percent = 0.0

    @property
    def percent(self) -> float:
        """Progress in percent, which never decreases."""
        share, total = 1.0, 0.0
        for done, steps in self.values():
            total += share * min(done / steps, 1.0)
            share /= steps
        self._percent = max(self._percent, min(total, 1.0) * 100)
        return self._percent


def monitor(library: Library, events: Events) -> Any:
    """Create an IProgressMonitor; TensorRT may call it from several threads at the same time."""
    steps, lock = Steps(), threading.Lock()

    class Monitor(library.trt.IProgressMonitor):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            library.trt.IProgressMonitor.__init__(self)
            self._reported = 0.0

        def phase_start(self, phase_name: str, parent_phase: str, num_steps: int) -> None:
            with lock:
                steps[phase_name] = (0, max(num_steps, 1))
                self._report(phase_name)

        def step_complete(self, phase_name: str, step: int) -> bool:
            with lock:
                steps[phase_name] = (step + 1, steps.get(phase_name, (0, 1))[1])
                if time.monotonic() - self._reported > 0.1:
                    self._report(phase_name)
            return True  # The parent cancels by a signal: TensorRT may not call this for long.

        def phase_finish(self, phase_name: str) -> None:
            with lock:
                steps.pop(phase_name, None)

        def _report(self, phase: str) -> None:
            self._reported = time.monotonic()
            events.phase(phase, steps.percent)

    return Monitor()


def run_build(spec: dict[str, Any], events: Events) -> dict[str, Any]:
    """Build an engine in the child process as `parent.build` specifies; return the report."""
    options, library = BuildOptions.from_json(spec['options']), load_trt(spec['library'])
    log_fd = spec.get('log_fd')

    def write(severity: str, message: str) -> None:
        """Write a message to a file of the parent, at once, as TensorRT may crash."""
        if log_fd is not None and (spec['log_verbose'] or severity != 'VERBOSE'):
            _write(log_fd, f'[{severity}] {message}\n'.encode(errors='replace'))

    with library.log.copy_to(write):
        return _build(spec, options, library, events)


class Parsed(NamedTuple):
    """A network that can be built, as far as this is known in advance."""

    builder: Any
    network: Any
    profiles: tuple[Profile, ...]
    model: bytes | None
    structure: Structure | None
    report: dict[str, Any]


def parse(path: Path, options: BuildOptions, library: Library, events: Events) -> Parsed:
    """Check, convert and parse a model; raise TrtRosError if it cannot be built."""
    events.phase('checking the model')
    model, info = read_onnx(path)
    changed, cut_line = cut_where_needed(path, model, options, library)
    if changed is not None:
        model = changed
        kept = {value.name for value in model.graph.input}
        info = replace(
            info,
            metadata=metadata_of(model),
            inputs=tuple(spec for spec in info.inputs if spec.name in kept),
        )
        if options.strip_weights:
            raise ParameterError(
                'strip_weights cannot be combined with a network whose NMS is cut off.',
                cause='It reads the ONNX file, which still contains NMS.',
                remedy='Remove strip_weights, or change the ONNX file in advance.',
            )
    lowered = ''
    if library.is_rtx:
        refuse_unbuildable(path, model)
    refuse_uint8(path, model.graph)
    _refuse_other_floats(path, info, options)
    quantized, placement = layers_by_precision(model.graph), advise_on_quantization(model)
    untried = [
        line
        for capability in _capabilities(options)
        for line in precision.check_precisions(library, capability, quantized, options.precision)
    ]
    profiles = resolve_profiles(
        info.inputs,
        options.profiles,
        metadata=info.metadata,
        input_size=options.input_size,
        batch=options.batch,
    )
    if options.precision in ('fp16', 'bf16') and 'float32' in info.float_types:
        events.phase(f'converting the model to {options.precision}')
        changed, lowered = convert(
            path, options.precision, io_dtypes=options.io_dtypes, fp32=options.fp32, model=changed
        )
    if rewrite(changed or model, options, is_rtx=library.is_rtx):
        changed = changed or model
    converted = None if changed is None else changed.SerializeToString()
    own = structure(changed or model) if options.refit else None
    del model, changed
    events.phase('parsing the model')
    settings.load_plugins(library, options.plugins)
    builder = library.new_builder()
    typed = library.member('NetworkDefinitionCreationFlag', 'STRONGLY_TYPED')
    network = builder.create_network(1 << int(typed or 0))
    parse_errors, warnings = _parse(library, network, path, converted)
    _refuse_shape_inputs(path, network)
    return Parsed(
        builder,
        network,
        profiles,
        converted,
        own,
        {
            'inputs': [vars(spec) for spec in _io(network, 'input')],
            'outputs': [vars(spec) for spec in _io(network, 'output')],
            'metadata': info.metadata,
            'onnx_opset': info.opset,
            'onnx_producer': info.producer,
            'profiles': [[vars(each) for each in profile] for profile in profiles],
            'batch': largest_batch(info.inputs, profiles),
            'parser_errors': parse_errors,
            'parser_warnings': [*info.warnings, *untried, *warnings],
            'ignored_options': sizes_without_effect(info.inputs, options),
            'cut_nms': cut_line,
            'lowered': lowered,
            'structure': own.digest if own else '',
            'quantized': quantized,
            'advice': placement,
        },
    )


def describe_onnx(request: Mapping[str, Any], events: Events) -> dict[str, Any]:
    """Return properties of the ONNX file `path`, or what `library` builds of it; in a child."""
    path = Path(request['path'])
    if 'library' in request:
        report = parse(path, BuildOptions(), load_trt(request['library']), events).report
        return {'cut_nms': report['cut_nms'], 'warnings': report['parser_warnings']}
    model, info = read_onnx(path)
    file = OnnxFile.read(path)
    return {
        'file': str(path),
        'kind': 'onnx',
        'nbytes': file.nbytes,
        'sha256': file.sha256,
        'external_data': [name for name, _ in file.external],
        **asdict(info),
        'quantized': layers_by_precision(model.graph),
        'advice': advise_on_model(model),
    }


def _build(
    spec: dict[str, Any], options: BuildOptions, library: Library, events: Events
) -> dict[str, Any]:
    began, path = time.monotonic(), Path(spec['onnx'])
    builder, network, profiles, model, own, report = parse(path, options, library, events)
    config = builder.create_builder_config()
    ignored = settings.apply(library, builder, config, options, profiles)
    config.progress_monitor = monitor(library, events)
    timing = open_timing_cache(library, config, spec.get('timing_cache'), options.tactics)
    fallback = settings.not_on_dla(network, config) if options.dla_core is not None else []
    plan = refitted(library, spec.get('refit'), own, path, model)
    is_refitted = plan is not None
    with library.log.collect() as captured:
        plan = plan or builder.build_serialized_network(network, config)
    if plan is None:
        raise error_from_log(captured.errors, doing='build', library=library)
    _write(spec['plan_fd'], plan)
    seconds = time.monotonic() - began
    keep(timing, spec.get('timing_cache'))
    events.phase('reading the layers', 100.0)
    return {
        **report,
        'build_seconds': round(seconds, 3),
        'build_warnings': captured.warnings,
        'ignored_options': [*report['ignored_options'], *ignored],
        'dla_fallback': fallback,
        'refitted': f'weights replaced in {spec["refit"]["path"]}' if is_refitted else '',
        'kernel_times': kernel_times(timing) if options.editable_timing_cache else {},
        **_layer_report(library, network, plan),
    }


def _capabilities(options: BuildOptions) -> Sequence[precision.Capability | None]:
    """Return the compute capabilities to build for; None for any."""
    here = [gpu.compute_capability for gpu in nvidia_driver().gpus[:1]]
    found = list[precision.Capability]()
    for name in options.compute_capabilities or ('current',):
        major, _, minor = name.partition('.')
        found += here if name == 'current' else [(int(major), int(minor))]
    return found or [None]


def cut_where_needed(
    path: Path, model: Any, options: BuildOptions, library: Library
) -> tuple[Any | None, str]:
    """Cut NMS off if wanted or needed; return the network, None if unchanged, and a line."""
    reason = cut_reason(model, library, options.plugins)
    if not (options.cut_nms or reason):
        return None, ''
    try:
        return cut_nms(path, model)
    except UncuttableError as error:
        if options.cut_nms:
            raise
        found = {node.op_type for node in nodes(model.graph)}
        if not library.is_rtx and 'NonMaxSuppression' in found and not found & BATCHED:
            # NMS in the middle of a network may end in outputs of a fixed size.
            return None, f'NMS remains in the network. {error.problem} {error.cause}'
        raise ModelError(
            f'{path} cannot be built: {reason}. {error.problem}',
            cause=error.cause,
            remedy=error.remedy,
        ) from error


def _refuse_other_floats(path: Path, info: OnnxInfo, options: BuildOptions) -> None:
    """Refuse a precision that does not hold for every tensor that is not quantized."""
    own = {'fp32': 'float32', 'tf32': 'float32', 'fp16': 'float16', 'bf16': 'bfloat16'}
    allowed = {own.get(options.precision), 'float32', 'float64'}
    others = [kind for kind in info.float_types if kind not in allowed]
    if options.precision != 'auto' and others:
        raise ParameterError(
            f'precision {options.precision} is not possible for {path}.',
            cause=f'The model computes in {", ".join(others)}.',
            remedy='Set precision to auto, or export the model in float32.',
        )


def _parse(
    library: Library, network: Any, path: Path, converted: bytes | None
) -> tuple[list[str], list[str]]:
    with library.log.collect() as captured:
        parser = library.trt.OnnxParser(network, library.log)
        parsed = (
            parser.parse_from_file(str(path))
            if converted is None
            else parser.parse(converted, str(path))
        )
    if not parsed:
        raise error_from_log(
            parser_errors(parser) or captured.errors, doing='parse', library=library
        )
    if not network.num_inputs or not network.num_outputs:  # The parser accepts an empty file.
        raise ModelError(f'{path} contains no network.', remedy='Export it again.')
    return parser_errors(parser), captured.warnings


def _refuse_shape_inputs(path: Path, network: Any) -> None:
    """Refuse inputs whose values are shapes, for which TensorRT only asks for a profile."""
    for spec, tensor in zip(
        _io(network, 'input'), map(network.get_input, range(network.num_inputs))
    ):
        if tensor.is_shape_tensor:
            raise ModelError(
                f'The input {spec} of {path} is a shape tensor.',
                cause='TensorRT reads it in host memory and derives shapes from it, so no CUDA '
                'graph can contain its value.',
                remedy='Export the network with a constant in its place, or use backend '
                'onnxruntime.',
            )


def _io(network: Any, mode: Any) -> list[Any]:
    found = map(getattr(network, f'get_{mode}'), range(getattr(network, f'num_{mode}s')))
    return [TensorSpec(one.name, tuple(one.shape), DTYPES[one.dtype.name], mode) for one in found]


def _layer_report(library: Library, network: Any, plan: Any) -> dict[str, Any]:
    """Report the layers of the engine if a GPU can load it, otherwise of the typed network."""
    found, source = [], 'engine'
    with suppress(TrtRosError):  # Expected of an engine for another GPU.
        found = layers.read_engine(library, plan).layers
    if not found:
        found, source = layers.of_network(network), 'network'
    return {
        'layers': [asdict(layer) for layer in found],
        'layers_from': source,
        'layer_precisions': layers.counts(found),
    }


def _write(fd: int, data: Any) -> None:
    view = memoryview(data).cast('B')
    while view:
        view = view[os.write(fd, view[: 1 << 24]) :]
