"""What `./dev mutate` changes, and which tests it runs; cosmic-ray itself is not needed here."""

import importlib.util
from pathlib import Path
import sys

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def mutate():
    """Import the script as a module; it is outside the package."""
    spec = importlib.util.spec_from_file_location('mutate', CHECKOUT / 'tools/mutate.py')
    module = importlib.util.module_from_spec(spec)
    sys.modules['mutate'] = module  # dataclass looks its module up there.
    spec.loader.exec_module(module)
    yield module
    del sys.modules['mutate']


def test_only_added_and_changed_lines_are_mutated_and_no_star_of_a_signature(mutate):
    diff = (
        '--- a/x.py\n+++ b/x.py\n@@ -3 +3 @@ def a():\n-old\n+new\n'
        '@@ -10,2 +9,0 @@\n-gone\n-gone\n@@ -20,0 +20,3 @@\n+a\n+b\n+c\n'
    )
    assert mutate.new_lines(diff) == {3, 20, 21, 22}
    assert mutate.places_of_types('def f(a, *, b=2 * 3):\n    pass\n') == {(1, 9)}


def test_type_annotations_are_not_mutated(mutate):
    source = 'def f(a: int | None = 1 | 2) -> int | str:\n    b: int | None = a | 4\n'
    types = mutate.places_of_types(source)
    bars = [
        (line, column)
        for line, text in enumerate(source.splitlines(), 1)
        for column, letter in enumerate(text)
        if letter == '|'
    ]
    assert [place in types for place in bars] == [True, False, True, True, False]


@pytest.mark.parametrize(
    ('module', 'tests'),
    [
        ('vision/nms.py', ('test/unit/vision/test_nms.py', 'test/unit/vision')),
        (
            'ros/dds/rcl_subscription.py',
            (
                'test/ros/dds/test_rcl_subscription.py '
                'test/ros/dds/test_rcl_subscription_losses.py',
                'test/unit/ros/dds',
            ),
        ),
        ('nodes/tracker.py', ('test/ros/test_tracker.py test/ros/test_tracker_appearance.py',)),
        ('families/family.py', ('test/unit/families',)),
    ],
)
def test_tests_named_after_module_run_before_tests_of_its_folder(mutate, module, tests):
    assert mutate.tests_of(Path('trt_ros') / module) == tests


def test_finds_exactly_the_modules_of_the_package(mutate):
    found = list(mutate.modules_below([CHECKOUT]))
    assert Path('trt_ros/vision/nms.py') in found
    assert all(path.parts[0] == 'trt_ros' and path.suffix == '.py' for path in found)
    assert list(mutate.modules_below([CHECKOUT / 'test'])) == []


def test_score_is_fraction_of_detected_mutations(mutate):
    assert str(mutate.Score(Path('x.py'))) == '100.0 %     0 of    0  x.py'
    assert str(mutate.Score(Path('x.py'), 3, ['diff'])) == ' 75.0 %     3 of    4  x.py'
