"""Remedies for refused networks: each decoder, output, node and option that one names works."""

from dataclasses import replace
from functools import cache
import re

import pytest

from support.descriptions import network
from trt_ros.decode.choice import open_head
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families import registry
from trt_ros.families.mismatches import TASKS
from trt_ros.families.registry import ALL_FAMILIES, TENSORS, choose_family

pytestmark = pytest.mark.slow

BY_NODE = {
    'detector': (*registry.DETECTORS, *registry.ORIENTED),
    'segmenter': registry.SEGMENTERS,
    'pose': registry.POSES,
    'classifier': registry.CLASSIFIERS,
    'depth': registry.DEPTHS,
    'tensor': TENSORS,
}
BY_NAME = {family.name: family for family in (*ALL_FAMILIES, *TENSORS)}

#: Outputs and description of networks that some node refuses.
REFUSED = [
    ('out (1, 85, 22, 22)', {'hw': (352, 352)}),
    ('out (1, 85, 22, 22)', {'hw': (352, 352), 'class_count': 80}),
    ('out (1, 3, 640, 640)', {}),
    ('enhanced (1, 3, 256, 256); attention (1, 1, 256, 256)', {'hw': (256, 256)}),
    ('out (1, 196)', {'hw': (112, 112)}),
    ('out (1, 256)', {'hw': (256, 128)}),
    ('embedding (1, 256)', {'hw': (256, 128)}),
    ('landmarks (1, 136)', {'hw': (112, 112)}),
    ('out (1, 5)', {'class_count': 80}),
    ('a (1, 2, ?, ?); b (1, 4, ?, ?)', {'hw': (80, 80)}),
    ('a (1, 2); b (1, 4)', {'hw': (24, 24)}),
    ('a (1, 2); b (1, 4); c (1, 10)', {'hw': (48, 48)}),
    ('h (1, 1, 160, 160); s (1, 2, 160, 160); o (1, 2, 160, 160); l (1, 10, 160, 160)', {}),
    ('scores (1, 4420, 2); boxes (1, 4420, 4)', {'hw': (240, 320)}),
    ('scores (1, 4420, 2); boxes (1, 4420, 4)', {'hw': (240, 320), 'class_count': 80}),
    ('d0 (1, 1, 320, 320); d1 (1, 1, 320, 320)', {'hw': (320, 320)}),
    ('drive (1, 2, 360, 640); lane (1, 2, 360, 640)', {'hw': (360, 640)}),
    ('det_out (1, 25200, 6); lane_seg (1, 2, 640, 640)', {}),
    ('out (1, 19, 512, 1024); aux (1, 19, 512, 1024)', {'hw': (512, 1024)}),
    ('out (1, 1, 640, 640)', {}),
    ('out (1, 17, 160, 160)', {}),
    ('head (1, 8400, 8)', {}),
    ('head (1, ?, 6)', {}),
    ('head (1, ?, 85)', {}),
    ('output0 (1, 84, 8400)', {'class_count': 20}),
    ('output (1, 25200, 16)', {}),
    ('logits (1, 300, 91); pred_boxes (1, 300, 4)', {}),
    ('dets (1, 100, 5); labels (1, 100) int64; masks (1, 100, 28, 28)', {}),
    ('hm (1, 80, 160, 160); wh (1, 2, 160, 160); reg (1, 2, 160, 160); more (1, 7, 3)', {}),
    ('scores (1, 9); points (1, 9, 2)', {}),
    ('a (1, 3, 5); b (7) int64', {}),
]


@cache
def refused(index):
    """Return families, description and error of each node that refuses a network of REFUSED."""
    outputs, known = REFUSED[index]
    seen, found = replace(network(outputs, **known), strict=True), []
    for families in [*BY_NODE.values(), ALL_FAMILIES]:
        try:
            choose_family(families, 'auto', seen)
        except TensorMismatchError as error:
            found.append((families, seen, error))
    return found


EACH = pytest.mark.parametrize('index', range(len(REFUSED)))


def with_outputs(seen, names):
    return replace(seen, outputs=tuple(spec for spec in seen.outputs if spec.name in names))


@EACH
def test_decoders_of_a_remedy_read_the_network(index):
    for families, seen, error in refused(index):
        named = re.findall(r'[Ss]et `decoder` to ((?:\w+(?:, | or )?)+)', error.remedy)
        for name in [name for each in named for name in re.split(', | or ', each)]:
            if name in BY_NAME:
                unnamed = replace(seen, class_count=None)
                own = families if name in [each.name for each in families] else ALL_FAMILIES
                open_head(choose_family(own, name, unnamed)[0], unnamed)


@EACH
def test_nodes_of_a_remedy_run_the_network(index):
    for _, seen, error in refused(index):
        chosen = re.search(r'Set outputs to (.*?), and run the node (.*?)\. ', error.remedy)
        run = re.search(r'Run the node (.*?)\. ', error.remedy)
        for names in chosen[1].split(' or ') if chosen else ():
            part = replace(with_outputs(seen, [names]), class_count=None, strict=False)
            nodes = re.findall(r'`(\w+)`', chosen[2])
            assert any(decodes(BY_NODE[node], part) for node in nodes), (names, nodes)
        for node in re.findall(r'`(\w+)`', run[1]) if run else ():
            assert decodes(BY_NODE[node], seen), node


def decodes(families, seen) -> bool:
    """Return whether families read a network, or name those to choose from."""
    try:
        choose_family(families, 'auto', seen)
    except TensorMismatchError as error:
        return 'More than one decoder' in error.problem
    return True


@EACH
def test_outputs_of_a_remedy_are_decoded_as_it_says_and_called_a_guess(index):
    for families, seen, error in refused(index):
        for names, name in re.findall(r' to ([\w, ]+) \(decoder (\w+)\)', error.remedy):
            part = with_outputs(seen, names.split(', '))
            assert choose_family(families, 'auto', part)[0].name == name
        assert ('Set outputs to' in error.remedy) == ('This is a guess' in error.remedy)


@EACH
def test_names_of_the_classes_and_strict_decide_where_a_remedy_says_so(index):
    for families, seen, error in refused(index):
        assert 'leave them out' not in error.remedy
        if 'or `labels` to the names of its classes' in error.remedy:
            counts = {seen.outputs[0].shape[1], seen.outputs[-1].shape[1]}
            named = [replace(seen, class_count=count) for count in counts if count > 0]
            assert any(decodes(families, each) for each in named)
        if '`strict` to false' in error.remedy:
            assert decodes(families, replace(seen, strict=False))


@pytest.mark.parametrize('name', BY_NAME)
def test_a_decoder_of_another_node_names_that_node(name):
    for families in BY_NODE.values():
        if name in [family.name for family in families]:
            continue
        with pytest.raises(ParameterError) as error:
            choose_family(families, name, network('out (1, 5)'))
        assert f'Run the node `{TASKS[BY_NAME[name].task].node}`' in error.value.remedy
        assert 'tensorflow' not in error.value.remedy
