"""Progress within phases, and the decision whether NMS is cut off."""

import json
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import pytest

from support.builds import build_here
from support.networks.nms import (
    CHOSEN,
    EFFICIENT,
    HEADS,
    PLUGIN,
    SUPPRESS,
    TWO_NMS,
    C,
    N,
    efficient,
    write_nms,
)
from trt_ros.engine.builder.child import Steps, cut_where_needed
from trt_ros.engine.builder.onnx_check import read_onnx
from trt_ros.engine.builder.onnx_cut_nms import UncuttableError
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.open import build_summary
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ModelError
from trt_ros.tensors import CUT_NMS
from trt_ros.trt import Library


def test_inner_phases_fill_their_share_of_the_outer_one():
    steps = Steps(build=(1, 4))
    assert steps.percent == 25.0
    steps['tactics'] = (5, 10)
    assert steps.percent == 25.0 + 12.5
    del steps['tactics']
    steps['build'] = (4, 4)
    assert steps.percent == 100.0
    steps['two'] = (3, 2)  # It never decreases, and ends at 100.
    assert steps.percent == 100.0
    del steps['build'], steps['two']
    assert steps.percent == 100.0


@pytest.mark.slow
def test_rtx_cuts_nms_automatically_and_records_it_in_sidecar(tmp_path, rtx):
    path = write_nms(tmp_path, CHOSEN, SUPPRESS)
    entry = EngineCache(tmp_path / 'cache').get_or_build(path, BuildOptions(), rtx)
    told = (
        'NonMaxSuppression (node chosen) is cut off and runs after the network: '
        'IoU 0.3, scores above 0.2, at most 9 per class'
    )
    assert entry.sidecar['cut_nms'] == told
    assert told in build_summary(entry.sidecar)
    assert [(one['name'], one['shape']) for one in entry.sidecar['outputs']] == [
        ('nms_boxes', [1, N, 4]),
        ('nms_scores', [1, N, C]),
    ]
    said = json.loads(entry.sidecar['metadata'][CUT_NMS])
    assert (said['operator'], said['per_class']) == ('NonMaxSuppression', 9)
    assert 'names' in entry.sidecar['metadata']
    asked = EngineCache(tmp_path / 'cache').get_or_build(path, BuildOptions(cut_nms=True), rtx)
    assert (asked.path, asked.build_reason) == (entry.path, '')


@pytest.mark.slow
def test_a_cut_network_is_converted_and_finds_its_weights_in_another_file(tmp_path, rtx):
    heads = HEADS.replace('(images, one_row)', '(seen, one_row)')
    tail = 'seen = Conv (images, w)'
    path = write_nms(tmp_path, CHOSEN, SUPPRESS, heads=tail + heads)
    model = onnx.load(path)
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.ones((3, 3, 1, 1), np.float32), 'w')
    )
    onnx.save(model, path, save_as_external_data=True, location='w.data', size_threshold=0)
    for precision, layers in (('auto', 'float32'), ('fp16', 'float16')):
        report, _ = build_here(path, rtx, precision=precision)
        assert layers in report['layer_precisions'] and report['cut_nms']


def library(*version, name='tensorrt'):
    return Library(name, SimpleNamespace(), version, '', None)


BATCHED = f'{PLUGIN} BatchedNMS_TRT <{{}}> (boxes, rows_of_scores)'.format(
    f'shareLocation = 1, backgroundLabelId = -1, numClasses = {C}, topK = 100, keepTopK = 20, '
    'scoreThreshold = 0.2, iouThreshold = 0.3, isNormalized = 0, clipBoxes = 0'
)
MMDEPLOY = BATCHED.replace('BatchedNMS_TRT', 'TRTBatchedNMS')


def cut_for(path, library, **options):
    return cut_where_needed(path, read_onnx(path)[0], BuildOptions(**options), library)


@pytest.mark.parametrize(
    ('outputs', 'tail', 'library', 'is_cut'),
    [
        (CHOSEN, SUPPRESS, library(10, 3), True),  # Its size depends on the image.
        (CHOSEN, SUPPRESS, library(11, 4), True),
        (EFFICIENT, efficient(), library(10, 3), False),
        (EFFICIENT, efficient(), library(11, 4), False),
        (EFFICIENT, efficient(), library(1, 5, name='tensorrt_rtx'), True),
        (EFFICIENT, BATCHED, library(10, 16), False),
        (EFFICIENT, BATCHED, library(11, 0), True),
        (EFFICIENT, BATCHED, library(1, 5, name='tensorrt_rtx'), True),
        (EFFICIENT, MMDEPLOY, library(10, 3), True),
    ],
)
def test_nms_unsupported_by_tensorrt_is_cut_automatically(
    tmp_path, outputs, tail, library, is_cut
):
    path = write_nms(tmp_path, outputs, tail)
    model, told = cut_for(path, library)
    assert (model is not None) == is_cut == ('is cut off and runs after the network' in told)
    assert cut_for(path, library, cut_nms=True)[0] is not None


def test_nms_of_a_plugin_library_or_in_the_middle_is_not_cut(tmp_path):
    path = write_nms(tmp_path, EFFICIENT, MMDEPLOY)
    assert cut_for(path, library(11, 0), plugins=('mmdeploy.so',)) == (None, '')
    path = write_nms(tmp_path, *TWO_NMS)
    model, told = cut_for(path, library(10, 3))
    assert model is None and told.startswith('NMS remains in the network. The NMS of ')
    with pytest.raises(UncuttableError, match='cannot be cut off'):
        cut_for(path, library(10, 3), cut_nms=True)


def test_layers_removed_in_tensorrt_11_are_refused_naming_last_release(tmp_path):
    outputs = EFFICIENT + f', float[1,{N},4] moved'
    path = write_nms(tmp_path, outputs, 'moved = Neg (boxes)' + BATCHED)
    with pytest.raises(
        ModelError,
        match=r'tensorrt 11\.4 does not support BatchedNMS_TRT\.(.|\n)*'
        'or use TensorRT 10, the last release',
    ):
        cut_for(path, library(11, 4))
