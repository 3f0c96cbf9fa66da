"""Images worth annotating, by rule."""

import errno
import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from support.objects import detections
from support.recordings import raw_image, write_recording
from trt_ros.cli import main
from trt_ros.demo import MODEL
from trt_ros.errors import ParameterError
from trt_ros.labelling.selection import merge_selection, unmatched_score
from trt_ros.labelling.task import SelectionOptions

# The network's scores are the means of red, green and blue; ten images per second.
BLUES = {3: 255, 4: 140, 12: 120, 14: 110, 25: 200, 38: 90}


@pytest.fixture
def select(color_detector, tmp_path, capsys):
    pixels = np.zeros((40, 64, 64, 3), np.uint8)
    for index, blue in BLUES.items():
        pixels[index, ..., 0] = blue
    images = [('/camera', index, raw_image(index, each)) for index, each in enumerate(pixels)]
    path = write_recording(tmp_path / 'drive', images)
    model = str(color_detector())

    def run(rule, *more, code=0):
        output = str(tmp_path / 'out.mcap')
        flags = ['--output', output, '--model', model, '--select', rule, *more]
        assert main(['label', str(path), *flags]) == code
        return tmp_path / 'out_selected', capsys.readouterr().err

    run.model = model
    return run


@pytest.mark.parametrize(
    ('rule', 'budget', 'steps'),
    [
        ('uncertain', '2', [12, 4]),
        ('uncertain', '9', [12, 4, 38, 25]),
        ('rare:blue', '2', [3, 25]),
    ],
)
def test_images_of_highest_interest_are_written_with_pictures(select, rule, budget, steps):
    folder, _ = select(rule, '--budget', budget)
    found = json.loads((folder / 'annotations.json').read_text())
    pictures = {str(each.relative_to(folder)) for each in folder.rglob('*.png')}
    assert pictures == {each['file_name'] for each in found['images']}
    assert len(steps) == len(found['images']) == len(found['annotations'])
    for image, step in zip(found['images'], steps):
        pixels = cv2.imread(str(folder / image['file_name']))
        assert pixels[5, 5, 0] == BLUES[step]
    interests = [image['interest'] for image in found['images']]
    assert interests == sorted(interests, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize('more', [(), ('--workers', '2')])
def test_the_budget_is_that_of_all_recordings(select, tmp_path, more):
    """Blue is 50, 60, 70, 80: the last two images are the most uncertain ones."""
    for number in range(2):
        images = [
            ('/camera', 10 * step, raw_image(step, np.full((64, 64, 3), (blue, 0, 0), np.uint8)))
            for step, blue in ((number, 50 + 20 * number), (20 + number, 60 + 20 * number))
        ]
        write_recording(tmp_path / f'drives/day_{number}/drive', images)
    output, report = tmp_path / 'labeled', tmp_path / 'report.jsonl'
    flags = ['--model', select.model, '--select', 'uncertain', '--budget', '3']
    flags += ['--score-threshold', '0.1', '--recursive', '--report', str(report)]
    command = ['label', str(tmp_path / 'drives'), '--output', str(output), *flags]
    assert main([*command, '--exclude', 'day_1/*']) == 0
    assert main([*command, '--resume', *more]) == 0
    found = json.loads((output / 'selected.json').read_text())
    names = [each['file_name'] for each in found['images']]
    assert [name.split('/')[0] for name in names] == ['day_1', 'day_1', 'day_0']
    assert len(found['annotations']) == 3 and len({each['id'] for each in found['images']}) == 3
    assert {str(each.relative_to(output)) for each in output.rglob('*.png')} == set(names)
    assert not list(output.rglob('annotations.json'))
    assert 'recording' not in found['info']['trt_ros']


def test_another_network_that_agrees_selects_nothing(select):
    folder, _ = select(f'disagree:{select.model}')
    assert not list(folder.iterdir())


def test_other_and_unknown_classes_are_refused(select):
    _, text = select(f'disagree:{MODEL}', code=1)
    assert 'They are circle, ' in text and 'and red, green, blue.' in text
    _, text = select('rare:purple', code=1)
    assert 'The classes are red, green, blue.' in text


def test_disagreement_is_the_highest_score_without_a_partner():
    box, other = (0, 0, 10, 10), (0, 0, 10, 9)
    assert unmatched_score(detections(), detections()) == 0
    assert unmatched_score(detections(box, label=1), detections(other, score=0.3, label=1)) == 0
    first, second = detections(box, score=0.75, label=1), detections(other, score=0.25, label=2)
    assert unmatched_score(first, second) == 0.75
    two = detections(other, (20, 20, 30, 30), score=(0.75, 0.5), label=1)
    assert unmatched_score(detections(box, score=0.25, label=1), two) == 0.5


@pytest.mark.parametrize('rule', ['random', 'rare', 'rare:', 'uncertain:x', 'disagree'])
def test_unknown_rules_are_refused(rule):
    with pytest.raises(ParameterError, match='is unknown'):
        SelectionOptions(rule, 1)


def test_a_full_disk_leaves_the_selection_of_earlier_recordings(tmp_path, monkeypatch):
    empty = json.dumps({'info': {'trt_ros': {}}, 'images': [], 'annotations': []})
    target, own = tmp_path / 'selected.json', tmp_path / 'drive' / 'annotations.json'
    own.parent.mkdir()
    target.write_text(empty)
    own.write_text(empty)
    whole = Path.write_text

    def cut(path, text):
        whole(path, text[:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, 'write_text', cut)
    with pytest.raises(OSError, match='No space left'):
        merge_selection(own, target, 5)
    assert target.read_text() == own.read_text() == empty
    assert {*tmp_path.iterdir()} == {target, own.parent}
    monkeypatch.undo()
    merge_selection(own, target, 5)
    assert not own.exists() and [each.name for each in tmp_path.iterdir() if each.is_file()] == [
        'selected.json'
    ]
