"""The mechanical half of the writing rules: docstrings, parameter descriptions and names."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
import io
from pathlib import Path
import re
import tokenize

import pytest

PACKAGE = Path(__file__).parent.parent / 'trt_ros'
FILES = sorted(PACKAGE.rglob('*.py'))

#: Verbs that no manual of ROS 2, NVIDIA or NumPy begins a docstring with.
VERBS = {'Give', 'Have', 'Hold', 'Let', 'Note', 'Say', 'See', 'Tell'}
#: First words of sentences without a subject.
OPENINGS = {'Of', 'That', 'What', 'Whatever', 'Which', 'Whoever', 'Whose'}
#: Private vocabulary that standard terms have replaced.
IDENTIFIERS = {
    'CopyCrew',
    'Machinery',
    'Said',
    'Way',
    'crew',
    'extra_inputs',
    'facts',
    'halves',
    'machinery',
    'story',
    'tell_fault',
    'ungraphed',
    'unheeded',
    'way',
    'ways',
}
#: Names that every module of a kind has, by convention.
CONVENTIONAL = {'add_arguments', 'main', 'main_mt', 'open_head', 'run'}


def docstrings(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring."""
    for node in nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, 'lineno', 1), text


def descriptions(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and text of every parameter description."""
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ('param', 'option')
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
        ):
            yield node.lineno, str(node.args[1].value)


@cache
def parse(source: str) -> ast.Module:
    return ast.parse(source)


def offences(source: str) -> list[str]:
    """Return 'line N: text' for each docstring or description that breaks a rule."""
    found, nodes = [], list(ast.walk(parse(source)))
    for line, text in (*docstrings(nodes), *descriptions(nodes)):
        first = re.match(r"[\w']*", text.lstrip()).group()
        if first.removesuffix('s') in VERBS or first in OPENINGS:
            found.append(f'line {line}: {text.splitlines()[0]}')
    if IDENTIFIERS.isdisjoint(re.findall(r'\w+', source)):
        return found
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string in IDENTIFIERS:
            found.append(f'line {token.start[0]}: {token.string}')
    return found


@pytest.mark.slow
def test_docstrings_descriptions_and_names_follow_the_rules():
    found = {str(path.relative_to(PACKAGE)): offences(path.read_text()) for path in FILES}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    'source, offence',
    [
        ('def f():\n    """Give the size."""', 'line 1: Give the size.'),
        ('class A:\n    """What is found."""', 'line 1: What is found.'),
        ("x: int = param(0, 'Whose boxes.')", 'line 1: Whose boxes.'),
        ('story = 1', 'line 1: story'),
    ],
)
def test_violation_is_found(source, offence):
    assert offences(source) == [offence]


def undocumented(sources: list[str]) -> list[str]:
    """Return public functions without a docstring, of methods their own or of a base class."""
    classes, found = defaultdict(list), []
    for source in sources:
        for node in parse(source).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(node)
            elif isinstance(node, ast.FunctionDef) and not ast.get_docstring(node):
                found += [node.name] * (node.name[0] != '_' and node.name not in CONVENTIONAL)

    def documented(name: str) -> set[str]:
        found = {
            each.name
            for node in classes[name]
            for each in node.body
            if isinstance(each, ast.FunctionDef) and ast.get_docstring(each)
        }
        for node in classes[name]:
            for base in node.bases:
                found |= documented(ast.unparse(base).partition('[')[0].rpartition('.')[2])
        return found

    return found + [
        f'{name}.{each.name}'
        for name, nodes in list(classes.items())
        if name[0] != '_'
        for node in nodes
        for each in node.body
        if isinstance(each, ast.FunctionDef)
        and each.name[0] != '_'
        and each.name not in documented(name)
    ]


@pytest.mark.slow
def test_public_functions_are_documented():
    assert undocumented([path.read_text() for path in FILES]) == []


def test_undocumented_function_is_found():
    bases = 'class Base(Generic[T]):\n    def run(self):\n        """Run."""\n        return 1\n'
    plain = 'class Fast(base.Base[int]):\n    def run(self): ...\n    def walk(self): ...\n'
    functions = 'def run(args): ...\ndef _walk(): ...\ndef jump(): ...\n'
    assert undocumented([bases, plain, functions]) == ['jump', 'Fast.walk']


@pytest.mark.slow
def test_public_names_are_unique():
    places = defaultdict(list)
    for path in FILES:
        for node in parse(path.read_text()).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != '_':
                places[node.name].append(str(path.relative_to(PACKAGE)))
    assert {
        name: files
        for name, files in places.items()
        if len(files) > 1 and name not in CONVENTIONAL
    } == {}
