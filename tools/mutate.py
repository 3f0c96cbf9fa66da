"""
Mutation testing with cosmic-ray on a copy of the checkout.

`./dev mutate` starts this in the environment of cosmic-ray; `python` on PATH is that of the tests.
"""

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
import os
from pathlib import Path
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
GOAL_PERCENT = 95
# One replacement per operator: cosmic-ray has eleven, which the same tests detect or miss.
OPERATORS = re.compile(
    'core/(ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_Mul|Pow_Mul|'
    'RShift_LShift|LShift_RShift|BitOr_BitAnd|BitAnd_BitOr|BitXor_BitAnd)|'
    'ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Is_IsNot|IsNot_Is)|'
    'ReplaceUnaryOperator_Delete_.*|AddNot|ReplaceAndWithOr|ReplaceOrWithAnd|'
    'ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceBreakWithContinue|'
    'ReplaceContinueWithBreak|NumberReplacer|ZeroIterationForLoop|ExceptionReplacer|'
    'RemoveDecorator)|trt_ros/.*'
)
NOT_HERE = 'not (gpu or soak or nightly)'


@dataclass
class Score:
    """Result for one module: the number of detected mutations, and the diffs of the others."""

    module: Path
    killed: int = 0
    survivors: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        """Number of tested mutations."""
        return self.killed + len(self.survivors)

    def __str__(self) -> str:
        percent = 100 * self.killed / self.tried if self.tried else 100.0
        return f'{percent:5.1f} %  {self.killed:4d} of {self.tried:4d}  {self.module}'


def main(arguments: list[str]) -> int:
    """Print each undetected mutation, then the scores; return 1 if unmutated tests fail."""
    parser = argparse.ArgumentParser(
        prog='./dev mutate',
        description=(
            'Mutate modules in a copy of the checkout; report the mutations that no test detects.'
        ),
    )
    parser.add_argument(
        'paths',
        nargs='*',
        type=Path,
        default=[CHECKOUT / 'trt_ros'],
        help='modules or folders of them; trt_ros by default',
    )
    parser.add_argument('--since', metavar='REF', help='mutate the lines changed since a commit')
    parser.add_argument(
        '--sample',
        type=int,
        metavar='N',
        help='try N mutations per module, chosen at random by a fixed seed',
    )
    parser.add_argument(
        '--tests',
        metavar='PYTEST-ARGUMENTS',
        help=(
            'tests that should detect the mutations; by default those named after the module, '
            'then those of its folder'
        ),
    )
    options = parser.parse_args(arguments)
    modules = list(modules_below(options.paths))
    if not modules:
        print(f'mutate: no module of trt_ros in {" ".join(map(str, options.paths))}')
        return 1
    add_operators()
    with tempfile.TemporaryDirectory(prefix='trt_ros_mutate_') as folder:
        copy_checkout(Path(folder))
        os.chdir(folder)
        os.environ['PYTHONPATH'] = folder
        scores, has_failed = [], False
        for module in modules:
            lines = changed_lines(module, options.since) if options.since else None
            if lines is not None and not lines:
                continue
            tests = (options.tests,) if options.tests else tests_of(module)
            score = mutate(module, lines, tests, options.sample)
            has_failed |= score is None
            scores += [score] if score else []
    print(f'\n{"Score":>7}  Detected      Module  (goal: {GOAL_PERCENT} %)')
    for score in scores:
        print(score)
    total = Score(
        Path('all'),
        sum(each.killed for each in scores),
        [diff for each in scores for diff in each.survivors],
    )
    print(total, flush=True)
    return int(has_failed)


def modules_below(paths: list[Path]) -> Iterator[Path]:
    """Yield the tracked and the new modules of the package, relative to the checkout."""
    names = git(
        'ls-files',
        '--cached',
        '--others',
        '--exclude-standard',
        '--',
        *(str(path.absolute()) for path in paths),
    )
    for name in sorted(set(names.splitlines())):
        if name.startswith('trt_ros/') and name.endswith('.py') and (CHECKOUT / name).exists():
            yield Path(name)


def git(*arguments: str) -> str:
    """Return the output of git in the checkout."""
    return subprocess.run(
        ['git', *arguments], cwd=CHECKOUT, check=True, capture_output=True, text=True
    ).stdout


def copy_checkout(folder: Path) -> None:
    """Copy the tracked and the new files, so that mutations never change the checkout."""
    names = git('ls-files', '--cached', '--others', '--exclude-standard').splitlines()
    for name in names:
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)


def changed_lines(module: Path, since: str) -> set[int]:
    """Return the lines of a module that changed since a commit; all lines of a new file."""
    if not git('ls-files', '--', str(module)):
        return set(range(1, len((CHECKOUT / module).read_text().splitlines()) + 1))
    return new_lines(git('diff', '--unified=0', since, '--', str(module)))


def new_lines(diff: str) -> set[int]:
    """Return the lines of the new file that a diff without context adds or changes."""
    found: set[int] = set()
    for start, count in re.findall(r'^@@ -\S+ \+(\d+)(?:,(\d+))? @@', diff, re.MULTILINE):
        found.update(range(int(start), int(start) + int(count or 1)))
    return found


def tests_of(module: Path) -> tuple[str, ...]:
    """Return the tests of a module: first those named after it, then those of its folder."""
    names = (f'test_{module.stem}.py', f'test_{module.stem}_*.py')
    place = module.relative_to('trt_ros').parent
    beside = f'test/unit/{place}'
    folders = tuple(
        folder
        for folder in (beside, f'test/unit/{place.parts[0]}', f'test/{place}')
        if (CHECKOUT / folder).is_dir()
    )
    for folder in (*folders, 'test/ros' if not folders else 'test/unit', 'test'):
        found = [path for name in names for path in sorted(CHECKOUT.glob(f'{folder}/**/{name}'))]
        if found:
            own = shlex.join(str(path.relative_to(CHECKOUT)) for path in found)
            return (own, *folders[:1])
    return folders[:1]


def places_of_types(source: str) -> set[tuple[int, int]]:
    """Return the (line, column) of annotations, which are not evaluated, and of a bare `*`."""
    found = {
        (number, match.start())
        for number, line in enumerate(source.splitlines(), 1)
        for match in re.finditer(r'\*(?=,)', line)
    }
    for node in ast.walk(ast.parse(source)):
        for each in (getattr(node, 'annotation', None), getattr(node, 'returns', None)):
            if isinstance(each, ast.expr) and each.end_lineno and each.end_col_offset:
                for line in range(each.lineno, each.end_lineno + 1):
                    start = each.col_offset if line == each.lineno else 0
                    stop = each.end_col_offset if line == each.end_lineno else 999
                    found.update((line, column) for column in range(start, stop))
    return found


def mutate(
    module: Path, lines: set[int] | None, tests: tuple[str, ...], sample: int | None
) -> Score | None:
    """Test the mutations of a module; return None if the unmutated tests fail."""
    chosen = mutations(module, lines)
    if sample is not None and sample < len(chosen):
        chosen = random.Random(1).sample(chosen, sample)
    print(f'\n{module}: {len(chosen)} mutations', flush=True)
    score, stages = Score(module), [Tests(each) for each in tests]
    for each in chosen:
        diff = ''
        for stage in stages:
            try:
                diff = stage.undetected(each)
            except BaselineError as error:
                print(error)
                return None
            if not diff:
                break
        score.killed += not diff
        score.survivors += [diff] if diff else []
        if diff:
            print(
                f'{module}:{each.mutations[0].start_pos[0]}',
                *(line for line in diff.splitlines() if re.match(r'[+-](?![+-]{2} )', line)),
                sep='\n',
                flush=True,
            )
    print(score, flush=True)
    return score


class BaselineError(Exception):
    """The unmutated tests fail."""


class Tests:
    """A selection of tests, run unmutated first and then per mutation."""

    def __init__(self, tests: str) -> None:
        self.command = f"python -m pytest -q -x -p no:cacheprovider -m '{NOT_HERE}' {tests}"
        self.timeout_seconds = 0.0

    def undetected(self, item: Any) -> str:
        """Return the diff of an undetected mutation, '' if a test detects it."""
        from cosmic_ray.mutating import mutate_and_test
        from cosmic_ray.work_item import TestOutcome

        if not self.timeout_seconds:
            began = time.monotonic()
            done = subprocess.run(shlex.split(self.command), capture_output=True, text=True)
            if done.returncode:
                raise BaselineError(f'{done.stdout[-2000:]}\nFailed unmutated: {self.command}')
            self.timeout_seconds = 30 + 4 * (time.monotonic() - began)
        result = mutate_and_test(item.mutations, self.command, self.timeout_seconds)
        survived = result.test_outcome == TestOutcome.SURVIVED
        return (result.diff or 'no diff') if survived else ''


def add_operators() -> None:
    """Register operators that cosmic-ray lacks: removing a call, a raise or a lock."""
    from cosmic_ray import plugins
    from cosmic_ray.operators.operator import Operator
    from parso.python.tree import Keyword

    class Removal(Operator):  # type: ignore[misc]
        def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
            if self.fits(node):
                yield node.children[0].start_pos, node.children[0].end_pos

        @classmethod
        def examples(cls) -> tuple[()]:
            return ()

    class RemoveStatement(Removal):
        def fits(self, node: Any) -> bool:
            statement = node.children[0] if node.type == 'simple_stmt' else None
            return statement is not None and (
                statement.type in ('raise_stmt', 'await_expr', 'atom_expr', 'power')
            )

        def mutate(self, node: Any, index: int) -> Any:
            first = node.children[0].get_first_leaf()
            node.children[0] = Keyword('pass', first.start_pos, first.prefix)
            return node

    class RemoveWith(Removal):
        def fits(self, node: Any) -> bool:
            return bool(
                node.type == 'with_stmt'
                and node.children[1].type != 'with_item'
                and node.children[2] == ':'
            )

        def mutate(self, node: Any, index: int) -> Any:
            first, manager = node.children[0], node.children[1]
            node.children[:2] = [
                Keyword('if', first.start_pos, first.prefix),
                Keyword('True', manager.start_pos, ' '),
            ]
            return node

    plugins.OPERATOR_PROVIDERS['trt_ros'] = {
        each.__name__: each for each in (RemoveStatement, RemoveWith)
    }


def mutations(module: Path, lines: set[int] | None) -> list[Any]:
    """Return the selected work items of cosmic-ray for a module, in source order."""
    from cosmic_ray.commands.init import init
    from cosmic_ray.work_db import use_db

    Path('session.sqlite').unlink(missing_ok=True)
    with use_db('session.sqlite') as work:
        init([module], work, {})
        items = work.work_items
    ignored = places_of_types(module.read_text())
    found = []
    for item in items:
        (change,) = item.mutations
        reach = set(range(change.start_pos[0], change.end_pos[0] + 1))
        if (
            OPERATORS.fullmatch(change.operator_name)
            and change.start_pos not in ignored
            and (lines is None or lines & reach)
        ):
            found.append(item)
    return sorted(
        found,
        key=lambda item: (
            item.mutations[0].start_pos,
            item.mutations[0].operator_name,
            item.mutations[0].occurrence,
        ),
    )


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
