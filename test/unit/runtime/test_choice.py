"""Which backend is chosen, and what is said about it."""

from __future__ import annotations

import pytest

from trt_ros.errors import BackendError, ParameterError
from trt_ros.runtime import options
from trt_ros.runtime.choice import BACKENDS, Backend, choose_backend
from trt_ros.vision import letterbox


def backend(name, missing=''):
    return Backend(name, name.title(), lambda: missing, open=None, frame_runner=None)


def test_without_any_backend_the_error_tells_why_each_is_missing():
    with pytest.raises(BackendError, match='no fast: no GPU; no slow: not installed'):
        choose_backend('auto', (backend('fast', 'no GPU'), backend('slow', 'not installed')))


def test_auto_takes_the_first_that_this_machine_can_use():
    chosen, why = choose_backend('auto', (backend('fast'), backend('slow')))
    assert (chosen.name, why) == (
        'fast', 'backend fast: Fast (the best this machine and version have)')


def test_auto_says_why_the_better_ones_were_not_taken():
    chosen, why = choose_backend('auto', (backend('fast', 'no GPU'), backend('slow')))
    assert (chosen.name, why) == ('slow', 'backend slow: Slow (no fast: no GPU)')


def test_a_named_backend_is_taken_even_if_another_is_better():
    chosen, why = choose_backend('slow', (backend('fast'), backend('slow')))
    assert (chosen.name, why) == ('slow', 'backend slow: Slow (as asked)')


def test_a_named_backend_that_is_missing_is_not_replaced():
    with pytest.raises(BackendError, match=r'fast cannot be used here\.\nCause: no GPU'):
        choose_backend('fast', (backend('fast', 'no GPU'), backend('slow')))


def test_an_unknown_backend_names_the_known_ones():
    with pytest.raises(ParameterError, match='Choose one of auto, fast, slow'):
        choose_backend('quick', (backend('fast'), backend('slow')))


def test_the_options_offer_exactly_what_there_is():
    names = [each.name for each in BACKENDS]
    assert list(options.BACKENDS) == ['auto', *names]
    assert letterbox.RESIZES == options.RESIZES
