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


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring and parameter description."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield getattr(node, 'lineno', 1), ast.get_docstring(node) or ''
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            called, text = ast.unparse(node.func), node.args[1]
            if called in ('param', 'option') and isinstance(text, ast.Constant):
                yield node.lineno, str(text.value)


@cache
def parse(source: str) -> ast.Module:
    return ast.parse(source)


def offences(source: str) -> list[str]:
    """Return 'line N: text' for each docstring or description that breaks a rule."""
    found = []
    for line, text in texts(parse(source)):
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


def public_functions(scope: ast.Module | ast.ClassDef) -> list[ast.FunctionDef]:
    return [
        each for each in scope.body if isinstance(each, ast.FunctionDef) and each.name[0] != '_'
    ]


def undocumented(sources: list[str]) -> set[str]:
    """Return public functions without a docstring, of methods their own or of a base class."""
    nodes = [node for source in sources for node in parse(source).body]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}

    def documented(name: str) -> set[str]:
        if name not in classes:
            return set()
        methods = public_functions(classes[name])
        bases = (ast.unparse(base).partition('[')[0] for base in classes[name].bases)
        own = {each.name for each in methods if ast.get_docstring(each)}
        return own.union(*(documented(base.rpartition('.')[2]) for base in bases))

    methods = {
        f'{name}.{each.name}'
        for name, node in classes.items()
        for each in public_functions(node)
        if name[0] != '_' and each.name not in documented(name)
    }
    functions = {
        each.name
        for source in sources
        for each in public_functions(parse(source))
        if not ast.get_docstring(each)
    }
    return methods | functions - CONVENTIONAL


@pytest.mark.slow
def test_public_functions_are_documented():
    assert undocumented([path.read_text() for path in FILES]) == set()


def test_undocumented_function_is_found():
    bases = 'class Base(Generic[T]):\n    def run(self):\n        """Run."""\n        return 1\n'
    plain = 'class Fast(base.Base[int]):\n    def run(self): ...\n    def walk(self): ...\n'
    functions = 'def run(args): ...\ndef _walk(): ...\ndef jump(): ...\n'
    assert undocumented([bases, plain, functions]) == {'jump', 'Fast.walk'}


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
