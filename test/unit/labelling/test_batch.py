"""Recordings of a run: found, named, shared out and reported."""

from collections import Counter
from pathlib import Path

import pytest

from trt_ros.errors import BackendError, BadFrameError, ParameterError
from trt_ros.labelling.batch import RunReport, find_recordings, output_names
from trt_ros.labelling.job import LabelReport
from trt_ros.labelling.task import LabelTask
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

FILES = (
    'a.mcap',
    'a.db3',
    'day_1/front.mcap',
    'day_1/rear.mcap',
    'day_2/front/metadata.yaml',
    'day_2/front/front_0.mcap',
    'day_2/cut/cut_0.mcap',
    'day_2/notes.txt',
    'day_3/front.mcap',
    'empty/notes.txt',
)


@pytest.fixture
def drives(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for each in FILES:
        path = tmp_path / 'drives' / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return Path('drives')


@pytest.mark.parametrize(
    'more, names',
    [
        ({}, ['a.mcap.mcap', 'a.db3.mcap']),
        (
            {'recursive': True, 'exclude': ['a.db3']},
            ['a', 'day_1/front', 'day_1/rear', 'day_2/front', 'day_2/cut', 'day_3/front'],
        ),
        ({'recursive': True, 'include': ['front*'], 'exclude': ['day_[13]/*']}, ['day_2/front']),
        ({'recursive': True, 'include': ['day_3/front*']}, ['day_3/front']),
        (
            {'recursive': True, 'include': ['day_1/*', 'cut']},
            ['day_1/front', 'day_1/rear', 'day_2/cut'],
        ),
    ],
)
def test_recordings_are_found_below_a_folder(drives, more, names):
    found = output_names(find_recordings([drives], **more))
    assert sorted(map(str, found)) == sorted(
        name if name.endswith('.mcap') else f'{name}.mcap' for name in names
    )


def test_recordings_of_the_same_name_keep_their_folders_and_those_of_folders_need_the_flag(drives):
    paths = [drives / 'day_1/front.mcap', drives / 'day_2/front', drives / 'day_1/rear.mcap']
    names = [str(each) for each in output_names(find_recordings(paths))]
    assert names == ['day_1/front.mcap', 'day_2/front.mcap', 'day_1/rear.mcap']
    with pytest.raises(ParameterError, match='--recursive'):
        find_recordings([drives / 'empty'])


@pytest.mark.parametrize('more', ['a.db3', 'day_1', 'day_3/../a.db3'])
def test_a_recording_that_is_named_twice_is_refused(drives, more):
    with pytest.raises(ParameterError, match=r'named twice, also as drives/(a\.db3|day_1/front)'):
        find_recordings([drives, drives / more], recursive=True)


@pytest.mark.parametrize('more', [{'include': ['none*']}, {'exclude': ['a*']}])
def test_patterns_that_leave_nothing_are_refused(drives, more):
    with pytest.raises(ParameterError, match='Correct the patterns'):
        find_recordings([drives], **more)


def test_the_report_has_the_last_outcome_of_each_recording(tmp_path):
    tasks = [LabelTask(Path(name), Path(f'{name}.mcap'), (), DEFAULT_THRESHOLDS) for name in 'abc']
    report = RunReport(tmp_path / 'report.jsonl')
    assert report.entries() == {}
    report.append(tasks[0], BackendError('It failed.'))
    report.append(tasks[1], LabelReport(3, 2, Counter({'too many pixels': 1})))
    report.append(tasks[2], LabelReport(damage=BadFrameError('damaged recording', 'It is cut.')))
    report.append(tasks[0], LabelReport(1, nonfinite=1))
    with (tmp_path / 'report.jsonl').open('a') as file:
        file.write('{"recording": "b", "sta')  # As after a kill.
    found = report.entries()
    assert {name: each['status'] for name, each in found.items()} == {
        'a.mcap': 'done',
        'b.mcap': 'done',
        'c.mcap': 'damaged',
    }
    assert found['b.mcap']['frames'] == 5 and found['b.mcap']['dropped'] == {'too many pixels': 1}
    assert [found[f'{name}.mcap']['non_finite'] for name in 'abc'] == [1, 0, 0]
    assert found['c.mcap']['error'] == 'It is cut.' and found['b.mcap']['recording'] == 'b'
    report.append(tasks[1], BackendError('It failed.'))
    assert report.entries()['b.mcap']['status'] == 'failed'
    (tmp_path / 'report.jsonl').write_text('no JSON\n')
    with pytest.raises(ParameterError, match='cannot be read'):
        report.entries()
