"""YAML files whose values know their lines, for errors that name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from trt_ros.errors import ModelError, meant

MAX_NODES = 100_000  # After the expansion of aliases.
#: Other words for keys.
SYNONYMS = {'checksum': 'sha256sum', 'rate_hz': 'frequency', 'hz': 'frequency'}
#: Keys and indices from the root.
Place = tuple[str | int, ...]
_NAMES = {dict: 'a mapping', list: 'a list', str: 'text', int: 'an integer', bool: 'true or false'}


class Document:
    """The values of a YAML file (`root`: mappings, lists and scalars) and the line of each."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines: dict[Place, int] = {}
        self._roots: dict[int, dict[Place, None]] = {}  # Keys of the root around each YAML node.
        self._loader, self._count = yaml.SafeLoader(text), 0
        try:
            node = self._loader.get_single_node()
        except (yaml.YAMLError, RecursionError) as error:
            raise ModelError(
                f'The bundle {path} is not YAML.',
                cause=' '.join(str(error).split()),
                remedy='Export it again.',
            ) from error
        self.root = self._value(node, ())

    def _value(self, node: Any, place: Place) -> Any:
        self._count += 1
        if node is not None:
            self._lines[place] = node.start_mark.line + 1
            self._roots.setdefault(id(node), {})[place[:1]] = None
        if self._count > MAX_NODES or len(place) > 50:
            Node(self, place).refuse(
                f'More than {MAX_NODES} values, or 50 levels, after all aliases.'
            )
        if node is None or node.tag == 'tag:yaml.org,2002:null':
            return None
        if not node.tag.startswith('tag:yaml.org,2002:') or ':python' in node.tag:
            Node(self, place).refuse(f'The tag {node.tag} is not allowed.')
        if isinstance(node, yaml.SequenceNode):
            return [self._value(each, (*place, i)) for i, each in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            try:
                return self._loader.construct_object(node)
            except (ValueError, yaml.YAMLError) as error:
                Node(self, place).refuse(str(error))
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            inner = (*place, key)
            if key in found:
                self._lines[inner] = key_node.start_mark.line + 1
                Node(self, inner).refuse(f'The key {key} occurs twice.')
            found[key] = self._value(value_node, inner)
        return found

    @property
    def shared(self) -> set[str]:
        """Keys of the root with a value that aliases use elsewhere."""
        return {str(next(iter(keys))[0]) for keys in self._roots.values() if len(keys) > 1}

    def line(self, place: Place) -> int:
        """Return the line of a value, or of the nearest one around it."""
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place, 1)


class Node:
    """A value of a document by its place, or where it would be; `node[key]` is one inside."""

    def __init__(self, document: Document, place: Place = ()) -> None:
        self.document, self.place = document, place

    def __getitem__(self, key: str | int) -> Node:
        return Node(self.document, (*self.place, key))

    def check_keys(self, form: Any) -> None:
        """
        Refuse a key that is not in a form, here or farther inside.

        :param form: forms of values by key, '*' for all others; in a list, that of its items.
        """
        if isinstance(form, list):
            for each in self.items():
                each.check_keys(form[0])
        elif form is not None:
            for key in self.get(dict, {}):
                if '*' not in form:
                    self[key].check_name('key', key, form, _paths(form))
                self[key].check_keys(form.get(key, form.get('*')))

    def check_name(
        self, noun: str, name: Any, known: Iterable[str], paths: Iterable[str] = ()
    ) -> None:
        """Refuse a name that is not known, with the nearest one, or its place among `paths`."""
        if name not in (known := [*known]):
            word = SYNONYMS.get(str(name).lower(), str(name))
            elsewhere = [each for each in paths if each.endswith(f'/{word}')]
            hint = meant(word, elsewhere or known)
            remedy = f'Leave it out, or use one of {", ".join(known)}.'
            self.refuse(f'Unknown {noun} {name!r}. {hint}'.strip(), remedy)

    def items(self) -> list[Node]:
        """Return the values of a list; none where it is absent."""
        return [self[index] for index in range(len(self.get(list, [])))]

    @property
    def value(self) -> Any:
        """The value; None where it is absent."""
        value: Any = self.document.root
        for key in self.place:
            if isinstance(value, dict):
                value = value.get(key)
            else:
                value = value[key] if isinstance(value, list) and isinstance(key, int) else None
        return value

    def get(self, kind: type, default: Any = None) -> Any:
        """Return a value of a type; the default where it is absent or null, if there is one."""
        value = self.value
        if value is None and default is not None:
            return default
        if not isinstance(value, kind):
            self.refuse(f'{_NAMES[kind]} is expected, not {value!r:.80}.')
        return value

    def refuse(self, cause: str, remedy: str = '') -> NoReturn:
        """Raise the error of a value."""
        line, where = self.document.line(self.place), '/'.join(map(str, self.place))
        raise ModelError(
            f'The bundle {self.document.path} is invalid in line {line}, {where or "the file"}.',
            cause=cause,
            remedy=remedy or 'Export it again, or correct the file.',
        )


def _paths(form: Any) -> Iterator[str]:
    """Yield the keys of a form and the paths of those farther inside."""
    form = form[0] if isinstance(form, list) else form
    for key, inner in (form or {}).items():
        yield key
        yield from (f'{key}/{each}' for each in _paths(inner))
