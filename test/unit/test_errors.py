"""Text from outside is harmless and short in errors, logs and on terminals."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from support.properties import repeatable
from trt_ros.errors import MAX_CHARACTERS, ModelError, counted, meant, printable

HOSTILE = '\x1b]0;owned\x07\x9b31m\u202eevil\u2066\0\ud800'


@pytest.mark.parametrize(
    'text, expected',
    [
        ('', ''),
        ('plain, größer, 写, 🏳️‍🌈', 'plain, größer, 写, 🏳️‍🌈'),
        ('\x1b[31m', r'\x1b[31m'),
        ('a\nb\tc\r', r'a\nb\tc\r'),
        ('a\u202eb\u2028c\0', r'a\u202eb\u2028c\x00'),
        ('caf\udce9', r'caf\udce9'),
    ],
)
def test_control_characters_are_escaped_and_letters_stay(text, expected):
    assert printable(text) == expected


def test_a_number_has_the_noun_of_one_or_of_several():
    found = [counted(number, noun) for noun in ('class', 'name') for number in (0, 1, 2)]
    assert found == ['0 classes', '1 class', '2 classes', '0 names', '1 name', '2 names']


@pytest.mark.parametrize(
    ('name', 'known', 'hint'),
    [
        ('frist', ['second', 'first'], "Did you mean 'first'? "),
        ('DOG', ['dig', 'dog', 'Dog'], "Did you mean 'dog' or 'Dog' or 'dig'? "),
        ('Score', ['score_threshold', 'x'], "Did you mean 'score_threshold'? "),
        ('ab', ['x_ab_y_z_w_q'], ''),
        ('abc', iter(['x_abc_y_z_w_q']), "Did you mean 'x_abc_y_z_w_q'? "),
        ('abc', ['x_abc_y_z_w_q', 'abd'], "Did you mean 'abd'? "),
        ('other', ['x', 'y'], ''),
    ],
)
def test_a_hint_has_the_most_similar_names_or_those_that_contain_it(name, known, hint):
    assert meant(name, known) == hint


def test_line_breaks_stay_where_lines_are_wanted_and_long_words_lose_their_middle():
    assert printable('one\n\ttwo\r\x1b', lines=True) == 'one\n\ttwo\\r\\x1b'
    short = printable('Input ' + 'a' * 100_000 + 'z is ' + '\x1b' * 100_000 + ' bad.')
    assert short.startswith('Input aaa') and 'aaa...aaa' in short and 'z is \\x1b' in short
    assert short.endswith(' bad.') and len(short) < 900


@pytest.mark.slow
@repeatable
@given(st.text(max_size=30), st.integers(1, 2000), st.booleans())
def test_all_text_becomes_short_and_printable_once_and_for_all(text, times, lines):
    found = printable(text * times, lines=lines)
    assert len(found) <= MAX_CHARACTERS
    assert not set(found) & (set(map(chr, range(32))) - ({'\n', '\t'} if lines else set()))
    found.encode()
    assert printable(found, lines=lines) == found


def test_an_error_with_hostile_names_stays_short_and_keeps_its_lines():
    error = ModelError(
        f'Input {HOSTILE} is bad.', cause='long ' * 100_000, remedy=f'Rename\n{"x" * 100_000}.'
    )
    assert len(str(error)) < 3 * MAX_CHARACTERS
    assert len(str(error).splitlines()) == 4
    assert not set('\x1b\x07\x9b\u202e\u2066\0\ud800') & set(str(error))
