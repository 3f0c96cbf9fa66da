import os
import re
import sys

import pytest

from trt_ros.errors import ParameterError
from trt_ros.results.labels import BUILT_IN, class_names, name_of

ULTRALYTICS = {'names': "{0: 'person', 1: 'traffic light', 2: 'd\\'or'}"}


@pytest.fixture
def labels_file(tmp_path):
    def write(text, encoding='utf-8', name='labels.txt') -> str:
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return str(path)

    return write


def test_the_parameter_comes_first_then_the_file_then_the_metadata(labels_file):
    path = labels_file('cat\ndog\neel\n')
    assert class_names(['a', 'b', 'c'], path, ULTRALYTICS, 3) == ('a', 'b', 'c')
    assert class_names([], path, ULTRALYTICS, 3) == ('cat', 'dog', 'eel')
    assert class_names([], '', ULTRALYTICS, 3) == ('person', 'traffic light', "d'or")


def test_several_names_are_no_built_in_list():
    assert class_names(['coco', 'voc'], '', {}, 2) == ('coco', 'voc')


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


def test_accepts_windows_line_ends_and_trailing_blank_lines(labels_file):
    path = labels_file('\ufeffNutsedge\r\n  Pigweed \r\n\r\n\r\n')
    assert class_names([], path, {}, 2) == ('Nutsedge', 'Pigweed')


@pytest.mark.parametrize(
    ('labels', 'metadata', 'source'),
    [(['a', 'b', 'c'], {}, 'labels'), ([], ULTRALYTICS, "the model's metadata")],
)
@pytest.mark.parametrize('class_count', [1, 2, 4, 80])
def test_too_many_names_or_too_few_are_refused(labels, metadata, source, class_count):
    with pytest.raises(
        ParameterError, match=f'^{source} names 3 classes, but the network has {class_count}'
    ):
        class_names(labels, '', metadata, class_count)


@pytest.mark.parametrize('background', ['BACKGROUND', 'background', '__background__'])
def test_a_leading_background_is_removed_if_the_network_does_not_count_it(background):
    names = (background, 'cat', 'dog')
    assert class_names(names, '', {}, 2) == ('cat', 'dog')
    assert class_names(names, '', {}, 3) == class_names(names, '', {}, None) == names


@pytest.mark.parametrize(
    ('names', 'class_count'),
    [
        (('background', 'cat', 'dog'), 1),
        (('background', 'cat', 'dog'), 4),
        (('cat', 'background', 'dog'), 2),
        (('background noise', 'cat', 'dog'), 2),
    ],
)
def test_only_leading_background_is_removed(names, class_count):
    with pytest.raises(ParameterError, match=f'names 3 classes, but .* has {class_count}'):
        class_names(names, '', {}, class_count)


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
    'text', ['0: a\n1: b c\n2: d\n', '0 a\n1  b c\n2\td', '0,a\n\n1, b c\n2 = d']
)
def test_indices_before_the_names_are_left_out(labels_file, text):
    assert class_names([], labels_file(text), {}, 3) == ('a', 'b c', 'd')


@pytest.mark.parametrize(
    'lines',
    [
        ('20 km/h', '30 km/h'),
        ('0 degrees', '90 degrees', '180 degrees'),
        ('0 a', 'b'),
        ('0 a', '0 b'),
        ('0 a', '2 b', '1 c'),
        ('0', '1'),
    ],
)
def test_names_that_begin_with_other_numbers_stay(labels_file, lines):
    assert class_names([], labels_file('\n'.join(lines)), {}, len(lines)) == lines


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


@pytest.mark.slow
@pytest.mark.parametrize(
    'text',
    [
        '',
        'names:',
        'train: images',
        '{0: a, 2: b}',
        '[a, [b]]',
        '[]',
        'a',
        'names: [',
        '[' * 500,
        '&a [*a]',
    ],
)
def test_yaml_without_names_is_refused(labels_file, text):
    with pytest.raises(ParameterError, match=r'data\.yaml.* contains no list of class names'):
        class_names([], labels_file(text, name='data.yaml'), {}, 3)


def test_yaml_without_pyyaml_says_how_to_install_it(labels_file, monkeypatch):
    monkeypatch.setitem(sys.modules, 'yaml', None)
    with pytest.raises(ParameterError, match=r'data\.yaml. needs PyYAML') as error:
        class_names([], labels_file('[a]', name='data.yaml'), {}, 1)
    assert 'python3-yaml' in error.value.remedy


@pytest.mark.parametrize('text', ['{"0": "a"}', '["a"]', 'item {\n  id: 1\n}\n', '\nitem{'])
def test_text_of_another_format_is_refused(labels_file, text):
    with pytest.raises(ParameterError, match='is no list of class names') as error:
        class_names([], labels_file(text), {}, None)
    assert 'Write one name per line' in error.value.remedy


def test_a_file_without_names_is_refused(labels_file):
    with pytest.raises(ParameterError, match='contains no class names'):
        class_names([], labels_file(' \n\n'), {}, 3)
    with pytest.raises(ParameterError, match='Cannot read the class names'):
        class_names([], labels_file('dörp\n', 'latin-1'), {}, 1)


@pytest.mark.parametrize(
    'names', ["['a', 'b']", '["a", "b"]', '{"1": "b", "0": "a"}', "{1: 'b', 0: 'a'}"]
)
def test_metadata_may_be_a_dict_in_any_order_or_a_list(names):
    assert class_names([], '', {'names': names}, None) == ('a', 'b')


@pytest.mark.parametrize(
    'names',
    ['', '{0:', '7', '{}', '[]', "{5: 'a'}", '[1, 2]', '{[]: 1}', '__import__("os")', '(' * 300],
)
def test_metadata_of_another_kind_names_nothing(names):
    assert class_names([], '', {'names': names}, 3) == ()


def test_a_class_without_a_name_is_its_number():
    assert name_of(('cat', 'dog'), 1) == 'dog'
    assert name_of(('cat', 'dog'), 2) == '2'
    assert name_of((), 0) == '0'
    assert name_of(('cat',), -1) == '-1'


def test_surrogates_in_the_metadata_are_escaped():
    assert class_names((), '', {'names': r"['a\ud800']"}, 1) == (r'a\ud800',)


def test_metadata_that_is_too_long_or_too_deep_names_nothing():
    for names in ('[' * 100_000, f"['{'a' * (1 << 20)}']", '-' * 100_000 + '1'):
        assert class_names((), '', {'names': names}, None) == ()


def test_rejects_missing_file_pipe_and_device(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    for path, cause in (
        (tmp_path / 'none.txt', 'No such file'),
        (tmp_path / 'pipe', 'Not a regular file'),
        ('/dev/zero', 'Not a regular file'),
    ):
        with pytest.raises(ParameterError, match=rf'(?s)Cannot read .*{path}.*Cause: .*{cause}'):
            class_names((), str(path), {}, None)
