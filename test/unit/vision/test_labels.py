from __future__ import annotations

import os

import pytest

from trt_ros.errors import ParameterError
from trt_ros.vision.labels import BUILT_IN, class_names, name_of

ULTRALYTICS = {'names': "{0: 'person', 1: 'traffic light', 2: 'd\\'or'}"}


@pytest.fixture
def labels_file(tmp_path):
    def write(text, encoding='utf-8') -> str:
        path = tmp_path / 'labels.txt'
        path.write_bytes(text.encode(encoding))
        return str(path)

    return write


def test_no_source_gives_no_names():
    assert class_names((), '', {}, 3) == ()


def test_the_parameter_comes_first_then_the_file_then_the_metadata(labels_file):
    path = labels_file('cat\ndog\neel\n')
    assert class_names(['a', 'b', 'c'], path, ULTRALYTICS, 3) == ('a', 'b', 'c')
    assert class_names([], path, ULTRALYTICS, 3) == ('cat', 'dog', 'eel')
    assert class_names([], '', ULTRALYTICS, 3) == ('person', 'traffic light', "d'or")


def test_accepts_windows_line_ends_and_trailing_blank_lines(labels_file):
    path = labels_file('\ufeffNutsedge\r\n  Pigweed \r\n\r\n\r\n')
    assert class_names([], path, {}, 2) == ('Nutsedge', 'Pigweed')


def test_a_blank_line_between_names_counts_as_a_class(labels_file):
    names = class_names([], labels_file('cat\n\neel\n'), {}, 3)
    assert [name_of(names, index) for index in range(3)] == ['cat', '1', 'eel']


def test_the_count_is_not_checked_while_it_is_unknown():
    assert class_names(['a', 'b'], '', {}, None) == ('a', 'b')


@pytest.mark.parametrize(
    ('labels', 'metadata', 'source'),
    [
        (['a', 'b', 'c'], {}, 'labels'),
        ([], ULTRALYTICS, "the model's metadata"),
    ],
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


def test_several_names_are_no_built_in_list():
    assert class_names(['coco', 'voc'], '', {}, 2) == ('coco', 'voc')


def test_a_file_of_the_wrong_length_is_named(labels_file):
    path = labels_file('cat\ndog')
    with pytest.raises(ParameterError, match=r'labels\.txt.* names 2 classes.* has 3'):
        class_names([], path, {}, 3)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ParameterError, match=r'Cannot read .*none\.txt') as error:
        class_names([], str(tmp_path / 'none.txt'), {}, 3)
    assert 'No such file' in error.value.cause


def test_a_file_that_is_not_text_is_refused(labels_file):
    with pytest.raises(ParameterError, match='Cannot read the class names'):
        class_names([], labels_file('dörp\n', 'latin-1'), {}, 1)


def test_an_empty_file_is_refused(labels_file):
    with pytest.raises(ParameterError, match='contains no class names'):
        class_names([], labels_file(' \n\n'), {}, 3)


@pytest.mark.parametrize(
    'names',
    [
        "['a', 'b']",
        '["a", "b"]',
        '{"0": "a"}',
        "{1: 'b', 0: 'a'}",
    ],
)
def test_metadata_may_be_a_dict_in_any_order_or_a_list(names):
    expected = () if '"0"' in names else ('a', 'b')
    assert class_names([], '', {'names': names}, None) == expected


@pytest.mark.parametrize(
    'names',
    [
        '',
        'person,car',
        '{0:',
        '7',
        '{}',
        '[]',
        "{5: 'a'}",
        '[1, 2]',
        '{[]: 1}',
        '__import__("os")',
        '(' * 300,
    ],
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


def test_rejects_pipe_or_device_as_labels_file(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    for path in (tmp_path / 'pipe', '/dev/zero'):
        with pytest.raises(ParameterError, match='Not a regular file'):
            class_names((), str(path), {}, None)
