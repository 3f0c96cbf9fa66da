"""YAML files whose values know their lines, for errors that name them."""

from pathlib import Path
from typing import Any, NoReturn

import yaml

from trt_ros.errors import ModelError

MAX_NODES = 100_000  # After the expansion of aliases.
#: Keys and indices from the root.
Place = tuple[str | int, ...]


class Document:
    """The values of a YAML file (`root`: mappings, lists and scalars) and the line of each."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines: dict[Place, int] = {}
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
        if self._count > MAX_NODES or len(place) > 50:
            self.refuse(place, f'More than {MAX_NODES} values, or 50 levels, after all aliases.')
        if node is None or node.tag == 'tag:yaml.org,2002:null':
            return None
        if not node.tag.startswith('tag:yaml.org,2002:') or ':python' in node.tag:
            self.refuse(place, f'The tag {node.tag} is not allowed.')
        if isinstance(node, yaml.SequenceNode):
            return [self._value(each, (*place, i)) for i, each in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            try:
                return self._loader.construct_object(node)
            except (ValueError, yaml.YAMLError) as error:
                self.refuse(place, str(error))
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            inner = (*place, key)
            if key in found:
                self._lines[inner] = key_node.start_mark.line + 1
                self.refuse(inner, f'The key {key} occurs twice.')
            found[key] = self._value(value_node, inner)
        return found

    def refuse(self, place: Place, cause: str, remedy: str = '') -> NoReturn:
        """Raise the error of a value."""
        known = place
        while known and known not in self._lines:
            known = known[:-1]
        where = '/'.join(map(str, place)) or 'the file'
        raise ModelError(
            f'The bundle {self.path} is invalid in line {self._lines.get(known, 1)}, {where}.',
            cause=cause,
            remedy=remedy or 'Export it again, or correct the file.',
        )

    def get(self, place: Place, kind: type, default: Any = None) -> Any:
        """Return a value of a type; the default where it is absent or null, if there is one."""
        value: Any = self.root
        for key in place:
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int):
                value = value[key]
            else:
                value = None
        if value is None and default is not None:
            return default
        if not isinstance(value, kind):
            names = {dict: 'a mapping', list: 'a list', str: 'text', int: 'an integer'}
            self.refuse(place, f'{names[kind]} is expected, not {value!r:.80}.')
        return value
