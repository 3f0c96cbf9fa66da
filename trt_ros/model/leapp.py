"""Files of bundles, in the format of LEAPP and of Isaac ROS."""

from collections.abc import Iterator, Mapping
import json
import math
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from trt_ros.errors import ModelError, meant
from trt_ros.model.bundle import Bundle, Group, NetworkFile, Port
from trt_ros.model.document import Document, Place
from trt_ros.regular_file import MAX_TEXT_NBYTES, read_regular, sha256_of_file
from trt_ros.tensors import TensorSpec

MAX_STEPS = 1000
FLOATS = ('float16', 'float32', 'float64', 'bfloat16')
INTEGERS = tuple(f'{sign}int{bits}' for sign in ('', 'u') for bits in (8, 16, 32, 64))
DTYPES = (*FLOATS, *INTEGERS, 'bool')
#: Backends of networks in files that are not ONNX.
OTHER_FILES = ('jit', 'pt2')
_TEMPORAL = '__temporal_axis__'


def read_bundle(path: str | Path) -> Bundle:
    """
    Read a bundle; its networks are not opened.

    :raises ModelError: when the file, or one that it names, cannot be read, or contradicts itself;
        the error names the line.
    """
    return _Reader(_document(path)).bundle()


def has_regions(path: str | Path) -> bool:
    """Return whether a bundle has a network for objects; reads the YAML, or raises ModelError."""
    return _has_regions(_document(path))


def _has_regions(document: Document) -> bool:
    return bool(document.get(('pipeline', 'regions'), dict, {}))


def _document(path: str | Path) -> Document:
    path = Path(path).expanduser()
    try:
        text = read_regular(path, MAX_TEXT_NBYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f'The bundle {path} cannot be read.', cause=str(error)) from error
    return Document(path, text)


class _Reader:
    def __init__(self, document: Document) -> None:
        self.path, self.folder = document.path, document.path.parent
        self._document = document
        self.refuse, self.get = document.refuse, document.get
        names = self.get(('models',), dict)
        if not names:
            self.refuse(('models',), 'The bundle has no networks.')
        self.networks = {name: self._network(name) for name in names}
        self.inputs = self._ports('inputs')
        self.outputs = self._ports('outputs')

    def _ports(self, mode: str) -> dict[str, Port]:
        return {
            f'{network.name}/{name}': port
            for network in self.networks.values()
            for name, port in getattr(network, mode).items()
        }

    def _network(self, name: str) -> NetworkFile:
        place: Place = ('models', name)
        if '/' in name or not name:
            self.refuse(place, f'The name {name!r} has a slash, or is empty.')
        parameters: Place = (*place, 'parameters')
        backend = self.get((*parameters, 'backend'), str, 'onnx')
        if backend in OTHER_FILES:
            self.refuse(
                (*parameters, 'backend'),
                f'The network is a file of {backend}, which TensorRT and ONNX Runtime do not run.',
                "Export it with annotate.output_tensors(.., export_with='onnx').",
            )
        return NetworkFile(
            name,
            self._model(parameters),
            self._declared((*place, 'inputs'), 'input'),
            self._declared((*place, 'outputs'), 'output'),
        )

    def _model(self, parameters: Place) -> Path:
        place: Place = (*parameters, 'model_path')
        path = self._file(place, self.get(place, str))
        wanted = self.get((*parameters, 'sha256sum'), str, '')
        if wanted and sha256_of_file(path) != wanted.lower():
            self.refuse(
                (*parameters, 'sha256sum'),
                f'The SHA-256 of {path} is another one.',
                'Copy the file again, or export the bundle again.',
            )
        return path

    def _file(self, place: Place, name: str) -> Path:
        path = self.folder / name
        pure = PurePosixPath(name)
        if pure.is_absolute() or '..' in pure.parts or not name:
            self.refuse(place, f'The path {name!r} leaves the folder of the bundle.')
        if not path.resolve().is_relative_to(self.folder.resolve()):
            self.refuse(place, f'The path {name!r} is a link out of the folder of the bundle.')
        if not path.is_file():
            self.refuse(
                place, f'The file {path} does not exist.', 'Copy the whole folder of the bundle.'
            )
        return path

    def _declared(self, place: Place, mode: Any) -> dict[str, Port]:
        found: dict[str, Port] = {}
        for i, _ in enumerate(self.get(place, list, [])):
            port = self._port((*place, i), mode)
            if port.spec.name in found:
                self.refuse((*place, i), f'The {mode} {port.spec.name} is declared twice.')
            found[port.spec.name] = port
        return found

    def _port(self, place: Place, mode: Any) -> Port:
        name = self.get((*place, 'name'), str)
        dtype = self.get((*place, 'dtype'), str, 'float32').removeprefix('torch.')
        if dtype not in DTYPES:
            self.refuse(
                (*place, 'dtype'), f'Unknown type {dtype!r}. {meant(dtype, DTYPES)}'.strip()
            )
        shape = self._shape((*place, 'shape'))
        names = self._element_names((*place, 'element_names'), shape)
        kind = self.get((*place, 'kind'), str, '')
        count = self._history(place)
        return Port(
            TensorSpec(name, shape, dtype, mode),
            kind,
            names,
            f'history={count}' if count > 1 else '',
            mode == 'input' and bool(self.get(place, dict).get('initial_noise')),
        )

    def _history(self, place: Place) -> int:
        for key in ('history_length', 'history'):
            if self.get(place, dict).get(key) is not None:
                count: int = self.get((*place, key), int)
                if count < 0 or self.get(place, dict).get('include_current_in_history') is False:
                    self.refuse(
                        (*place, key), 'Only histories that end with the present value are run.'
                    )
                return count
        return 0

    def _shape(self, place: Place) -> tuple[int, ...]:
        value = self.get(place[:-1], dict).get('shape')
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                self.refuse(place, f'{value!r} is no list of integers.')
        if not isinstance(value, list) or any(type(size) is not int or size < 1 for size in value):
            self.refuse(place, f'A list of positive integers is expected, not {value!r}.')
        return tuple(value)

    def _element_names(self, place: Place, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Return the names of the last axis; those of axes are aligned at the right."""
        value = self.get(place[:-1], dict).get('element_names')
        if not isinstance(value, list) or not value:
            return ()
        last = (
            value[-1] if any(isinstance(each, list) or each is None for each in value) else value
        )
        if not last or last == _TEMPORAL:
            return ()
        if not isinstance(last, list) or not all(isinstance(each, str) for each in last):
            self.refuse(place, 'Names of an axis are a list of texts.')
        if not shape or len(last) != shape[-1]:
            self.refuse(
                place, f'There are {len(last)} names for the last axis of the shape {shape}.'
            )
        if len(set(last)) < len(last):
            self.refuse(place, f'A name occurs twice: {", ".join(last)}.')
        return tuple(last)

    def bundle(self) -> Bundle:
        if _has_regions(self._document):
            return self._of_regions()
        groups = tuple(self._groups())
        flow = self._connections(('pipeline', 'data_flow'))
        feedback = {
            name: output
            for key in ('feedback_flow', 'feedback_connections')
            for name, output in self._connections(('pipeline', key)).items()
        }
        self._check_order(flow, groups)
        self._check_sources(flow, feedback, groups)
        chosen = tuple(self._listed('outputs', self.outputs)) or tuple(self.outputs)
        return Bundle(
            self.path,
            self.networks,
            groups,
            flow,
            feedback,
            chosen,
            self._initial_values(feedback),
            self._frequency(),
        )

    def _of_regions(self) -> Bundle:
        """Return a bundle of a detector, a network for its objects, and one that turns them."""
        place: Place = ('pipeline', 'regions')
        *first, target = self.networks
        turning = self.get(('pipeline', 'turns'), dict, {})
        if (
            self.get(place, dict) != {name: target for name in first[:1]}
            or turning != dict([first] if len(first) == 2 else [])
            or len(first) > 2
        ):
            self.refuse(
                place,
                'Regions lead from the first of two models to the second; of three, turns lead to '
                'the second, and regions to the third.',
                'Write {DETECTOR: CLASSIFIER}, with the names of the models.',
            )
        for key in self.get(('pipeline',), dict).keys() - {'regions', 'turns', 'configs'}:
            self.refuse(('pipeline', key), 'Nothing but regions connects these models.')
        for name in self.networks:
            for key in self.get(('models', name), dict).keys() - {'parameters', 'options'}:
                self.refuse(
                    ('models', name, key), 'Models of regions have the tensors of the file.'
                )
        if 'options' in self.get(('models', first[0]), dict):
            self.refuse(
                ('models', first[0], 'options'),
                'The options of the first model are the parameters of the node.',
            )
        options = {}
        for name in (*first[1:], target):
            options[name] = dict(self.get(('models', name, 'options'), dict, {}))
            if 'labels_path' in options[name]:
                labels: Place = ('models', name, 'options', 'labels_path')
                options[name]['labels_path'] = str(self._file(labels, self.get(labels, str)))
        frequency = self._frequency()
        return Bundle(
            self.path, self.networks, (), {}, {}, (), None, frequency, region_options=options
        )

    def _connections(self, place: Place) -> dict[str, str]:
        """Return the output that each connected input gets."""
        found: dict[str, str] = {}
        for output, names in self.get(place, dict, {}).items():
            here: Place = (*place, output)
            self._known(here, output, self.outputs)
            for name in names if isinstance(names, list) else [names]:
                self._known(here, name, self.inputs)
                source, target = self.outputs[output].spec, self.inputs[name].spec
                if (source.shape, source.dtype) != (target.shape, target.dtype):
                    self.refuse(here, f'The output {source} does not fit the input {target}.')
                if name in found:
                    self.refuse(here, f'The input {name} has two sources.')
                found[name] = output
        return found

    def _known(self, place: Place, name: Any, ports: Mapping[str, Port]) -> None:
        if name not in ports:
            self.refuse(place, f'{name!r} is not among {", ".join(ports)}.')

    def _listed(self, key: str, ports: Mapping[str, Port]) -> Iterator[str]:
        """Yield the inputs or outputs of the bundle as `pipeline` lists them."""
        for network in self.get(('pipeline', key), dict, {}):
            place: Place = ('pipeline', key, network)
            for i, name in enumerate(self.get(place, list, [])):
                self._known((*place, i), f'{network}/{name}', ports)
                yield f'{network}/{name}'

    def _check_order(self, flow: Mapping[str, str], groups: tuple[Group, ...]) -> None:
        order = {name: i for i, name in enumerate(self.networks)}
        for target, source in flow.items():
            if order[source.partition('/')[0]] >= order[target.partition('/')[0]]:
                self.refuse(
                    ('pipeline', 'data_flow', source),
                    f'{source} is computed after its use as {target}: models run in their order.',
                    'Order the models as they run, or use feedback_flow.',
                )

    def _check_sources(
        self, flow: Mapping[str, str], feedback: Mapping[str, str], groups: tuple[Group, ...]
    ) -> None:
        outside = set(self._listed('inputs', self.inputs))
        values = {name for group in groups for name in group.values}
        for name in self.inputs:
            sources = [
                text
                for text, names in (
                    ('pipeline/inputs', outside),
                    ('data_flow', flow),
                    ('feedback', feedback),
                    ('values of a loop', values),
                )
                if name in names
            ]
            if not sources:
                self.refuse(
                    ('pipeline', 'inputs'),
                    f'The input {name} has no source.',
                    'List it in pipeline/inputs, or connect it.',
                )
            if len(sources) > 1:
                self.refuse(
                    ('pipeline', 'inputs'), f'The input {name} has two sources: {sources}.'
                )

    def _groups(self) -> Iterator[Group]:
        """Yield the networks in order, those of a loop together."""
        place: Place = ('pipeline', 'loops')
        names = list(self.networks)
        starts: dict[int, Group] = {}
        for i, _ in enumerate(self.get(place, list, [])):
            loop = self._loop((*place, i))
            starts[names.index(loop.networks[0])] = loop
        i = 0
        while i < len(names):
            group = starts.pop(i, Group((names[i],)))
            if group.networks != tuple(names[i : i + len(group.networks)]):
                starts[i] = group
                break
            yield group
            i += len(group.networks)
        if starts:
            self.refuse(place, 'The models of a loop follow each other, and are in one loop only.')

    def _loop(self, place: Place) -> Group:
        networks = tuple(self.get((*place, 'models'), list))
        for name in networks:
            if name not in self.networks:
                self.refuse((*place, 'models'), f'{name!r} is no model of the bundle.')
        if not networks:
            self.refuse((*place, 'models'), 'The loop has no models.')
        steps = self.get((*place, 'steps'), int)
        if not 1 <= steps <= MAX_STEPS:
            self.refuse((*place, 'steps'), f'{steps} is not from 1 to {MAX_STEPS}.')
        carry = self._connections((*place, 'carry'))
        values = {
            name: self._values((*place, 'values', name), name, steps)
            for name in self.get((*place, 'values'), dict, {})
        }
        for name in (*carry, *carry.values(), *values):
            if name.partition('/')[0] not in networks:
                self.refuse(place, f'{name} is not of a model of the loop.')
        return Group(networks, steps, carry, values)

    def _values(self, place: Place, name: str, steps: int) -> np.ndarray:
        """Return the values of an input in each step: a list, a .npy file, or `counter`."""
        self._known(place, name, self.inputs)
        spec = self.inputs[name].spec
        given = self.get(place[:-1], dict)[name]
        try:
            if given == 'counter':
                given = list(range(steps))
            elif isinstance(given, str):
                given = np.load(self._file(place, given), allow_pickle=False)
            found = np.asarray(given)
            if found.shape == (steps,):
                found = found.reshape(steps, *[1] * len(spec.shape))
                found = np.broadcast_to(found, (steps, *spec.shape))
            if found.shape != (steps, *spec.shape) or spec.dtype == 'bfloat16':
                raise ValueError(f'The shape is {found.shape}; the input is {spec}.')
            return np.ascontiguousarray(found, spec.dtype)
        except (OSError, TypeError, ValueError) as error:
            self.refuse(place, f'{steps} values of the input are expected. {error}')

    def _initial_values(self, feedback: Mapping[str, str]) -> Path | None:
        place: Place = ('pipeline', 'initial_values')
        name = self.get(place, str, '')
        return self._file(place, name) if name and feedback else None

    def _frequency(self) -> float | None:
        place: Place = ('pipeline', 'configs', 'frequency')
        value = self.get(('pipeline', 'configs'), dict, {}).get('frequency')
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 < value < math.inf:
            self.refuse(place, f'{value!r} is no frequency above 0 Hz.')
        return float(value)
