"""Application of build options to TensorRT; unsupported options are refused with a reason."""

from collections.abc import Sequence
from functools import cache
from runpy import run_path
from typing import Any

from trt_ros.driver import nvidia_driver
from trt_ros.engine.options import BuildOptions, Profile
from trt_ros.engine.precision import text_of
from trt_ros.errors import BackendError, ParameterError
from trt_ros.trt import Library

_NOT_IN_RTX = {
    'dla_core': 'tensorrt_rtx does not support deep learning accelerators.',
    'plugins': 'tensorrt_rtx does not support plugins.',
    'editable_timing_cache': 'tensorrt_rtx measures no kernels when it builds.',
    'version_compatible': 'Engines of tensorrt_rtx only run on the release that built them.',
}


def refuse_unsupported(library: Library, options: BuildOptions) -> None:
    """Raise ParameterError for the first option that a TensorRT does not support."""
    rtx = library.is_rtx
    unknown = [
        name
        for name in options.compute_capabilities
        if not (name == 'current' or '.' in name)
        or library.member('ComputeCapability', _target(name)) is None
    ]
    refusals = (
        *(
            (
                option,
                rtx and getattr(options, option) != getattr(BuildOptions(), option),
                cause,
                f'Remove {option}, or use backend tensorrt.',
            )
            for option, cause in _NOT_IN_RTX.items()
        ),
        (
            'hardware_compatible',
            rtx and options.hardware_compatible != 'none',
            'tensorrt_rtx selects target GPUs by compute capability.',
            'Set compute_capabilities instead.',
        ),
        *(
            (
                option,
                rtx and getattr(options, option) and not _has_target_gpu(library),
                'It builds an engine whose weights are loaded later only on a GPU of compute '
                f'capability {", ".join(_known_targets(library)[:-1])}.',
                f'Remove {option}, or build on a machine with such a GPU.',
            )
            for option in ('strip_weights', 'refit')
        ),
        (
            'refit',
            options.refit and options.strip_weights,
            'Weights of stripped engines are loaded at each start.',
            'Remove strip_weights.',
        ),
        (
            'compute_capabilities',
            not rtx and bool(options.compute_capabilities),
            'tensorrt builds for the GPU of this machine.',
            'Set hardware_compatible instead.',
        ),
        (
            'compute_capabilities',
            rtx and bool(unknown),
            f'Unknown compute capability: {", ".join(unknown)}.',
            'Choose from ' + ', '.join(_known_targets(library)) + '.',
        ),
        (
            'compute_capabilities',
            'current' in options.compute_capabilities and not nvidia_driver().gpus,
            'The value current needs a GPU, and this machine has none.',
            'Set a number such as 8.6.',
        ),
        (
            'hardware_compatible',
            not rtx
            and library.member('HardwareCompatibilityLevel', options.hardware_compatible.upper())
            is None,
            f'It lacks the level {options.hardware_compatible}.',
            'Set hardware_compatible to ampere_plus, or update TensorRT.',
        ),
        (
            'strip_weights',
            options.strip_weights and options.precision in ('fp16', 'bf16'),
            f'The weights are loaded from the ONNX file, which is not {options.precision}.',
            'Convert the ONNX file in advance, and set precision to auto.',
        ),
    )
    for option, refused, cause, remedy in refusals:
        if refused:
            raise ParameterError(
                f'{library} cannot apply {option} = {getattr(options, option)!r}.',
                cause=cause,
                remedy=remedy,
            )


def apply(
    library: Library, builder: Any, config: Any, options: BuildOptions, profiles: Sequence[Profile]
) -> list[str]:
    """Set an IBuilderConfig; return options without effect, or raise ParameterError."""
    # The engine inspector reports precisions only with this verbosity.
    config.profiling_verbosity = library.trt.ProfilingVerbosity.DETAILED
    flags = {
        'TF32': options.precision != 'fp32',
        'VERSION_COMPATIBLE': options.version_compatible,
        'STRIP_PLAN': options.strip_weights,
        'REFIT': options.refit,
        'WEIGHT_STREAMING': options.weight_streaming_budget_mib is not None,
        'SPARSE_WEIGHTS': options.sparse,
        'EDITABLE_TIMING_CACHE': options.editable_timing_cache,
        'GPU_FALLBACK': options.dla_core is not None,
    }
    for name, wanted in flags.items():
        _set_flag(library, config, name, wanted)
    if options.workspace_mib is not None:
        pool, nbytes = library.trt.MemoryPoolType.WORKSPACE, options.workspace_mib << 20
        config.set_memory_pool_limit(pool, nbytes)
        if config.get_memory_pool_limit(pool) != nbytes:
            what = f'workspace_mib = {options.workspace_mib}'
            raise _rejected(library, what, 'Set another value, or remove it.')
    ignored = _set_tuning(library, config, options)
    if options.compute_capabilities:
        _set_targets(library, config, options.compute_capabilities)
    if options.hardware_compatible != 'none':
        config.hardware_compatibility_level = library.member(
            'HardwareCompatibilityLevel', options.hardware_compatible.upper()
        )
    if options.dla_core is not None:
        _set_dla(library, builder, config, options.dla_core)
    if options.plugins and options.version_compatible:
        libraries = [path for path in options.plugins if not path.endswith('.py')]
        config.plugins_to_serialize = libraries
    for profile in profiles:
        _add_profile(library, builder, config, profile)
    return ignored


def load_plugins(library: Library, plugins: Sequence[str]) -> None:
    """Load plugin libraries and run Python files; raise BackendError if one cannot be loaded."""
    for path in plugins:
        if path.endswith('.py'):
            _run_plugins(path)
            continue
        with library.log.collect() as captured:
            handle = library.trt.get_plugin_registry().load_library(path)
        if handle is None:
            raise BackendError(
                f'The plugin library {path} cannot be loaded.',
                cause='\n'.join(captured.errors),
                remedy=f'Check for missing libraries with `ldd {path}`.',
            )


@cache
def _run_plugins(path: str) -> None:
    """Run a file that registers plugins, once per process, as they cannot be registered twice."""
    try:
        run_path(path, run_name='trt_ros_plugins')
    except Exception as error:  # Of the operator's own code.
        raise BackendError(
            f'The plugins of {path} cannot be registered.',
            cause=f'{type(error).__name__}: {error}',
            remedy=f'Run `python {path}`, which must register its plugins without an error.',
        ) from error


def not_on_dla(network: Any, config: Any) -> list[str]:
    """Return the names of layers that a DLA cannot run; they fall back to the GPU."""
    layers = (network.get_layer(index) for index in range(network.num_layers))
    return [layer.name for layer in layers if not config.can_run_on_DLA(layer)]


def _set_tuning(library: Library, config: Any, options: BuildOptions) -> list[str]:
    """Set optimization level and auxiliary streams; return options without effect."""
    ignored = []
    if library.is_rtx and options.precision == 'fp32':
        # Measured with 1.5 on an H200: docs/benchmarks.md, Engines.
        ignored.append(
            f'precision fp32: {library.name} still computes float32 matrix products in TF32'
        )
    if options.io_dtypes == 'lower' and options.precision not in ('fp16', 'bf16'):
        ignored.append(f'io_dtypes lower: precision {options.precision} keeps all types')
    for option, attribute in (
        ('optimization_level', 'builder_optimization_level'),
        ('avg_timing_iterations', 'avg_timing_iterations'),
        ('aux_streams', 'max_aux_streams'),
    ):
        value = getattr(options, option)
        if value is not None:
            setattr(config, attribute, value)
            if library.is_rtx:
                ignored.append(f'{option}: {library.name} accepts it without effect')
    return ignored


def _set_dla(library: Library, builder: Any, config: Any, core: int) -> None:
    if builder.num_DLA_cores <= core:
        raise ParameterError(
            f'DLA core {core} does not exist.',
            cause=f'{library} finds {builder.num_DLA_cores} DLA cores on this machine.',
            remedy='Remove dla_core.',
        )
    config.default_device_type, config.DLA_core = library.trt.DeviceType.DLA, core


def _add_profile(library: Library, builder: Any, config: Any, profile: Profile) -> None:
    shapes = builder.create_optimization_profile()
    for each in profile:
        shapes.set_shape(each.name, each.low, each.best, each.high)
    if config.add_optimization_profile(shapes) < 0:
        remedy = 'Set min <= opt <= max shapes for all dynamic inputs.'
        raise _rejected(library, f'the profile {profile}', remedy)


def _set_flag(library: Library, config: Any, name: str, wanted: bool) -> None:
    flag = library.member('BuilderFlag', name)
    if flag is not None:
        (config.set_flag if wanted else config.clear_flag)(flag)
    if wanted != (flag is not None and config.get_flag(flag)):
        raise _rejected(library, f'{name} = {wanted}', f'Remove the option for {name}.')


def _rejected(library: Library, what: str, remedy: str) -> ParameterError:
    return ParameterError(f'{library} rejected {what}.', remedy=remedy)


def _target(name: str) -> str:
    return 'CURRENT' if name == 'current' else f'SM{name.replace(".", "")}'


def _has_target_gpu(library: Library) -> bool:
    return any(
        library.member('ComputeCapability', _target(text_of(gpu.compute_capability)))
        for gpu in nvidia_driver().gpus
    )


def _known_targets(library: Library) -> list[str]:
    names = dir(getattr(library.trt, 'ComputeCapability', None))
    numbers = sorted(int(name[2:]) for name in names if name.startswith('SM'))
    return [f'{number // 10}.{number % 10}' for number in numbers] + ['current']


def _set_targets(library: Library, config: Any, names: Sequence[str]) -> None:
    # Before set_compute_capability, which fails otherwise.
    config.num_compute_capabilities = len(names)
    for index, name in enumerate(names):
        target = library.member('ComputeCapability', _target(name))
        if not config.set_compute_capability(target, index):
            remedy = 'Remove it from compute_capabilities.'
            raise _rejected(library, f'compute capability {name}', remedy)
