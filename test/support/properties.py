"""Settings of property tests."""

from hypothesis import HealthCheck, settings

#: The same examples in every run, however long they take.
repeatable = settings(
    derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
