"""Build options as each TensorRT takes them: set by name, refused with a reason, never dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trt_ros.driver import nvidia_driver
from trt_ros.engine.options import BuildOptions, Profile
from trt_ros.errors import BackendError, ParameterError
from trt_ros.trt import Flavour


def refuse_unsupported(flavour: Flavour, options: BuildOptions) -> None:
    """:raises ParameterError: naming the first option that this TensorRT cannot honour."""
    rtx = flavour.is_rtx
    unknown = [
        name
        for name in options.compute_capabilities
        if flavour.member('ComputeCapability', _target(name)) is None
    ]
    refusals = (
        (
            'dla_core',
            rtx and options.dla_core is not None,
            'It drives no deep learning accelerator.',
            'Leave it out, or use backend tensorrt.',
        ),
        (
            'plugins',
            rtx and bool(options.plugins),
            'It takes no plugins.',
            'Leave them out, or use backend tensorrt.',
        ),
        (
            'version_compatible',
            rtx and options.version_compatible,
            'Its engines run on the very release that built them.',
            'Leave it out, or use backend tensorrt.',
        ),
        (
            'hardware_compatible',
            rtx and options.hardware_compatible != 'none',
            'It names targets instead.',
            'Use compute_capabilities.',
        ),
        (
            'strip_weights',
            rtx and options.strip_weights and not nvidia_driver().gpus,
            'It needs a GPU to build such an engine.',
            'Build on a machine with a GPU.',
        ),
        (
            'compute_capabilities',
            not rtx and bool(options.compute_capabilities),
            'It builds for the GPU it runs on.',
            'Use hardware_compatible.',
        ),
        (
            'compute_capabilities',
            rtx and bool(unknown),
            f'It knows no {", ".join(unknown)}.',
            'Choose from ' + ', '.join(_known_targets(flavour)) + '.',
        ),
        (
            'compute_capabilities',
            'current' in options.compute_capabilities and not nvidia_driver().gpus,
            'There is no GPU here to be the current one.',
            'Name one, such as 8.6.',
        ),
        (
            'hardware_compatible',
            not rtx
            and flavour.member('HardwareCompatibilityLevel', options.hardware_compatible.upper())
            is None,
            f'It has no {options.hardware_compatible}.',
            'Choose ampere_plus, or update TensorRT.',
        ),
        (
            'strip_weights',
            options.strip_weights and options.precision in ('fp16', 'bf16'),
            'The weights come back from the ONNX file, whose types are others.',
            'Convert the ONNX file ahead, and choose precision auto.',
        ),
    )
    for option, refused, cause, remedy in refusals:
        if refused:
            raise ParameterError(f'{flavour} cannot honour {option}.', cause=cause, remedy=remedy)


def apply(
    flavour: Flavour, builder: Any, config: Any, options: BuildOptions, profiles: Sequence[Profile]
) -> list[str]:
    """
    Set an IBuilderConfig.

    :returns: what the library takes without any effect, one line each.
    :raises ParameterError: when it does not take something.
    """
    trt, rtx = flavour.trt, flavour.is_rtx
    # Without it the inspector tells nothing of precisions.
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    flags = {
        'TF32': options.precision != 'fp32',
        'VERSION_COMPATIBLE': options.version_compatible,
        'STRIP_PLAN': options.strip_weights,
        'WEIGHT_STREAMING': options.weight_streaming,
        'GPU_FALLBACK': options.dla_core is not None,
    }
    for name, wanted in flags.items():
        _set_flag(flavour, config, name, wanted)
    if options.workspace_mib is not None:
        pool, nbytes = trt.MemoryPoolType.WORKSPACE, options.workspace_mib << 20
        config.set_memory_pool_limit(pool, nbytes)
        if config.get_memory_pool_limit(pool) != nbytes:
            raise ParameterError(f'{flavour} does not take workspace_mib.')
    ignored = []
    if rtx and options.precision == 'fp32':
        # Measured with 1.5 on an H200: docs/benchmarks.md, Engines.
        ignored.append(
            f'precision fp32: {flavour.name} computes float32 products in TF32 all the same'
        )
    for option, attribute in (
        ('optimization_level', 'builder_optimization_level'),
        ('aux_streams', 'max_aux_streams'),
    ):
        value = getattr(options, option)
        if value is not None:
            setattr(config, attribute, value)
            if rtx:
                ignored.append(f'{option}: {flavour.name} takes it without effect')
    if options.compute_capabilities:
        _set_targets(flavour, config, options.compute_capabilities)
    if options.hardware_compatible != 'none':
        config.hardware_compatibility_level = flavour.member(
            'HardwareCompatibilityLevel', options.hardware_compatible.upper()
        )
    if options.dla_core is not None:
        if builder.num_DLA_cores <= options.dla_core:
            raise ParameterError(
                f'There is no DLA core {options.dla_core}.',
                cause=f'{flavour} sees {builder.num_DLA_cores} here.',
                remedy='Leave dla_core out.',
            )
        config.default_device_type, config.DLA_core = trt.DeviceType.DLA, options.dla_core
    if options.plugins and options.version_compatible:
        config.plugins_to_serialize = list(options.plugins)
    for profile in profiles:
        shapes = builder.create_optimization_profile()
        for each in profile:
            shapes.set_shape(each.name, each.low, each.best, each.high)
        if config.add_optimization_profile(shapes) < 0:
            raise ParameterError(f'{flavour} refuses the profile {profile}.')
    return ignored


def load_plugins(flavour: Flavour, plugins: Sequence[str]) -> None:
    """:raises BackendError: when a plugin library does not load."""
    for path in plugins:
        with flavour.log.collect() as captured:
            handle = flavour.trt.get_plugin_registry().load_library(path)
        if handle is None:
            raise BackendError(
                f'The plugin library {path} does not load.',
                cause='\n'.join(captured.errors),
                remedy='Try `ldd` on it.',
            )


def not_on_dla(network: Any, config: Any) -> list[str]:
    """Name the layers that a DLA cannot take, before any build; they fall back to the GPU."""
    layers = (network.get_layer(index) for index in range(network.num_layers))
    return [layer.name for layer in layers if not config.can_run_on_DLA(layer)]


def _set_flag(flavour: Flavour, config: Any, name: str, wanted: bool) -> None:
    flag = flavour.member('BuilderFlag', name)
    if flag is None:
        if wanted:
            raise ParameterError(f'{flavour} has no {name}.')
        return
    (config.set_flag if wanted else config.clear_flag)(flag)
    if config.get_flag(flag) != wanted:
        raise ParameterError(f'{flavour} does not take {name}.')


def _target(name: str) -> str:
    return 'CURRENT' if name == 'current' else f'SM{name.replace(".", "")}'


def _known_targets(flavour: Flavour) -> list[str]:
    names = dir(getattr(flavour.trt, 'ComputeCapability', None))
    numbers = sorted(int(name[2:]) for name in names if name.startswith('SM'))
    return [f'{number // 10}.{number % 10}' for number in numbers] + ['current']


def _set_targets(flavour: Flavour, config: Any, names: Sequence[str]) -> None:
    config.num_compute_capabilities = len(names)  # First: else set_ answers False.
    for index, name in enumerate(names):
        target = flavour.member('ComputeCapability', _target(name))
        if not config.set_compute_capability(target, index):
            raise ParameterError(f'{flavour} does not take compute capability {name}.')
