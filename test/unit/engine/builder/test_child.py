"""How phases within phases become one percentage."""

from trt_ros.engine.builder.child import Steps


def test_inner_phases_fill_their_share_of_the_outer_one():
    steps = Steps(build=(1, 4))
    assert steps.percent == 25.0
    steps['tactics'] = (5, 10)
    assert steps.percent == 25.0 + 12.5
    del steps['tactics']
    steps['build'] = (4, 4)
    assert steps.percent == 100.0


def test_percentage_never_decreases_and_ends_at_100():
    steps = Steps(one=(2, 2))
    assert steps.percent == 100.0
    steps['two'] = (3, 2)
    assert steps.percent == 100.0
    del steps['one'], steps['two']
    assert steps.percent == 100.0
