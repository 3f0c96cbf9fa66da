"""How phases within phases become one percentage."""

from trt_ros.engine.builder.child import Steps


def test_inner_phases_fill_their_share_of_the_outer_one():
    steps = Steps()
    steps.start('build', 4)
    steps.step('build', 0)
    assert steps.percent == 25.0
    steps.start('tactics', 10)
    steps.step('tactics', 4)
    assert steps.percent == 25.0 + 12.5
    steps.finish('tactics')
    steps.step('build', 3)
    assert steps.percent == 100.0


def test_percentage_never_decreases():
    steps = Steps()
    steps.start('one', 2)
    steps.step('one', 1)
    steps.finish('one')
    high = steps.percent
    steps.start('two', 2)
    assert steps.percent == high


def test_accepts_empty_and_unknown_phases():
    steps = Steps()
    steps.start('empty', 0)
    steps.step('never begun', 0)
    steps.finish('never begun either')
    assert 0.0 <= steps.percent <= 100.0
