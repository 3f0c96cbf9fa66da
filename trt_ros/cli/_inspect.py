"""Descriptions of ONNX files, engines and bundles, and their text."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
import json
from pathlib import Path
from typing import Any

import yaml

from trt_ros.child import BUSY_FACTOR, Child, memory_limit
from trt_ros.cli._bundle import bundle_lines, describe_bundle_file, draw_bundle, propose_bundle
from trt_ros.cli._flags import refuse_without_effect
from trt_ros.driver import nvidia_driver
from trt_ros.engine.builder.layers import EngineLayer, read_engine
from trt_ros.engine.builder.model_file import check_model_file
from trt_ros.engine.files import check_trusted
from trt_ros.engine.key import OnnxFile, total_nbytes
from trt_ros.engine.open import build_summary
from trt_ros.engine.plan import is_plan, read_plan_header
from trt_ros.engine.precision import text_of
from trt_ros.engine.sidecar import read_sidecar, sidecar_path, tensors_of
from trt_ros.errors import BackendError, ModelError, ParameterError, TrtRosError, printable
from trt_ros.progress import Reporter
from trt_ros.regular_file import check_output_file, open_regular, sha256_of_file
from trt_ros.runtime.fitting import default_families, fit
from trt_ros.runtime.options import BUNDLE_SUFFIXES, ModelOptions
from trt_ros.runtime.runner import Network
from trt_ros.trt import load_trt

MAX_METADATA = 120  # Characters of a value; --json prints all.
#: Values that the sidecar of an older release may lack.
_UNKNOWN: Mapping[str, Any] = {
    'gpu': None,
    'onnx': {'path': 'an unknown model'},
    'built_at': 'an unknown time',
    'layers_from': '',
    **dict.fromkeys(('inputs', 'outputs', 'profiles', 'layers'), ()),
    **dict.fromkeys(('parser_errors', 'parser_warnings', 'build_warnings'), ()),
}


def inspect(args: Namespace) -> int:
    """Print the properties of the file; return 0."""
    is_bundle, is_folder = args.model.suffix in BUNDLE_SUFFIXES, args.model.is_dir()
    refuse_without_effect(
        ('--picture', args.picture, is_bundle, 'a bundle (.yaml)'),
        ('--layers', args.layers, not (is_bundle or is_folder), 'a single network'),
        ('--json', args.json, not is_folder, 'a file'),
    )
    if is_folder:
        paths = sorted(args.model.glob('*.onnx'))
        networks = {path.stem: describe_model(path, parsed=False) for path in paths}
        if not networks:
            raise ModelError(f'The folder {args.model} has no ONNX files.')
        proposal = yaml.safe_dump(propose_bundle(networks), sort_keys=False)
        if '- -1\n' in proposal:
            print('# Replace each -1, which is a dynamic size, by the size of a run.')
        print(proposal, end='')
        return 0
    found = describe_model(args.model, layers=args.layers)
    kind = found['kind']
    if kind != 'bundle':
        found['reading'] = _reading(args.model, found)
    if args.picture:
        if args.picture.suffix != '.svg':
            raise ParameterError(
                f'The picture {args.picture} would be an SVG file.', remedy='Name it .svg.'
            )
        check_output_file(args.picture)
        draw_bundle(found, args.picture)
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    if kind == 'bundle':
        lines = bundle_lines(found)
    else:
        lines = (_engine_lines if kind == 'engine' else _onnx_lines)(found, args.layers)
    print(*map(printable, lines), sep='\n')
    return 0


def describe_model(path: Path, *, layers: bool = False, parsed: bool = True) -> dict[str, Any]:
    """
    Return the properties of a model file, or raise ModelError.

    :param layers: with the layers of an engine.
    :param parsed: with what TensorRT, where it is installed, makes of an ONNX file.
    """
    if path.suffix in BUNDLE_SUFFIXES:
        return describe_bundle_file(path, partial(describe_model, parsed=False))
    if not is_plan(path):
        return _onnx(path, parsed=parsed)
    found = _engine(path)
    return {**found, **_layers(path, found)} if layers else found


def _onnx(path: Path, *, parsed: bool) -> dict[str, Any]:
    """Describe a model in a child process, as it is untrusted."""
    check_model_file(path)
    nbytes = total_nbytes(path)
    memory_nbytes = memory_limit(nbytes, base_nbytes=1 << 30, factor=8)
    with closing(
        Child(
            'trt_ros.engine.builder.child:describe_onnx',
            title=f'The check of {path}',
            remedy='Export or copy the model again.',
            memory_nbytes=memory_nbytes,
        )
    ) as child:
        call = partial(
            child.call,
            report=Reporter(),
            phase='checking the model',
            timeout_seconds=30.0 + nbytes / 2**22,
            busy_factor=BUSY_FACTOR,
        )
        found = {**call({'path': str(path)}), 'build_refuses': ''}
        if not parsed:
            return found
        try:
            library = load_trt()
            found |= {'library': library.name, 'tensorrt': library.version_text}
            found |= call({'path': str(path), 'library': library.name})
        except TrtRosError as error:
            found['build_refuses'] = str(error)
        return found


def _reading(path: Path, found: Mapping[str, Any]) -> list[str]:
    """Return how a pipeline would read the network, without running it; or why not."""
    if not found.get('outputs'):  # Of an engine without a sidecar.
        return []
    network, options = Network(), ModelOptions(str(path))
    network.inputs, network.outputs = tensors_of(found)
    network.metadata = found.get('metadata', {})
    try:
        decoder, *others = fit(network, options, default_families(network, options)).log_lines
        return [f'{decoder} (by names and shapes: the network is not run)', *others]
    except TrtRosError as error:
        return str(error).splitlines()


def _engine(path: Path) -> dict[str, Any]:
    header = read_plan_header(path)
    sidecar = read_sidecar(path) if sidecar_path(path).exists() else {}
    intact = sidecar['plan_sha256'] == sha256_of_file(path) if 'plan_sha256' in sidecar else None
    return {
        **({**_UNKNOWN, **sidecar} if sidecar else {}),
        'file': str(path),
        'kind': 'engine',
        'nbytes': path.stat().st_size,
        'library': header.library,
        'tensorrt': header.version_text,
        'compute_capabilities': ' '.join(map(text_of, header.compute_capabilities)),
        'matches_sidecar': intact,
        'onnx_changed': _is_changed(sidecar.get('onnx', {})),
        'usable_here': _usable(header),
    }


def _is_changed(onnx: Mapping[str, Any]) -> bool:
    """Return whether the ONNX file of a sidecar is here with other contents."""
    try:
        now = OnnxFile.read(Path(onnx.get('path', '')))
    except (ModelError, OSError, ValueError):
        return False
    known = onnx.get('sha256', now.sha256), onnx.get('external', [])
    return (now.sha256, [list(each) for each in now.external]) != known


def _layers(path: Path, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers of an engine, else of its sidecar; raises ModelError without both."""
    reason = found['usable_here'].removeprefix('no: ')
    if found['usable_here'] == 'yes':
        try:
            check_trusted(path)
            with open_regular(path) as file:
                read = asdict(read_engine(load_trt(found['library']), file.read()))
            return {**read, 'layers_from': 'engine', 'not_loaded': ''}
        except TrtRosError as error:  # Of another GPU, or with plugins.
            reason = error.cause or error.problem
    if not (found['matches_sidecar'] and found['layers']):
        raise ModelError(
            f'The layers of {path} cannot be read.',
            cause=reason,
            remedy='Run this on a machine where the engine runs.',
        )
    stored = [asdict(EngineLayer.read(entry)) for entry in found['layers']]
    return {'layers': stored, 'not_loaded': reason}


def _usable(header: Any) -> str:
    try:
        library = load_trt(header.library)
    except BackendError as error:
        return f'no: {error.problem}'
    if library.is_rtx and library.version != header.version:
        return f'no: {library} is installed'
    return f'no: {nvidia_driver().problem}' if nvidia_driver().problem else 'yes'


def _onnx_lines(found: Mapping[str, Any], layers: bool) -> Iterator[str]:
    yield f'{found["file"]}: ONNX opset {found["opset"]}, {_size(found["nbytes"])}'
    if found['producer']:
        yield f'made by {found["producer"]}'
    yield from _io_lines(found)
    if found['external_data']:
        yield f'weights in {", ".join(found["external_data"])}'
    yield f'floats: {", ".join(found["float_types"]) or "none"}'
    ops = [f'{op} {count}' for op, count in found['ops'].items()]
    yield f'{sum(found["ops"].values())} operators' + ('' if layers else f' of {len(ops)} kinds')
    if layers:
        yield from (f'  {op}' for op in ops)
    yield from (f'metadata {key}: {_short(value)}' for key, value in found['metadata'].items())
    yield from found['reading']
    yield from build_summary({**found, 'advice': (), 'gpu': nvidia_driver().gpus[:1]})
    yield from (f'advice: {line}' for line in found['advice'])
    yield from (f'warning: {line}' for line in found['warnings'])
    if found['build_refuses']:
        known = 'warning: build refuses it' if 'library' in found else 'not parsed by TensorRT'
        yield f'{known}: {found["build_refuses"]}'.replace('\n', ' ')


def _engine_lines(found: Mapping[str, Any], layers: bool) -> Iterator[str]:
    from trt_ros.engine.builder.advice import advise_on_layers  # Imports onnx.

    yield (
        f'{found["file"]}: engine of {found["library"]} {found["tensorrt"]}, '
        f'{_size(found["nbytes"])}'
    )
    yield f'usable here: {found["usable_here"]}'
    if found['compute_capabilities']:
        yield f'compute capabilities: {found["compute_capabilities"]}, and newer ones'
    if found['matches_sidecar'] is None:
        yield 'no sidecar: inputs, outputs and origin are unknown'
        if layers:
            yield from _layer_lines(found)
        return
    if not found['matches_sidecar']:
        yield 'warning: the engine differs from the one its sidecar describes'
    model, when = found['onnx']['path'], found['built_at']
    if 'key' in found:
        gpu = found['gpu']['name'] if found['gpu'] else 'a machine without GPU'
        yield f'built from {model} at {when} on {gpu}'
    else:
        yield f'adopted with {model} at {when}'
    if found['onnx_changed']:
        yield f'warning: {model} has changed since'
    yield from _io_lines(found)
    for profile in found['profiles']:
        yield 'profile: ' + ', '.join(
            f'{each["name"]} {_shape(each["low"])} to {_shape(each["high"])}, '
            f'best {_shape(each["best"])}'
            for each in profile
        )
    yield from build_summary(found)
    yield from found['reading']
    if layers:
        yield from _layer_lines(found)
    known = [EngineLayer.read(entry) for entry in found['layers']]
    precision = found.get('options', {}).get('precision', 'auto')
    is_fused = found['layers_from'] == 'engine'
    advice = advise_on_layers(known, precision, is_fused=is_fused)
    yield from (f'advice: {line}' for line in advice)
    for kind in ('parser_errors', 'parser_warnings', 'build_warnings'):
        yield from (f'{kind[:-1].replace("_", " ")}: {line}' for line in found[kind])


def _layer_lines(found: Mapping[str, Any]) -> Iterator[str]:
    layers = [EngineLayer.read(entry) for entry in found['layers']]
    yield from ('  ' + _layer_text(layer) for layer in layers)
    if found['not_loaded']:
        kind = 'engine' if found['layers_from'] == 'engine' else 'network before fusion'
        yield f'{len(layers)} layers of the {kind}, as reported when it was built'
        if kind != 'engine':
            yield (
                'kernels, formats and fused layers are unknown without loading the engine: '
                f'{found["not_loaded"]}'
            )
        return
    weights, activations = found['weights_nbytes'], found['activations_nbytes']
    yield (
        f'{len(layers)} layers of the engine'
        + ('' if weights is None else f', weights {_size(weights)}')
        + f', activations {_size(activations)}'
    )
    if found['verbosity'] != 'DETAILED':
        yield (
            f'warning: the engine was built with profiling verbosity {found["verbosity"]}: types, '
            'formats, kernels and memory of its layers are unknown. Build it with trt-ros build, '
            'or with trtexec --profilingVerbosity=detailed'
        )


def _layer_text(layer: Any) -> str:
    shape = _shape(layer.shape) if layer.shape else ''
    output, weights = layer.output_nbytes, layer.weights_nbytes
    parts = (
        ' '.join(filter(None, (layer.name, layer.kind, layer.dtype, shape))),
        '' if output is None else f'output {output / 2**10:.1f} KiB',
        '' if weights is None else f'weights {weights / 2**10:.1f} KiB',
        layer.tactic and f'kernel {layer.tactic}',
        layer.format and f'format {layer.format}',
    )
    return ', '.join(filter(None, parts))


def _io_lines(found: Mapping[str, Any]) -> Iterator[str]:
    for mode in ('inputs', 'outputs'):
        for each in found[mode]:
            yield f'{mode[:-1]} {each["name"]} {_shape(each["shape"])} {each["dtype"]}'


def _short(text: str) -> str:
    is_short = len(text) <= MAX_METADATA
    return text if is_short else f'{text[:MAX_METADATA]} .. ({len(text)} characters)'


def _shape(shape: list[int]) -> str:
    return 'x'.join('?' if size < 0 else str(size) for size in shape) or 'scalar'


def _size(nbytes: int) -> str:
    return f'{nbytes / 2**20:.1f} MiB'
