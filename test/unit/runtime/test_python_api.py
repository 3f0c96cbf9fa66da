"""The Python API: what `trt_ros` exports, and the example of docs/python_api.md as printed."""

from __future__ import annotations

from pathlib import Path
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import trt_ros
from trt_ros.demo.evaluate import MODEL
from trt_ros.demo.scene import CLASSES, held_out
from trt_ros.errors import BadFrameError, ClosedError, GpuFailedError, ParameterError
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import PendingResult
from trt_ros.runtime.runner import PendingResults

cv2 = pytest.importorskip('cv2')
pytest.importorskip('onnxruntime')

CHECKOUT = Path(__file__).parents[3]
PAGE = CHECKOUT / 'docs/python_api.md'


def scene():
    return next(held_out(1))[0]


def test_the_example_of_the_docs_runs(tmp_path):
    (code,) = re.findall(r'```python\n(.*?)```', PAGE.read_text(), flags=re.DOTALL)
    assert len(code.strip().splitlines()) <= 11  # Ten, and an empty one.
    shutil.copy(MODEL, tmp_path / 'model.onnx')
    cv2.imwrite(str(tmp_path / 'picture.png'), scene())
    printed = subprocess.run(
        [sys.executable, '-c', code],
        cwd=tmp_path,
        env={'PYTHONPATH': str(CHECKOUT), 'XDG_CACHE_HOME': str(tmp_path), 'PATH': ''},
        check=True,
        text=True,
        capture_output=True,
    ).stdout.splitlines()
    assert len(printed) > 1
    assert {line.split()[0] for line in printed[:-1]} <= set(CLASSES)
    first, second = printed[-1].split()
    assert first == second != '0'


def test_the_package_exports_three_names_and_imports_them_late():
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
    assert {'Frame', 'Pipeline', 'Thresholds'} <= set(dir(trt_ros))
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


def test_wrong_options_and_images_are_refused():
    with pytest.raises(
        ParameterError,
        match=r"ModelOptions has no option 'precison'\.\nRemedy: Did you mean precision",
    ):
        trt_ros.Pipeline.open(MODEL, precison='fp16')
    with pytest.raises(
        ParameterError, match=r"(?s)LabeledOptions has no option 'zzz'.*Use model_path"
    ):
        trt_ros.Pipeline.open(LabeledOptions(model_path=str(MODEL)), zzz=1)
    with pytest.raises(ParameterError, match='precision is'):
        trt_ros.Pipeline.open(MODEL, precision='fp8')
    with pytest.raises(ParameterError, match='mean is'):
        trt_ros.Pipeline.open(MODEL, mean=[1.0, 2.0])
    with trt_ros.Pipeline.open(MODEL, backend='onnxruntime') as pipeline:
        with pytest.raises(BadFrameError):
            pipeline(np.zeros((4, 4), np.uint8))
        with pytest.raises(BadFrameError, match=r'of type NoneType\.\nCause: cv2\.imread returns'):
            pipeline(cv2.imread('/nowhere.png'))
        with pytest.raises(BadFrameError, match=r'of type str\.\nRemedy: Pass an array'):
            pipeline.submit('picture.png')


def test_classes_are_chosen_by_name_in_every_call():
    image = scene()
    with trt_ros.Pipeline.open(MODEL, backend='onnxruntime') as pipeline:
        every = pipeline(image)
        name = pipeline.class_names[int(every.labels[0])]
        some = trt_ros.Thresholds(classes=[name])
        wanted = every.scores[every.labels == every.labels[0]].tolist()
        frame = trt_ros.Frame.from_pixels(image)
        assert 0 < len(wanted) < len(every)
        for found in (
            pipeline(image, some),
            pipeline.submit(image, some).result(),
            pipeline.infer_all([frame], some)[0],
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


def test_a_pending_result_is_collected_once():
    class Pending(PendingResults):
        def __init__(self, answers):
            self.answers = answers

        def results(self):
            answer = self.answers.pop()
            if isinstance(answer, Exception):
                raise answer
            return [answer]

    found = PendingResult(Pending([5]))
    assert (found.result(), found.result()) == (5, 5)
    failed = PendingResult(Pending([GpuFailedError('lost')]))
    for _ in range(2):
        with pytest.raises(GpuFailedError, match='lost'):
            failed.result()
