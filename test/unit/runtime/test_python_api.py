"""The Python API: what `trt_ros` exports, and the programs of docs/python_api.md as printed."""

from pathlib import Path
import re
import shutil
import subprocess
import sys

import cv2
from demo.scene import CLASSES, MovingScene, held_out
import numpy as np
import pytest

import trt_ros
from trt_ros.demo import MODEL
from trt_ros.errors import BadFrameError, ClosedError, ParameterError
from trt_ros.media import VideoWriter
from trt_ros.runtime.options import LabeledOptions

pytestmark = pytest.mark.slow


CHECKOUT = Path(__file__).parents[3]
PAGE = CHECKOUT / 'docs/python_api.md'


def scene():
    return next(held_out(1))[0]


PROGRAMS = re.findall(r'```python\n(.*?)```', PAGE.read_text(), flags=re.DOTALL)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Return a folder with the files that the programs of the page name."""
    from support.save_network import save_network

    path = tmp_path_factory.mktemp('programs')
    shutil.copy(MODEL, path / 'model.onnx')
    moving, writer = MovingScene(9), VideoWriter(path / 'video.mp4', 10.0, (640, 480))
    (path / 'pictures').mkdir()
    cv2.imwrite(str(path / 'picture.png'), scene())
    for index in range(3):
        cv2.imwrite(str(path / f'pictures/{index}.png'), moving.frame(index)[0])
        writer.write(moving.frame(index)[0])
    writer.release()
    save_network(
        path / 'embedding.onnx',
        'mean = GlobalAveragePool(image) vector = Flatten(mean)',
        {'image': ('n', 3, 32, 32)},
        {'vector': ('n', 3)},
    )
    return path


@pytest.fixture(scope='module')
def pipeline():
    with trt_ros.Pipeline.open(MODEL, backend='onnxruntime') as pipeline:
        yield pipeline


def test_the_page_has_ten_programs_of_at_most_ten_lines():
    lines = [[line for line in code.splitlines() if line] for code in PROGRAMS]
    assert len(PROGRAMS) == 10
    assert [code for code in lines if len(code) > 10] == []


@pytest.mark.parametrize('index', range(10))
def test_the_programs_of_the_page_run(folder, index, monkeypatch, capsys):
    if 'supervision' in PROGRAMS[index]:
        pytest.importorskip('supervision')
    monkeypatch.chdir(folder)
    exec(PROGRAMS[index], {})
    printed = capsys.readouterr().out.splitlines()
    assert printed
    if index == 0:
        assert {line.split()[0] for line in printed} <= set(CLASSES)
    if 'Tracker()' in PROGRAMS[index]:
        names, ids = re.fullmatch(r'\[(.*)\] \[(.*)\]', printed[0]).groups()
        assert len(names.split(', ')) == len(ids.split()) > 3
        assert min(map(int, ids.split())) == 1
        assert len(list(folder.glob('tracked_*.png'))) == 3


def test_the_package_exports_names_and_imports_them_late():
    code = (
        'import sys, trt_ros\n'
        'print(sorted(name for name in ("numpy", "typing") if name in sys.modules))\n'
        'from trt_ros import Frame, Pipeline, Thresholds\n'
        'print(Frame.__module__, Pipeline.__module__, Thresholds.__module__)'
    )
    printed = subprocess.run(
        [sys.executable, '-I', '-c', f'import sys; sys.path.insert(0, {str(CHECKOUT)!r})\n{code}'],
        check=True,
        text=True,
        capture_output=True,
    ).stdout.splitlines()
    assert 'numpy' not in printed[0]
    assert printed[1] == 'trt_ros.vision.frame trt_ros.runtime.pipeline trt_ros.vision.thresholds'
    assert set(trt_ros._MODULES) <= set(dir(trt_ros))
    everything: dict[str, object] = {}
    exec('from trt_ros import *', everything)
    assert set(trt_ros._MODULES) <= set(everything)
    for name in trt_ros._MODULES:
        assert getattr(trt_ros, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'trt_ros' has no attribute 'Pipelin'"):
        _ = trt_ros.Pipelin


def test_options_come_as_keywords_as_a_dataclass_or_as_both():
    image = scene()
    with trt_ros.Pipeline.open(MODEL, backend='onnxruntime', pad_value=0) as by_path:
        by_path_found = by_path(image)
    options = LabeledOptions(model_path=str(MODEL), backend='onnxruntime')
    with trt_ros.Pipeline.open(options, pad_value=0) as by_options:
        assert by_options.preprocess == by_path.preprocess
        assert by_options.preprocess.pad_value == 0
        frame = trt_ros.Frame.from_pixels(image)
        for found in (by_options(frame), by_options.submit(frame).result()):
            np.testing.assert_array_equal(found.xyxy, by_path_found.xyxy)
    with pytest.raises(ClosedError):
        by_options(image)
    with pytest.raises(ClosedError):
        by_options.submit(image)
    with pytest.raises(ClosedError):
        by_options.reset_state()


def test_wrong_options_and_images_are_refused(pipeline):
    for model in (None, b'model.onnx'):
        with pytest.raises(ParameterError, match=f'The model is of type {type(model).__name__}'):
            trt_ros.Pipeline.open(model)
    with pytest.raises(
        ParameterError,
        match=r"ModelOptions has no option 'precison'\.\nRemedy: Did you mean 'precision'",
    ):
        trt_ros.Pipeline.open(MODEL, precison='fp16')
    with pytest.raises(
        ParameterError, match=r"(?s)LabeledOptions has no option 'zzz'.*Use model_path"
    ):
        trt_ros.Pipeline.open(LabeledOptions(model_path=str(MODEL)), zzz=1)
    for run in (pipeline, pipeline.submit):
        with pytest.raises(
            ParameterError, match=r"Thresholds has no option 'scores'\.\n.*'score'"
        ):
            run(scene(), scores=0.5)
    for batch in (0, 2.5):
        with pytest.raises(ParameterError, match=rf'batch is {batch}\.\n.*from 1'):
            trt_ros.Pipeline.open(MODEL, batch=batch)
    for call, image, problem in (
        (pipeline, np.zeros((4, 4), np.uint8), 'does not match bgr8'),
        (pipeline, cv2.imread('/nowhere.png'), r'of type NoneType\.\nCause: cv2\.imread returns'),
        (pipeline.submit, 'nowhere.png', r'Cannot read nowhere\.png as a picture'),
        (pipeline.infer_all, [5], r'of type int\.\nRemedy: Pass an array'),
    ):
        with pytest.raises(BadFrameError, match=problem):
            call(image)
    for score in (-1, 50):
        with pytest.raises(ParameterError, match=rf'score is {score}\.\n.*Set it to 0 to 1'):
            pipeline(scene(), score=score)
    with pytest.raises(ParameterError, match=r'(?s)thresholds are 0\.5.*score=0\.5'):
        pipeline(scene(), 0.5)


def test_classes_are_chosen_by_name_in_every_call(pipeline):
    image = scene()
    every = pipeline(image)
    name = pipeline.class_names[int(every.labels[0])]
    some = trt_ros.Thresholds(classes=[name])
    wanted = every.scores[every.labels == every.labels[0]].tolist()
    assert 0 < len(wanted) < len(every)
    for found in (
        pipeline(image, some),
        pipeline.submit(image, some).result(),
        pipeline.infer_all([trt_ros.Frame.from_pixels(image)], some)[0],
    ):
        assert found.scores.tolist() == wanted
    left = pipeline(image, trt_ros.Thresholds(class_scores={name: 1.0}))
    assert len(left) == len(every) - len(wanted)
    with pytest.raises(ParameterError, match="classes contains the unknown class 'ghost'"):
        pipeline(image, trt_ros.Thresholds(classes=['ghost']))


def test_classes_are_looked_up_when_they_change():
    image, looked_up = scene(), []

    class Names(tuple):
        def __iter__(self):
            looked_up.append(self)
            return super().__iter__()

    with trt_ros.Pipeline.open(MODEL, backend='onnxruntime') as pipeline:
        first, second = np.unique(pipeline(image).labels)[:2].tolist()
        pipeline.class_names = Names(pipeline.class_names)
        classes = [first]
        thresholds = trt_ros.Thresholds(classes=classes)
        for _ in range(3):
            assert set(pipeline(image, thresholds).labels) == {first}
        assert len(looked_up) == 1
        classes[0] = second
        assert set(pipeline(image, thresholds).labels) == {second}
        scores = trt_ros.Thresholds(class_scores={first: 1.0})
        assert first not in pipeline(image, scores).labels
        assert len(looked_up) == 3
        classes.clear()
        assert {first, second} <= set(pipeline(image, thresholds).labels)
        classes.append(first)
        assert set(pipeline(image, thresholds).labels) == {first}


def test_images_come_as_pixels_paths_frames_and_lists(folder, pipeline):
    image, path = scene(), folder / 'picture.png'
    want = pipeline(image, score=0.5)
    found = [
        pipeline.infer(image, trt_ros.Thresholds(score=0.5)),
        pipeline(str(path), score=0.5),
        *pipeline([image, path, trt_ros.Frame.from_pixels(image)], score=0.5),
        *pipeline.infer_all((image,), trt_ros.Thresholds(score=0.5)),
        pipeline.submit(path, score=0.5).result(),
    ]
    assert len(found) == 7 and (want.scores >= 0.5).all()
    for each in found:
        np.testing.assert_array_equal(each.xyxy, want.xyxy)
        assert each.names == want.names and set(each.names) <= set(CLASSES)
    assert pipeline([]) == []


def test_options_recognize_the_families_of_every_task(tmp_path):
    options = LabeledOptions(model_path=str(MODEL), backend='onnxruntime', decoder='tensor')
    with trt_ros.Pipeline.open(options) as pipeline:
        assert type(pipeline(scene())) is trt_ros.Tensors


def test_pictures_videos_and_folders_are_read(folder, tmp_path):
    assert [image.shape for image in trt_ros.read_images(folder / 'picture.png')] == [
        (480, 640, 3)
    ]
    assert len(list(trt_ros.read_images(folder / 'video.mp4'))) == 3
    assert len(list(trt_ros.read_images(str(folder / 'pictures')))) == 3
    for name in ('picture.png', 'video.mp4', 'model.onnx'):
        shutil.copy(folder / name, tmp_path)
    assert len(list(trt_ros.read_images(tmp_path))) == 1  # Its other files are no pictures.
    with pytest.raises(BadFrameError, match='Cannot read'):
        next(trt_ros.read_images(folder / 'nowhere.png'))
    (tmp_path / 'picture.png').unlink()
    with pytest.raises(BadFrameError, match='has no picture'):
        next(trt_ros.read_images(tmp_path))
