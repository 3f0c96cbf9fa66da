"""What is said while something slow goes on, and how often."""

import pytest

from trt_ros.progress import Progress, ProgressThrottle, RestEstimate


def told(seconds):
    """Give those of the reports, made at these seconds, that get a line."""
    is_due = ProgressThrottle(5.0)
    return [each for each in seconds if is_due(Progress('Timing tactics', None, each))]


def test_prints_a_report_every_few_seconds_with_the_rest_of_the_phase():
    assert told([]) == []
    assert told([0.0, 0.001, 0.2, 4.999, 5.0, 5.1, 9.9]) == [0.0, 5.0]
    assert told([tenth / 10 for tenth in range(200)]) == [0.0, 5.0, 10.0, 15.0]
    assert told([2.5, 7.4, 7.5, 60.0, 60.1, 65.0]) == [2.5, 7.5, 60.0, 65.0]
    estimate = RestEstimate()
    assert [
        estimate(*each)
        for each in (
            ('loading', None, 100.0),
            ('measuring', 40.0, 110.0),  # An interrupted run continues.
            ('measuring', 50.0, 112.0),
            ('measuring', 60.0, 130.0),
            ('writing', None, 140.0),
        )
    ] == [None, None, None, 40.0, None]


@pytest.mark.parametrize(
    ('progress', 'text'),
    [
        (Progress('loading the model', None, 0.04), 'loading the model, 0 s'),
        (Progress('Timing tactics', 41.6, 83.2), 'Timing tactics 42 %, 83 s'),
        (Progress('measuring', 50.0, 80.0, 20.4), 'measuring 50 %, 80 s, about 20 s left'),
    ],
)
def test_a_report_reads_as_phase_percent_and_seconds(progress, text):
    assert str(progress) == text
