"""Files of bundles, in the format of LEAPP and of Isaac ROS."""

from collections.abc import Collection, Iterable, Iterator, Mapping
import json
import math
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import yaml

from trt_ros.errors import ModelError, similar
from trt_ros.model.bundle import Bundle, Group, NetworkFile, Port, ports_of
from trt_ros.model.document import Document, Node
from trt_ros.model.kinds import BINDINGS
from trt_ros.regular_file import MAX_TEXT_NBYTES, read_regular, sha256_of_file
from trt_ros.tensors import INTEGERS, TensorSpec

MAX_STEPS = 1000
DTYPES = ('float16', 'float32', 'float64', 'bfloat16', *INTEGERS, 'bool')
#: Backends of networks in files that are not ONNX.
OTHER_FILES = ('jit', 'pt2')
#: The keys of a bundle; the last ones of each are those of LEAPP and Isaac that have no effect.
_KEYS = yaml.safe_load("""
models:
  '*':
    inputs: [{name, dtype, shape, kind, element_names, initial_noise, history_length, history,
              include_current_in_history, include_current_value_in_history,
              type, source, temporal_period_ms, isaaclab_connection}]
    outputs: [{name, dtype, shape, kind, element_names,
               type, source, temporal_period_ms, isaaclab_connection}]
    parameters: {model_path, sha256sum, backend, md5sum, device, opset_version, warp_segments}
    options:
    formatting:
pipeline: {inputs, outputs, data_flow, feedback_flow, feedback_connections, initial_values,
           loops: [{models, steps, carry, values}], configs: {frequency}, regions, turns}
system information:
""")


def read_bundle(path: str | Path) -> Bundle:
    """
    Read a bundle; its networks are not opened.

    :raises ModelError: when the file, or one that it names, cannot be read, or contradicts itself;
        the error names the line.
    """
    return _Reader(_document(path)).bundle()


def has_regions(path: str | Path) -> bool:
    """Return whether a bundle has a network for objects; reads the YAML, or raises ModelError."""
    return bool(_document(path)['pipeline']['regions'].get(dict, {}))


def _document(path: str | Path) -> Node:
    path = Path(path).expanduser()
    try:
        text = read_regular(path, MAX_TEXT_NBYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f'The bundle {path} cannot be read.', cause=str(error)) from error
    return Node(Document(path, text))


class _Reader:
    def __init__(self, root: Node) -> None:
        self.path = root.document.path
        self.models, self.pipeline = root['models'], root['pipeline']
        root.check_keys({**dict.fromkeys(root.document.shared), **_KEYS})
        if not self.models.get(dict):
            self.models.refuse('The bundle has no networks.')
        self.networks = {name: self._network(name) for name in self.models.get(dict)}
        self.inputs = ports_of(self.networks, 'input')
        self.outputs = ports_of(self.networks, 'output')

    def _network(self, name: str) -> NetworkFile:
        node = self.models[name]
        if '/' in name or not name:
            node.refuse(f'The name {name!r} has a slash, or is empty.')
        backend = node['parameters']['backend']
        if backend.get(str, 'onnx') in OTHER_FILES:
            backend.refuse(
                f'The network is a file of {backend.value}, which TensorRT and ONNX Runtime do '
                'not run.',
                "Export it with annotate.output_tensors(.., export_with='onnx').",
            )
        path = self._file(node['parameters']['model_path'])
        digest = node['parameters']['sha256sum']
        wanted = digest.get(str, '')
        if wanted and sha256_of_file(path) != wanted.lower():
            digest.refuse(
                f'The SHA-256 of {path} is another one.',
                'Copy the file again, or export the bundle again.',
            )
        inputs = self._declared(node['inputs'], 'input')
        return NetworkFile(name, path, inputs, self._declared(node['outputs'], 'output'))

    def _file(self, node: Node) -> Path:
        name, folder = str(node.get(str)), self.path.parent
        path, pure = folder / name, PurePosixPath(name)
        if pure.is_absolute() or '..' in pure.parts or not name:
            node.refuse(f'The path {name!r} leaves the folder of the bundle.')
        if not path.resolve().is_relative_to(folder.resolve()):
            node.refuse(f'The path {name!r} is a link out of the folder of the bundle.')
        if not path.is_file():
            node.refuse(f'The file {path} does not exist.', 'Copy the whole folder of the bundle.')
        return path

    def _declared(self, ports: Node, mode: Any) -> dict[str, Port]:
        found: dict[str, Port] = {}
        for node in ports.items():
            port = self._port(node, mode)
            if port.spec.name in found:
                node.refuse(f'The {mode} {port.spec.name} is declared twice.')
            found[port.spec.name] = port
        return found

    def _port(self, node: Node, mode: Any) -> Port:
        name = node['name'].get(str)
        dtype = node['dtype'].get(str, 'float32').removeprefix('torch.')
        node['dtype'].check_name('type', dtype, DTYPES)
        shape, count = self._shape(node['shape']), self._history(node)
        kind = node['kind'].get(str, '')
        near = similar(kind, BINDINGS, 0.9)  # Less alike, it is another one: it may be any text.
        if near and kind not in near:
            node['kind'].refuse(f'Unknown kind {kind!r}. Did you mean {near[0]!r}?')
        return Port(
            TensorSpec(name, shape, dtype, mode),
            kind,
            self._element_names(node['element_names'], shape),
            f'history={count}' if count > 1 else '',
            node['initial_noise'].get(bool, False),
        )

    def _history(self, node: Node) -> int:
        for key in ('history_length', 'history'):
            if node[key].value is not None:
                count: int = node[key].get(int)
                words = ('include_current_in_history', 'include_current_value_in_history')
                if count < 0 or any(node[each].value is False for each in words):
                    node[key].refuse('Only histories that end with the present value are run.')
                return count
        return 0

    def _shape(self, node: Node) -> tuple[int, ...]:
        value = node.value
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                node.refuse(f'{value!r} is no list of integers.')
        if not isinstance(value, list) or any(type(size) is not int or size < 1 for size in value):
            node.refuse(f'A list of positive integers is expected, not {value!r}.')
        return tuple(value)

    def _element_names(self, node: Node, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Return the names of the last axis; those of axes are aligned at the right."""
        last = node.value
        if not isinstance(last, list) or not last:
            return ()
        if any(isinstance(each, list) or each is None for each in last):
            last = last[-1]
        if not last or last == '__temporal_axis__':
            return ()
        if not isinstance(last, list) or not all(isinstance(each, str) for each in last):
            node.refuse('Names of an axis are a list of texts.')
        if not shape or len(last) != shape[-1]:
            node.refuse(f'There are {len(last)} names for the last axis of the shape {shape}.')
        if len(set(last)) < len(last):
            node.refuse(f'A name occurs twice: {", ".join(last)}.')
        return tuple(last)

    def bundle(self) -> Bundle:
        if self.pipeline['regions'].get(dict, {}) or self.pipeline['turns'].get(dict, {}):
            return self._of_regions()
        self._refuse_options(self.networks)
        groups = tuple(self._groups())
        flow = self._connections(self.pipeline['data_flow'])
        feedback = self._connections(
            self.pipeline['feedback_flow'], self.pipeline['feedback_connections']
        )
        self._check_order(flow)
        self._check_sources(flow, feedback, groups)
        initial = self.pipeline['initial_values']
        if initial.get(str, '') and not feedback:
            initial.refuse('There is no feedback, whose first values these are.')
        return Bundle(
            self.path,
            self.networks,
            groups,
            flow,
            feedback,
            tuple(self._listed('outputs', self.outputs)) or tuple(self.outputs),
            self._file(initial) if initial.get(str, '') else None,
            self._frequency(),
        )

    def _of_regions(self) -> Bundle:
        """Return a bundle of a detector, a network for its objects, and one that turns them."""
        *first, target = self.networks
        turning = self.pipeline['turns'].get(dict, {})
        if (
            self.pipeline['regions'].value != {name: target for name in first[:1]}
            or turning != dict([first] if len(first) == 2 else [])
            or len(first) > 2
        ):
            self.pipeline['regions'].refuse(
                'Regions lead from the first of two models to the second; of three, turns lead to '
                'the second, and regions to the third.',
                'Write {DETECTOR: CLASSIFIER}, with the names of the models.',
            )
        for key in self.pipeline.get(dict).keys() - {'regions', 'turns'}:
            self.pipeline[key].refuse('Nothing but regions connects these models.')
        for name in self.networks:
            for key in self.models[name].get(dict).keys() - {'parameters', 'options'}:
                self.models[name][key].refuse('Models of regions have the tensors of the file.')
        self._refuse_options(first[:1])
        options = {}
        for name in (*first[1:], target):
            node = self.models[name]['options']
            options[name] = dict(node.get(dict, {}))
            if 'labels_path' in options[name]:
                options[name]['labels_path'] = str(self._file(node['labels_path']))
        return Bundle(self.path, self.networks, (), {}, {}, (), region_options=options)

    def _refuse_options(self, names: Iterable[str]) -> None:
        for name in names:
            if 'options' in self.models[name].get(dict):
                self.models[name]['options'].refuse(
                    'Only models for regions have options; those of others are the parameters of '
                    'the node.'
                )

    def _connections(self, *nodes: Node) -> dict[str, str]:
        """Return the output that each connected input gets."""
        found: dict[str, str] = {}
        given = [(node[output], output) for node in nodes for output in node.get(dict, {})]
        for here, output in given:
            names = here.value
            here.check_name('output', output, self.outputs)
            for name in names if isinstance(names, list) else [names]:
                here.check_name('input', name, self.inputs)
                source, target = self.outputs[output].spec, self.inputs[name].spec
                if (source.shape, source.dtype) != (target.shape, target.dtype):
                    here.refuse(f'The output {source} does not fit the input {target}.')
                if name in found:
                    here.refuse(f'The input {name} has two sources.')
                found[name] = output
        return found

    def _listed(self, key: str, ports: Mapping[str, Port]) -> Iterator[str]:
        """Yield the inputs or outputs of the bundle as `pipeline` lists them."""
        self.pipeline[key].check_keys(dict.fromkeys(self.networks))
        for network in self.pipeline[key].get(dict, {}):
            for node in self.pipeline[key][network].items():
                name = f'{network}/{node.value}'
                node.check_name(key[:-1], name, ports)
                yield name

    def _check_order(self, flow: Mapping[str, str]) -> None:
        order = {name: i for i, name in enumerate(self.networks)}
        for target, source in flow.items():
            if order[source.partition('/')[0]] >= order[target.partition('/')[0]]:
                self.pipeline['data_flow'][source].refuse(
                    f'{source} is computed after its use as {target}: models run in their order.',
                    'Order the models as they run, or use feedback_flow.',
                )

    def _check_sources(
        self, flow: Mapping[str, str], feedback: Mapping[str, str], groups: tuple[Group, ...]
    ) -> None:
        given: Mapping[str, Collection[str]] = {
            'pipeline/inputs': set(self._listed('inputs', self.inputs)),
            'data_flow': flow,
            'feedback': feedback,
            'values of a loop': {name for group in groups for name in group.values},
        }
        for name in self.inputs:
            sources = [text for text, names in given.items() if name in names]
            if not sources:
                self.pipeline['inputs'].refuse(
                    f'The input {name} has no source.',
                    'List it in pipeline/inputs, or connect it.',
                )
            if len(sources) > 1:
                self.pipeline['inputs'].refuse(f'The input {name} has two sources: {sources}.')
            port = self.inputs[name]
            key = 'initial_noise' if port.is_noise else 'a history' if port.settings else ''
            if key and sources != ['pipeline/inputs']:
                self.pipeline['inputs'].refuse(
                    f'The input {name} has {key}, and another source: {sources[0]}.'
                )

    def _groups(self) -> Iterator[Group]:
        """Yield the networks in order, those of a loop together."""
        names = list(self.networks)
        loops = map(self._loop, self.pipeline['loops'].items())
        starts = {names.index(loop.networks[0]): loop for loop in loops}
        i = 0
        while i < len(names):
            group = starts.pop(i, Group((names[i],)))
            if group.networks != tuple(names[i : i + len(group.networks)]):
                starts[i] = group
                break
            yield group
            i += len(group.networks)
        if starts:
            self.pipeline['loops'].refuse(
                'The models of a loop follow each other, and are in one loop only.'
            )

    def _loop(self, node: Node) -> Group:
        networks = tuple(node['models'].get(list))
        for name in networks:
            node['models'].check_name('model', name, self.networks)
        if not networks:
            node['models'].refuse('The loop has no models.')
        steps = node['steps'].get(int)
        if not 1 <= steps <= MAX_STEPS:
            node['steps'].refuse(f'{steps} is not from 1 to {MAX_STEPS}.')
        carry, given = self._connections(node['carry']), node['values']
        values = {name: self._values(given[name], name, steps) for name in given.get(dict, {})}
        for name in (*carry, *carry.values(), *values):
            if name.partition('/')[0] not in networks:
                node.refuse(f'{name} is not of a model of the loop.')
        return Group(networks, steps, carry, values)

    def _values(self, node: Node, name: str, steps: int) -> np.ndarray:
        """Return the values of an input in each step: a list, a .npy file, or `counter`."""
        node.check_name('input', name, self.inputs)
        spec, given = self.inputs[name].spec, node.value
        try:
            if given == 'counter':
                given = list(range(steps))
            elif isinstance(given, str):
                given = np.load(self._file(node), allow_pickle=False)
            found = np.asarray(given)
            if found.shape == (steps,):
                found = found.reshape(steps, *[1] * len(spec.shape))
                found = np.broadcast_to(found, (steps, *spec.shape))
            if found.shape != (steps, *spec.shape) or spec.dtype == 'bfloat16':
                raise ValueError(f'The shape is {found.shape}; the input is {spec}.')
            return np.ascontiguousarray(found, spec.dtype)
        except (OSError, TypeError, ValueError) as error:
            node.refuse(f'{steps} values of the input are expected. {error}')

    def _frequency(self) -> float | None:
        node = self.pipeline['configs']['frequency']
        value = node.value
        if value is None or (type(value) in (int, float) and 0 < value < math.inf):
            return value and float(value)
        node.refuse(f'{value!r} is no frequency above 0 Hz.')
