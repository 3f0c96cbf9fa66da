"""Bundles described as text and as a picture, and proposed for a folder of networks."""

from collections.abc import Callable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from trt_ros.engine.sidecar import tensors_of
from trt_ros.model.bundle import Bundle
from trt_ros.model.leapp import read_bundle
from trt_ros.regular_file import write_text

WIDTH, GAP, ROW = 260, 300, 18  # Of a network in a picture, in pixels.
SHOWN = 45  # Characters of a source in a picture: as many as the gap is wide.
NEXT_RUN = ' of the previous run'


def describe_bundle_file(path: Path, describe: Callable[[Path], Any]) -> dict[str, Any]:
    """Return a bundle's networks, their sources and targets; ModelError where files are others."""
    bundle = read_bundle(path)
    first, regions = next(iter(bundle.networks)), bundle.region_options
    networks = {}
    for name, network in bundle.networks.items():
        inputs, outputs = tensors_of(describe(network.path))
        if regions is None:
            if outputs:  # An engine without a sidecar has none.
                network.check(inputs, outputs)
            inputs = tuple(each.spec for each in network.inputs.values())
            outputs = tuple(each.spec for each in network.outputs.values())
        networks[name] = {
            'file': str(network.path),
            'inputs': {
                each.name: {'tensor': str(each), 'from': _source(bundle, f'{name}/{each.name}')}
                for each in inputs
            },
            'outputs': {
                each.name: {'tensor': str(each), 'to': _targets(bundle, f'{name}/{each.name}')}
                for each in outputs
            },
        }
    found: dict[str, Any] = {
        'file': str(path),
        'kind': 'bundle',
        'frequency': bundle.frequency,
        'networks': networks,
        'loops': [
            {'models': list(group.networks), 'steps': group.steps}
            for group in bundle.groups
            if group.steps > 1
        ],
        'bindings': list(bundle.bindings),
        'outputs': list(bundle.default_outputs),
    }
    if regions is not None:
        found['regions'] = {'of': first, **regions[name]}
        found['outputs'] = [f'objects of {first}, with the results of their regions']
    return found


def _source(bundle: Bundle, name: str) -> str:
    if bundle.region_options is not None:
        first = next(iter(bundle.networks))
        return 'image' if name.startswith(f'{first}/') else f'regions of {first}'
    for group in bundle.groups:
        if name in group.values:
            return 'a value per step'
    if name in bundle.feedback:
        return f'{bundle.feedback[name]}{NEXT_RUN}'
    if name in bundle.flow:
        return bundle.flow[name]
    binding = bundle.input_ports[name].binding(bundle.names[name])
    return binding.partition('=')[2]


def _targets(bundle: Bundle, name: str) -> list[str]:
    later = [target for target, source in bundle.feedback.items() if source == name]
    steps = [
        target
        for group in bundle.groups
        for target, source in group.carry.items()
        if source == name
    ]
    return [
        *(target for target, source in bundle.flow.items() if source == name),
        *(f'{target} in the next step' for target in steps),
        *(f'{target} in the next run' for target in later),
        *(['outside'] if name in bundle.chosen or bundle.region_options is not None else []),
    ]


def bundle_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the description of a bundle as text."""
    frequency = f', {found["frequency"]:g} Hz' if found['frequency'] else ''
    yield f'{found["file"]}: bundle of {len(found["networks"])} networks{frequency}'
    for name, network in found['networks'].items():
        yield f'{name}: {network["file"]}'
        yield from (f'  {each["tensor"]} <- {each["from"]}' for each in network['inputs'].values())
        for each in network['outputs'].values():
            yield f'  {each["tensor"]} -> {", ".join(each["to"]) or "unused"}'
    for loop in found['loops']:
        yield f'loop of {loop["steps"]} steps: {", ".join(loop["models"])}'
    for key, value in found.get('regions', {}).items():
        yield f'regions {key}: {value}'
    yield f'outputs: {", ".join(found["outputs"])}'


def draw_bundle(found: Mapping[str, Any], path: Path) -> None:
    """Write an SVG picture: a box per network; dashed lines lead to the next run."""
    parts: list[str] = []
    outputs: dict[str, tuple[int, int]] = {}
    back: list[tuple[tuple[int, int], tuple[int, int]]] = []
    bottom = 0
    # Sources of inputs may be networks on the right.
    for column, (name, network) in enumerate(found['networks'].items()):
        for row, port in enumerate(network['outputs'], len(network['inputs'])):
            outputs[f'{name}/{port}'] = (GAP + column * (WIDTH + GAP) + WIDTH, _y(row))
    for column, (name, network) in enumerate(found['networks'].items()):
        left, rows = GAP + column * (WIDTH + GAP), len(network['inputs'] | network['outputs'])
        bottom = max(bottom, _y(rows))
        parts.append(
            f'<rect x="{left}" y="20" width="{WIDTH}" height="{_y(rows) - 20}" fill="#eef" '
            'stroke="#447"/>' + _text(left + 8, _y(-1), name)
        )
        for row, each in enumerate(network['inputs'].values()):
            parts.append(_text(left + 8, _y(row), each['tensor']))
            start = outputs.get(each['from'].removesuffix(NEXT_RUN))
            if start is None:
                source, settings = each['from'].partition('?')[::2]
                text = source[:SHOWN] + ('..' if settings or len(source) > SHOWN else '')
                parts.append(_text(left - 8, _y(row), text, 'end'))
            elif each['from'].endswith(NEXT_RUN):
                back.append((start, (left, _y(row))))
            else:
                parts.append(_path(f'M{start[0]} {start[1] - 4} L{left} {_y(row) - 4}'))
        for row, each in enumerate(network['outputs'].values(), len(network['inputs'])):
            parts.append(_text(left + WIDTH - 8, _y(row), each['tensor'], 'end'))
            if 'outside' in each['to']:
                parts.append(_text(left + WIDTH + 8, _y(row), 'outside'))
    for number, ((x, y), (to_x, to_y)) in enumerate(back, 1):
        side, below = 6 * number, bottom + 12 * number
        route = f'h{side} V{below} H{to_x - side} V{to_y - 4} h{side}'
        parts.append(_path(f'M{x} {y - 4} {route}', ' stroke-dasharray="4"'))
    width = GAP + len(found['networks']) * (WIDTH + GAP)
    write_text(
        path,
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{bottom + 12 * len(back) + 20}" '
        f'font-family="sans-serif" font-size="12">{"".join(parts)}</svg>\n',
        'Choose another file with --picture.',
    )


def _y(row: int) -> int:
    return 60 + ROW * row


def _text(x: int, y: int, text: str, anchor: str = 'start') -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _path(route: str, more: str = '') -> str:
    return f'<path d="{route}" fill="none" stroke="#447"{more}/>'


def propose_bundle(networks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """
    Return the file of a bundle of networks whose names and shapes match.

    An input gets the output of its name, of an earlier network; else, of a later one or its own,
    that of the run before.

    :param networks: as `describe_model` returns them, by name.
    """
    outputs = {
        f'{name}/{each["name"]}': each
        for name, found in networks.items()
        for each in found['outputs']
    }
    sources = {
        f'{name}/{each["name"]}': _likely_source(name, each, outputs)
        for name, found in networks.items()
        for each in found['inputs']
    }
    order = _sorted(list(networks), sources)
    rank = {name: i for i, name in enumerate(order)}
    pipeline: dict[str, Any] = {'inputs': {}, 'outputs': {}, 'data_flow': {}, 'feedback_flow': {}}
    for target, source in sources.items():
        network, _, port = target.partition('/')
        if source is None:
            pipeline['inputs'].setdefault(network, []).append(port)
        else:
            is_later = rank[source.partition('/')[0]] >= rank[network]
            flow = pipeline['feedback_flow' if is_later else 'data_flow']
            flow.setdefault(source, []).append(target)
    used = set(sources.values())
    for name in outputs:
        if name not in used:
            network, _, port = name.partition('/')
            pipeline['outputs'].setdefault(network, []).append(port)
    keys = ('name', 'dtype', 'shape')
    models = {
        name: {
            **{
                mode: [{key: each[key] for key in keys} for each in networks[name][mode]]
                for mode in ('inputs', 'outputs')
            },
            'parameters': {'model_path': f'{name}.onnx', 'sha256sum': networks[name]['sha256']},
        }
        for name in order
    }
    return {'models': models, 'pipeline': pipeline}


#: Ends of the names of an output whose next value has the name without it.
STATE_ENDS = ('', '_next', '_out', '_new', 'n', '_n')


def _likely_source(
    network: str, port: Mapping[str, Any], outputs: Mapping[str, Any]
) -> str | None:
    """Return the output that an input gets: of its name, another network's first; or None."""
    stem = port['name'].removesuffix('_in')
    found = [
        name
        for name, each in outputs.items()
        if each['name'] in [stem + end for end in STATE_ENDS]
        and (each['shape'], each['dtype']) == (port['shape'], port['dtype'])
    ]
    others = [name for name in found if name.partition('/')[0] != network]
    return next(iter(others or found), None)


def _sorted(names: list[str], sources: Mapping[str, str | None]) -> list[str]:
    """Return the networks so that sources come first, where there is no circle."""
    order: list[str] = []
    while names:
        free = [
            name
            for name in names
            if not any(
                source and source.partition('/')[0] in names and source.partition('/')[0] != name
                for target, source in sources.items()
                if target.partition('/')[0] == name
            )
        ]
        order.append(next(iter(free or names)))
        names.remove(order[-1])
    return order
