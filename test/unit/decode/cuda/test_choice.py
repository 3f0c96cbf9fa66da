"""Choice and arguments of GPU decoders; test/gpu compares their results."""

import ctypes
import re
from types import SimpleNamespace

import numpy as np
import pytest

from support.descriptions import head as open_as
from support.descriptions import specs
from trt_ros.cuda import kernels
from trt_ros.decode.cuda import boxes, decoder, dense, masks, vectors
from trt_ros.decode.cuda.choice import gpu_decoder
from trt_ros.decode.cuda.decoder import DATA_OFFSET, Addresses
from trt_ros.decode.cuda.dense import GpuArgmax, GpuDepth, GpuPicture
from trt_ros.errors import ScoreRangeError
from trt_ros.families.semantic import MaskHeads
from trt_ros.results.masks import Instances
from trt_ros.runtime.gpu import preprocess as graph_steps
from trt_ros.runtime.gpu.input_kinds import NumberedArgs
from trt_ros.runtime.gpu.staging import RequestArgs
from trt_ros.vision.letterbox import Letterbox

SEGMENTS = 'head (1, 116, 8400); prototypes (1, 32, 160, 160)'
QUERIES = 'logits (1, ?, ?); boxes (1, ?, 4)'
MASKS = 'dets (1, {}, 4); labels (1, {}, 3); masks (1, {}, 8, 8)'
BOX = Letterbox.fit((1918, 1080), (640, 640), 'letterbox')


def decoder_of(head, specs):
    return gpu_decoder(
        SimpleNamespace(head=head), specs, {spec.name: spec.shape for spec in specs}, BOX.input_hw
    )


def boxes_of(family, described, seen=None, **how):
    """Return the decoder of a family for a network, whose outputs are then `seen`."""
    head = open_as(family, described, hw=BOX.input_hw, **how)
    return decoder_of(head, specs(seen or described))


@pytest.mark.parametrize(
    'anchors, expected',
    [
        (8400, 'select rank mask reduce'),
        (25200, 'select cut rank mask reduce filter rest'),
        (200000, 'select narrow gather rank mask reduce filter rest'),
    ],
)
def test_more_candidates_than_are_sorted_at_once_take_more_kernels(anchors, expected):
    decoder = boxes_of('yolov8', f'head (1, 84, {anchors})')
    launches = decoder.launches(BOX, Addresses(lambda name: 4096, 1, 2, 3))
    names = [launch.function.partition('_')[0] for launch in launches]
    assert list(dict.fromkeys(names)) == expected.split()
    digits = [launch.argument.shift for launch in launches if launch.function == 'narrow']
    assert tuple(digits) in ((), boxes.SHIFTS)


def test_parts_of_the_scratch_memory_do_not_overlap():
    decoder = boxes_of('yolov8', 'head (1, 84, 25200)')
    args = decoder.launches(BOX, Addresses(lambda name: 4096, 1, 1024, 3))[0].argument
    sizes = {
        'counters': 64,
        'keys': 8 * 25200,
        'top': 8 * 10240,
        'sorted': 8 * 2 * 10240,
        'boxes_sorted': 16 * 2 * 10240,
        'kept': 4 * 10240,
        'mask': 8 * 10240 * 160,
    }
    end = 1024
    for name, nbytes in sizes.items():
        assert getattr(args, name) >= end
        end = getattr(args, name) + nbytes
    assert end <= 1024 + decoder.scratch_nbytes


def test_reads_concatenated_output_at_offsets():
    decoder = boxes_of('yolov5', 'head (1, 100, 8) float16')
    args = decoder.launches(BOX, Addresses(lambda name: 4096, 1, 2, 3))[0].argument
    level = args.levels[0]
    assert (level.boxes, level.objectness, level.scores) == (4096, 4096 + 8, 4096 + 10)
    assert (args.box_row, args.score_row, args.rows, args.classes) == (8, 8, 100, 3)


@pytest.mark.parametrize(
    'family, described, seen',
    [
        ('yolov8', 'head (1, 84, 8400)', 'head (1, 84, 8400) float64'),
        ('yolov8', 'head (1, 84, ?)', f'head (1, 84, {(1 << 24) + 1})'),
        ('rtdetr', QUERIES, 'logits (1, 9000, 2000); boxes (1, 9000, 4)'),
        ('rtdetr', QUERIES, 'logits (1, 9, 3) float16; boxes (1, 9, 4)'),
        ('rtdetr', QUERIES, 'logits (1, 9, 3); boxes (1, 8, 4)'),
        ('yolox', 'head (1, ?, 8)', 'head (1, 8401, 8)'),
        ('yolov10', 'head (1, ?, ?)', 'head (1, 300, 7)'),
        ('centernet', 'heat (1, 3, ?, ?); wh (1, 2, ?, ?)', 'heat (1, 3, 9, 9); wh (1, 2, 9, 8)'),
        ('detectnet_v2', 'a (1, 3, ?, ?); b (1, 12, ?, ?)', 'a (1, 3, 9, 9); b (1, 8, 9, 9)'),
        ('mediapipe_palm', 'a (1, ?, 18); b (1, ?, 1)', 'a (1, 9, 18); b (1, 9, 1)'),
        ('nanodet', 'head (1, ?, 35)', 'head (1, 8401, 35)'),
        ('mmdetection', 'a (1, ?, 5); b (1, ?) int32', 'a (1, 9, 5); b (1, 8) int32'),
        ('ppyoloe', 'head (?, ?)', 'head (9, 7)'),
        ('yolov7_pose', 'head (1, ?, 57)', 'head (1, 9, 17)'),
        ('boxes', 'boxes (1, ?, 4); scores (1, ?, 3)', 'boxes (1, 9, 4); scores (1, 8, 3)'),
        ('boxes', 'boxes (1, 9, 4); scores (1, 9); labels (1, 9) uint8', None),
        ('yolov8_pose', 'head (1, 56, ?)', 'head (1, 55, 8400)'),
        ('yolov8_pose', 'head (1, ?, 57)', 'head (1, 300, 56)'),
        ('rfdetr_seg', MASKS.format(*'???'), MASKS.format(9, 9, 8)),
        ('semantic', 'scores (1, ?, 8, 8)', 'scores (1, 0, 8, 8)'),
        ('semantic', 'classes (1, 8, 8) int64', None),
        ('classifier', 'scores (1, 3)', 'scores (1, 4)'),
        ('classifier', 'scores (1, 3) float64', None),
        ('depth', 'depth (1, 1, 8, 8)', 'depth (1, 2, 8, 8)'),
        ('image', 'y (1, 3, 8, 8)', 'y (1, 2, 8, 8)'),
        ('yolov8_seg', SEGMENTS, SEGMENTS.replace('32', '31')),
        ('yolov8_seg', SEGMENTS, f'{SEGMENTS} float16'),
        ('simcc', 'x (1, ?, 1280); y (1, ?, 1280)', 'x (1, 9, 1280); y (1, 8, 1280)'),
    ],
)
def test_outputs_without_kernel_are_decoded_on_cpu(family, described, seen):
    assert boxes_of(family, described, seen) is None


@pytest.mark.parametrize('score', [1.0, 315.0])
def test_gpu_scores_are_checked_like_cpu_scores(score):
    decoder = boxes_of('yolov8', 'head (1, 84, 8400)')
    memory = np.zeros(decoder.result_nbytes((7, 3)), np.uint8)
    memory[:4].view(np.int32)[0] = 2
    numbers = memory[16:].view(np.float32).reshape(6, -1)
    numbers[4, :3] = score, 0.5, np.nan  # Behind the second one is what was there before.
    if score <= 1:
        found, is_nonfinite = decoder.reader(memory, (7, 3))()
        assert (found.scores.tolist(), is_nonfinite) == ([1.0, 0.5], False)
    else:
        with pytest.raises(ScoreRangeError, match='a score of 315, outside 0 to 1'):
            decoder.reader(memory, (7, 3))()


@pytest.mark.parametrize('classes, dtype', [(255, np.uint8), (256, np.uint16)])
@pytest.mark.parametrize('channels_first', [True, False])
def test_class_mask_equals_cpu_result(classes, dtype, channels_first):
    shape = (1, classes, 40, 50) if channels_first else (1, 40, 50, classes)
    head = open_as('semantic', f'scores {shape}', hw=(320, 400))
    decoder = decoder_of(head, specs(f'scores {shape}'))
    assert isinstance(decoder, GpuArgmax)
    assert decoder.grid_hw == (40, 50)
    memory = np.zeros(decoder.result_nbytes((7, 3)), np.uint8)
    memory[:16].view(np.int32)[2] = 5
    lines = memory[DATA_OFFSET:].view(dtype).reshape(3, 8)
    lines[:] = np.arange(24).reshape(3, 8)
    mask, is_nonfinite = decoder.reader(memory, (7, 3))()
    lines[:] = 0  # The next frame's.
    assert (mask.labels.dtype, is_nonfinite) == (dtype, True)
    assert mask.labels.tolist() == np.arange(24).reshape(3, 8)[:, :7].tolist()


def test_confidence_that_nobody_asked_for_is_not_computed_and_masks_are_decoded_in_one_place():
    decoder = boxes_of('semantic', 'scores (1, 3, 8, 8)')
    launches = decoder.launches(BOX, Addresses(lambda name: 0, 0, 0, 0))
    assert [each.function for each in launches] == ['argmax_float32', 'finish']
    assert not launches[0].argument.confidence
    assert decoder.scratch_nbytes == 256
    assert two_masks('area (1, 3, 8, 8)', 'line (1, 8, 8) int64') is None


def two_masks(*described):
    heads = [open_as('semantic', each, hw=BOX.input_hw) for each in described]
    return decoder_of(MaskHeads.of(heads), specs('; '.join(described)))


def test_masks_of_several_outputs_are_decoded_side_by_side():
    decoder = two_masks('area (1, 3, 8, 8)', 'line (1, 2, 16, 16)')
    addresses = {'area': 1 << 16, 'line': 1 << 20}
    letterbox = Letterbox.fit((30, 20), (64, 64), 'stretch')
    start = 1024  # Header and 20 lines of 32 bytes, aligned.
    found = decoder.launches(letterbox, Addresses(addresses.get, 0, 4096, 8192))
    assert [each.function for each in found] == ['argmax_float32', 'finish'] * 2
    assert [
        (each.argument.cells, each.argument.counters, each.argument.result) for each in found[::2]
    ] == [(1 << 16, 4096, 8192), (1 << 20, 4096 + 256, 8192 + start)]
    assert decoder.scratch_nbytes == 2 * 256
    memory = np.zeros(decoder.result_nbytes((30, 20)), np.uint8)
    memory[DATA_OFFSET : DATA_OFFSET + 640] = 2
    memory[start + DATA_OFFSET : start + DATA_OFFSET + 640] = 1
    masks, is_nonfinite = decoder.reader(memory, (30, 20))()
    assert {name: np.unique(mask.labels).tolist() for name, mask in masks.items()} == {
        'area': [2],
        'line': [1],
    }
    assert not is_nonfinite
    memory[start : start + 16].view(np.int32)[2] = 1
    assert decoder.reader(memory, (30, 20))()[1]


@pytest.mark.parametrize(
    'family, shape, kind',
    [
        ('depth', '1, 70, 70', GpuDepth),
        ('depth', '1, 1, 70, 70', GpuDepth),
        ('depth', '1, 70, 70, 1', GpuDepth),
        ('classifier', '1, 1000', vectors.GpuClasses),
        ('classifier', '1, 1000, 1, 1', vectors.GpuClasses),
        ('image', '1, 3, 70, 70', GpuPicture),
    ],
)
def test_heads_beside_detection_have_a_kernel(family, shape, kind):
    assert type(boxes_of(family, f'head ({shape})')) is kind


@pytest.mark.parametrize(
    'described, dtype',
    [(SEGMENTS, np.uint8), ('head (1, 300, 38); prototypes (1, 32, 160, 160)', np.uint16)],
)
def test_painted_instances_are_read_behind_the_boxes(described, dtype):
    decoder = boxes_of('yolov8_seg', described)
    assert isinstance(decoder, masks.GpuInstances)
    memory = np.zeros(decoder.result_nbytes((30, 20)), np.uint8)
    letterbox = Letterbox.fit((30, 20), (640, 640), 'letterbox')
    launches = decoder.launches(letterbox, Addresses(lambda name: 0, 0, 0, 0))
    assert [launch.function for launch in launches[-3:]] == [
        'paint_float32',
        'keep_float32',
        'finish_masks',
    ]
    args = launches[-1].argument
    assert args.pitch == 32
    memory[:4].view(np.int32)[0] = 2
    corners = memory[16 : 16 + 32].view(np.float32)
    corners[:] = 2, 3, 12, 9, 0, 0, 30, 20
    memory[args.placement :][:32].view(np.float64)[:] = *letterbox.scale_xy, *letterbox.pad_xy
    prototypes = memory[args.kept_prototypes :][: 4 * 32 * 160 * 160].view(np.float32)
    prototypes[:] = 1
    coefficients = memory[16 + 24 * decoder.capacity :][: 4 * 64].view(np.float32)
    coefficients[:32], coefficients[32:] = 1, -1
    owners = memory[args.owners :][: 2 * 32 * 20].view(np.uint16).reshape(20, 32)
    owners[3:9, 2:12] = 1
    labels = memory[args.labels :][: np.dtype(dtype).itemsize * 640].view(dtype).reshape(20, 32)
    labels[3:9, 2:12] = 1
    found, is_nonfinite = decoder.reader(memory, (30, 20))()
    memory[:] = 0xFF  # The next frame's.
    assert not is_nonfinite
    assert found.classes.dtype == dtype
    assert [(mask.shape, mask.mean()) for mask in found.masks] == [((6, 10), 1), ((20, 30), 0)]
    reference = Instances(found.detections, tuple(found.masks), found.origins_xy, found.image_wh)
    for values in ([1, 2], [1, 1], [7, 9]):
        painted = found.paint(np.array(values, np.uint16))
        np.testing.assert_array_equal(painted, reference.paint(np.array(values, np.uint16)))


@pytest.mark.slow
@pytest.mark.parametrize(
    'source, structs',
    [
        ('preprocess', {'Preprocess': graph_steps.PreprocessArgs, 'Numbered': NumberedArgs}),
        (
            'decode',
            {
                'Request': RequestArgs,
                'Level': decoder.LevelArgs,
                'Head': decoder.HeadArgs,
                'Dense': dense.DenseArgs,
                'Masks': masks.MasksArgs,
                'Classes': vectors.ClassesArgs,
                'Points': vectors.PointsArgs,
                'Queries': dense.QueriesArgs,
            },
        ),
    ],
)
def test_structs_have_the_layout_that_the_kernels_compile_to(source, structs):
    pytest.importorskip('cuda.bindings.nvrtc')
    source_text = kernels.source_of(source, frozenset())
    sizes = []
    for name, struct in structs.items():
        text = re.sub('//.*', '', source_text)
        body = re.search(rf'struct {name} {{(.*?)}};', text, re.DOTALL)[1]
        declared = [
            re.search(r'(\w+)(\[.*?\])*\s*$', part)[1]
            for statement in body.split(';')[:-1]
            for part in statement.split(',')
        ]
        assert declared == [field for field, _ in struct._fields_]
        sizes.append(f'static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "all");')
        sizes += [
            f'static_assert(sizeof({name}::{field}) == {ctypes.sizeof(kind)}, "{name}::{field}");'
            for field, kind in struct._fields_
        ]
    kernels.compile_source('\n'.join([source_text, *sizes]), 'sm_90')
