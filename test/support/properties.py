"""Settings of property tests."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

#: The same examples in every run, however long they take.
repeatable = settings(
    derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
#: A NUL ends a string on its way through C.
texts = st.text(st.characters(exclude_characters='\0', exclude_categories=['Cs']), max_size=20)
