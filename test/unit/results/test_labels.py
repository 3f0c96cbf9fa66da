import os
import re
import sys

import pytest

from trt_ros.errors import ParameterError
from trt_ros.results.labels import BUILT_IN, class_names, name_of

ULTRALYTICS = {'names': "{0: 'person', 1: 'traffic light', 2: 'd\\'or'}"}


@pytest.fixture
def labels_file(tmp_path):
    def write(text, name='labels.txt') -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def test_the_parameter_comes_first_then_the_file_then_the_metadata(labels_file):
    path = labels_file('cat\ndog\neel\n')
    assert class_names(['a', 'b', 'c'], path, ULTRALYTICS, 3) == ('a', 'b', 'c')
    assert class_names(['coco', 'voc'], '', {}, 2) == ('coco', 'voc')  # No built-in list.
    assert class_names([], path, ULTRALYTICS, 3) == ('cat', 'dog', 'eel')
    assert class_names([], '', ULTRALYTICS, 3) == ('person', 'traffic light', "d'or")


@pytest.mark.parametrize(
    ('text', 'names'),
    [
        ('cat\n\neel\n', ('cat', '', 'eel')),
        ('0 person\n1 bicycle\n3 motorcycle\n', ('person', 'bicycle', '', 'motorcycle')),
    ],
)
def test_a_class_between_others_may_have_no_name(labels_file, text, names):
    path = labels_file(text)
    assert class_names([], path, {}, len(names)) == names
    with pytest.raises(ParameterError, match=rf'labels\.txt.* names {len(names)} .* has 9'):
        class_names([], path, {}, 9)


@pytest.mark.parametrize(
    ('labels', 'class_count'),
    [
        *((labels, count) for labels in (['a', 'b', 'c'], []) for count in (1, 2, 4, 80)),
        (['background', 'cat', 'dog'], 1),
        (['background', 'cat', 'dog'], 4),
        (['cat', 'background', 'dog'], 2),
        (['background noise', 'cat', 'dog'], 2),
    ],
)
def test_too_many_names_or_too_few_are_refused(labels, class_count):
    source = 'labels' if labels else "the model's metadata"
    with pytest.raises(
        ParameterError, match=f'^{source} names 3 classes, but the network has {class_count}'
    ):
        class_names(labels, '', ULTRALYTICS, class_count)


@pytest.mark.parametrize('background', ['BACKGROUND', 'background', '__background__'])
def test_a_leading_background_is_removed_if_the_network_does_not_count_it(background):
    names = (background, 'cat', 'dog')
    assert class_names(names, '', {}, 2) == ('cat', 'dog')
    assert class_names(names, '', {}, 3) == class_names(names, '', {}, None) == names


@pytest.mark.parametrize(
    ('name', 'count', 'places'),
    [
        ('coco', 80, {0: 'person', 2: 'car', 79: 'toothbrush'}),
        ('coco_91', 91, {0: 'background', 1: 'person', 12: 'N/A', 90: 'toothbrush'}),
        ('coco_91', 90, {0: 'person', 11: 'N/A', 89: 'toothbrush'}),
        ('voc', 21, {0: 'background', 1: 'aeroplane', 20: 'tvmonitor'}),
        ('voc', 20, {0: 'aeroplane', 14: 'person', 19: 'tvmonitor'}),
        ('cityscapes', 19, {0: 'road', 11: 'person', 18: 'bicycle'}),
        ('ade20k', 150, {0: 'wall', 12: 'person', 149: 'flag'}),
        ('imagenet', 1000, {0: 'tench', 281: 'tabby', 999: 'toilet tissue'}),
    ],
)
def test_a_built_in_list_is_chosen_by_its_name(name, count, places):
    names = class_names([name], '', ULTRALYTICS, count)
    assert len(names) == count
    assert {index: names[index] for index in places} == places
    with pytest.raises(ParameterError, match=f'^labels {name!r} names .* the network has 7'):
        class_names([name], '', {}, 7)


@pytest.mark.parametrize('name', BUILT_IN)
def test_every_built_in_list_has_one_plain_name_per_line(name):
    names = class_names([name], '', {}, None)
    assert all(line and line == line.strip() and line.isascii() for line in names)


@pytest.mark.parametrize(
    ('label', 'remedy'),
    [
        ('cocoo', "Did you mean 'coco'"),
        ('COCO', "Did you mean 'coco'"),
        ('imagenet1k', "Did you mean 'imagenet'?"),
        ('~/classes.txt', r"If '~/classes.txt' is a file, set `labels_path` to it\."),
        ('person', '^Set `labels`'),
        ('voc', '^Set `labels`'),
    ],
)
def test_a_single_wrong_name_may_stand_for_a_list_or_a_file(label, remedy):
    with pytest.raises(ParameterError, match=r'^labels .*names \d+ class(es)?, but') as error:
        class_names([label], '', {}, 80)
    assert re.search(remedy, error.value.remedy)


@pytest.mark.parametrize(
    ('text', 'names'),
    [
        ('\ufeffNutsedge\r\n  Pigweed \r\n\r\n\r\n', ('Nutsedge', 'Pigweed')),
        # Indices before all names are left out.
        ('0: a\n1: b c\n2: d\n', ('a', 'b c', 'd')),
        ('0 a\n1  b c\n2\td', ('a', 'b c', 'd')),
        ('0,a\n\n1, b c\n2 = d', ('a', 'b c', 'd')),
        # Other numbers stay.
        ('20 km/h\n30 km/h', ('20 km/h', '30 km/h')),
        ('0 degrees\n90 degrees\n180 degrees', ('0 degrees', '90 degrees', '180 degrees')),
        ('0 a\nb', ('0 a', 'b')),
        ('0 a\n0 b', ('0 a', '0 b')),
        ('0 a\n2 b\n1 c', ('0 a', '2 b', '1 c')),
        ('0\n1', ('0', '1')),
    ],
)
def test_a_file_has_a_name_per_line(labels_file, text, names):
    assert class_names([], labels_file(text), {}, len(names)) == names


@pytest.mark.parametrize(
    ('name', 'text'),
    [
        ('data.yaml', '# Weeds\npath: ../weeds\nnames:\n  0: a\n  1: b c\n  2: 3\n'),
        ('data.yml', "names: ['a', 'b c', '3']"),
        ('id2label.json', '{"1": "b c", "0": "a", "2": "3"}'),
        ('names.JSON', '["a", "b c", "3"]'),
    ],
)
def test_a_file_may_be_yaml_or_json(labels_file, name, text):
    assert class_names([], labels_file(text, name=name), {}, 3) == ('a', 'b c', '3')


NO_YAML = ('', 'names:', 'train: images', '{0: a, 2: b}', '[a, [b]]', '[]', 'a', 'names: [')
OTHER_FORMATS = ('{"0": "a"}', '["a"]', 'item {\n  id: 1\n}\n', '\nitem{')


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'text', 'problem'),
    [
        *(
            ('data.yaml', text, r'data\.yaml.* contains no list of class names')
            for text in (*NO_YAML, '[' * 500, '&a [*a]')
        ),
        *(
            ('labels.txt', text, r'is no list of class names(.|\n)*Write one name per line')
            for text in OTHER_FORMATS
        ),
        ('labels.txt', ' \n\n', 'contains no class names'),
        ('labels.txt', b'd\xf6rp\n', 'Cannot read the class names'),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_file_without_names_is_refused(labels_file, name, text, problem):
    with pytest.raises(ParameterError, match=problem):
        class_names([], labels_file(text, name=name), {}, None)


def test_yaml_without_pyyaml_says_how_to_install_it(labels_file, monkeypatch):
    monkeypatch.setitem(sys.modules, 'yaml', None)
    with pytest.raises(ParameterError, match=r'data\.yaml. needs PyYAML') as error:
        class_names([], labels_file('[a]', name='data.yaml'), {}, 1)
    assert 'python3-yaml' in error.value.remedy


LISTS_OF_A_AND_B = ("['a', 'b']", '["a", "b"]', '{"1": "b", "0": "a"}', "{1: 'b', 0: 'a'}")
NO_LISTS = (
    *('', '{0:', '7', '{}', '[]', "{5: 'a'}", '[1, 2]', '{[]: 1}', '__import__("os")', '(' * 300),
    *('[' * 100_000, f"['{'a' * (1 << 20)}']", '-' * 100_000 + '1'),  # Too deep or too long.
)


@pytest.mark.parametrize(
    ('text', 'names'),
    [
        *((each, ('a', 'b')) for each in LISTS_OF_A_AND_B),
        (r"['a\ud800']", (r'a\ud800',)),  # Surrogates are escaped.
        *((each, ()) for each in NO_LISTS),
    ],
    ids=lambda each: str(each)[:20],
)
def test_metadata_is_a_dict_in_any_order_or_a_list_or_names_nothing(text, names):
    assert class_names([], '', {'names': text}, len(names) or 3) == names


def test_a_class_without_a_name_is_its_number():
    assert name_of(('cat', 'dog'), 1) == 'dog'
    assert name_of(('cat', 'dog'), 2) == '2'
    assert name_of((), 0) == '0'
    assert name_of(('cat',), -1) == '-1'


def test_rejects_missing_file_pipe_and_device(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    for path, cause in (
        (tmp_path / 'none.txt', 'No such file'),
        (tmp_path / 'pipe', 'Not a regular file'),
        ('/dev/zero', 'Not a regular file'),
    ):
        with pytest.raises(ParameterError, match=rf'(?s)Cannot read .*{path}.*Cause: .*{cause}'):
            class_names((), str(path), {}, None)
