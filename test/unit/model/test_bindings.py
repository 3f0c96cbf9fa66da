"""Bindings of network inputs, parsed from text."""

import string

from hypothesis import given
from hypothesis import strategies as st
import pytest

from support.properties import repeatable
from trt_ros.errors import ParameterError
from trt_ros.model.bindings import parse_bindings, resolve_bindings
from trt_ros.model.feeds.base import Binding
from trt_ros.model.feeds.image import IMAGE_SETTINGS
from trt_ros.runtime.options import PipelineOptions


@pytest.mark.parametrize(
    ('text', 'binding'),
    [
        ('left=image:left/image_raw', Binding('left', 'image', ('left/image_raw',), {})),
        ('  x  = image : /a , b ', Binding('x', 'image', ('/a', 'b'), {})),
        ('x=images: a , b/c', Binding('x', 'images', ('a', 'b/c'), {})),
        (
            'r=image:right?resize=stretch&mean=0.5,0.5,0.5 & scale = 0.0078',
            Binding(
                'r',
                'image',
                ('right',),
                {'resize': 'stretch', 'mean': '0.5,0.5,0.5', 'scale': '0.0078'},
            ),
        ),
        ('joints=tensor:~/joints', Binding('joints', 'tensor', ('~/joints',), {})),
        ('q=tensor: a/b # out:0 ', Binding('q', 'tensor', ('a/b#out:0',), {})),
        ('q=tensor:a#x#y?max_age=0.1', Binding('q', 'tensor', ('a#x#y',), {'max_age': '0.1'})),
        ('h=state:hn', Binding('h', 'state', ('hn',), {})),
        ('/gru/h:0=state: a=b,c?d#e ', Binding('/gru/h:0', 'state', ('a=b,c?d#e',), {})),
    ],
)
def test_a_binding_is_read(text, binding):
    assert parse_bindings((text,)) == (binding,)


@pytest.mark.parametrize(
    ('texts', 'problem'),
    [
        ([''], "Invalid binding ''"),
        (['left'], "Invalid binding 'left'"),
        (['left=right'], "Invalid binding 'left=right'"),
        (['=image:left'], "Invalid binding '=image:left'"),
        (['x=video:left'], "Unknown kind 'video'"),
        (['x=Image:left'], "Unknown kind 'Image'"),
        (['x=image:'], 'has an empty source'),
        (['x=image:?scale=1'], 'has an empty source'),
        (['x=image:a,'], 'has an empty source'),
        (['x=tensor:#a'], 'has an empty source'),
        (['x=tensor:a#'], 'has an empty tensor name'),
        (['x=state: '], 'has an empty source'),
        (['x=image:a=b'], "Invalid topic 'a=b'"),
        (['x=image:a b'], "Invalid topic 'a b'"),
        (['x=tensor:a,b'], "Invalid topic 'a,b'"),
        (['x=image:a,b,c'], 'has 3 image topics'),
        (['x=image:a,a'], 'has a topic twice'),
        (['x=images:a,b,a'], 'has a topic twice'),
        (['x=images:a,'], 'has an empty source'),
        (['x=images:a b'], "Invalid topic 'a b'"),
        (['*=images:a,b'], r"Invalid binding '\*=images:a,b'"),
        (['x=image:a?'], "Invalid setting ''"),
        (['x=image:a?scale'], "Invalid setting 'scale'"),
        (['x=image:a?scale='], "Invalid setting 'scale='"),
        (['x=image:a?scale=1&'], "Invalid setting ''"),
        (['x=image:a?scale=1&scale=2'], "Duplicate setting 'scale'"),
        (['x=image:a?size=1'], "Unknown setting 'size'"),
        (['x=image:a?chanel_order=bgr'], "Did you mean 'channel_order'?"),
        (['x=tensor:a?mean=1'], "Unknown setting 'mean'"),
        (['*=image:a'], r"Invalid binding '\*=image:a'"),
        (['*=state:a'], r"Invalid binding '\*=state:a'"),
        (['*=tensor:a#b'], r"Invalid binding '\*=tensor:a#b'"),
        (['x=image:a', 'y=state:b', ' x =tensor:c'], "'x' is bound 2 times"),
    ],
)
def test_a_malformed_binding_is_refused_with_its_text(texts, problem):
    with pytest.raises(ParameterError, match=problem.replace('?', r'\?')):
        parse_bindings(tuple(texts))


@pytest.mark.slow
@repeatable
@given(st.text(string.printable, max_size=30))
def test_any_text_is_parsed_or_refused(text):
    try:
        (binding,) = parse_bindings((text,))
    except ParameterError:
        return
    assert binding.input
    assert all(binding.sources)
    assert len(binding.topics) == (0 if binding.kind == 'state' else len(binding.sources))


def test_topics_tensor_and_maximum_age_of_a_binding():
    image, tensor, unnamed, state = parse_bindings(
        ('x=image:a,b', 'y=tensor:c#d#e', 'z=tensor:f', 'h=state:g#h')
    )
    assert [each.topics for each in (image, tensor, unnamed, state)] == [
        ('a', 'b'),
        ('c',),
        ('f',),
        (),
    ]
    assert [each.tensor for each in (image, tensor, unnamed, state)] == ['', 'd#e', '', '']
    (fresh, any_age) = parse_bindings(('x=image:a?max_age=0.25&held=false', 'y=tensor:b'))
    assert (fresh.max_age, any_age.max_age, fresh.is_held) == (0.25, None, False)


@pytest.mark.parametrize(
    ('name', 'value'),
    [*(('max_age', age) for age in ('0', '-1', 'inf', 'nan', 'soon')), ('held', 'yes')],
)
def test_a_maximum_age_that_is_no_positive_number_and_another_held_are_refused(name, value):
    with pytest.raises(ParameterError, match=f"{name} of the network input 'x' is '{value}'"):
        parse_bindings((f'x=tensor:a?{name}={value}',))


def test_image_settings_are_options_of_the_pipeline():
    assert set(IMAGE_SETTINGS) <= set(PipelineOptions.__dataclass_fields__)


def resolved(texts, inputs, outputs=(), constants=()):
    return resolve_bindings(parse_bindings(texts), inputs, outputs, constants)


def test_bindings_keep_their_order_and_the_others_follow_the_network():
    found = resolved(('h=state:hn', 'c=image:x', '*=tensor:t'), 'abchk', ('y', 'hn'), ('k',))
    assert [(each.input, each.kind, *each.sources) for each in found] == [
        ('h', 'state', 'hn'),
        ('c', 'image', 'x'),
        ('a', 'tensor', 't'),
        ('b', 'tensor', 't'),
    ]
    assert resolved(('a=image:x', '*=tensor:t'), 'a')[1:] == ()


@pytest.mark.parametrize(
    ('texts', 'problem'),
    [
        (('a=image:x', 'b=image:y', 'z=image:x'), "no input 'z', which inputs binds"),
        (('a=image:x',), 'No binding for the network inputs b'),
        ((), 'No binding for the network inputs a, b'),
        (('a=image:x', 'b=state:q'), "no output 'q', whose state the input 'b'"),
        (('a=state:y', 'b=state:y'), 'No network input is bound to a topic'),
        (('image=image:x',), r"Did you mean 'images'\? The inputs are images, state\."),
        (('images=image:x', 'state=state:stateN'), r"Did you mean 'state_n'\?"),
    ],
)
def test_bindings_that_do_not_fit_the_network_are_refused(texts, problem):
    inputs, outputs = ('ab', ('y',))
    if 'Did you mean' in problem:
        inputs, outputs = ('images', 'state'), ('y', 'state_n')
    with pytest.raises(ParameterError, match=problem):
        resolved(texts, inputs, outputs)
