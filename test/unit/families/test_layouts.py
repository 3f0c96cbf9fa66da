"""Networks made from the layouts of every family are read as those."""

from dataclasses import replace
import re
from types import SimpleNamespace

import numpy as np
import pytest

from support.descriptions import FAMILIES
from trt_ros.decode.boxes import BoxHead
from trt_ros.decode.cuda.choice import gpu_decoder
from trt_ros.decode.scores import Values
from trt_ros.errors import ScoreRangeError, TensorMismatchError
from trt_ros.families.family import NetworkDescription
from trt_ros.families.layout import BoxLayout, linear, sizes_of
from trt_ros.families.match import unify
from trt_ros.families.places import locate
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (192, 256)
SYMBOLS = {'C': 3, 'D': 8, 'K': 17, 'M': 32, 'Q': 20, 'F': 512, 'S': 2, 'G': 50, 'L': 40, 'T': 16}
ROWS = 60
LAYOUTS = [
    pytest.param(layout, id=f'{family.name}-{index}')
    for family in FAMILIES.values()
    for index, layout in enumerate(
        [*family.layouts, *(layout for layout, _ in family.near_misses)]
    )
]
BOXES = [each for each in LAYOUTS if isinstance(each.values[0], BoxLayout)]


def size_of(text):
    factors, constant = linear(text)
    return constant + sum(times * SYMBOLS[name] for name, times in factors.items())


def shape_of(layout, out, level):
    """Return the shape of an output for images of HW."""
    if 'count' in out.fields:
        return (1,)
    grids = layout.rows.grids(HW, layout.rows.strides[0]) if layout.rows.strides else ()
    grid = grids[level or 0] if grids else None
    rows = grid.anchors if level is not None else sum(each.anchors for each in grids) or ROWS
    known = {'B': 1, 'N': rows, 'V': size_of(out.size), 'h': HW[0] // 4, 'w': HW[1] // 4}
    height, width = grid.shape if grid else (HW[0] // 4, HW[1] // 4)
    known |= {'H': height, 'W': width, 'A': grid.per_cell if grid else 1}
    return tuple(
        known[axis] if axis in known else size_of(sizes_of(axis, HW)[0])
        for axis in out.axes.split()
    )


def outputs_of(layout):
    """Make the outputs of a layout, the finest stride first."""
    levels = range(len(layout.rows.strides[0])) if layout.rows.strides else ()
    for index, out in enumerate(layout.outputs):
        name = re.sub(r'\(\?i\)|\.\*|[^\w|]', '', '|'.join(out.names)).split('|')[0]
        name = name or f'{"num" if "count" in out.fields else next(iter(out.fields))}_{index}'
        for level in levels if out.per_level else (None,):
            yield TensorSpec(
                name if level is None else f'{name}_{level}',
                shape_of(layout, out, level),
                'float32' if out.is_float is not False else 'int64',
                'output',
            )


def read_outputs(layout, outputs):
    return unify(layout, NetworkDescription((), tuple(outputs), {}, HW, SYMBOLS['C']))


def read(layout):
    outputs = tuple(outputs_of(layout))
    return read_outputs(layout, outputs), outputs


def read_open(layout):
    """Read outputs of three axes and more of which only the batch size is known."""
    outputs = tuple(
        replace(spec, shape=(1, *[-1] * (len(spec.shape) - 1))) if len(spec.shape) > 2 else spec
        for spec in outputs_of(layout)
    )
    return unify(layout, NetworkDescription((), outputs, {}, HW))


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_network_made_from_a_layout_is_read_as_it(layout):
    reading, outputs = read(layout)
    assert reading is not None
    assert [part.spec for part in reading.parts] == list(outputs)
    assert dict(reading.symbols).items() <= SYMBOLS.items()
    for missing in outputs:
        assert read_outputs(layout, [spec for spec in outputs if spec is not missing]) is None


@pytest.mark.parametrize('layout', BOXES)
def test_its_boxes_are_placed_and_decoded_on_both_devices(layout):
    reading, outputs = read(layout)
    shapes = {spec.name: spec.shape for spec in outputs}
    places = locate(reading, shapes, HW)
    assert places.classes == (reading.class_count or 1)
    head = BoxHead(reading, '')
    on_gpu = gpu_decoder(SimpleNamespace(head=head), outputs, shapes, HW)
    assert on_gpu is not None
    zeros = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in outputs}
    letterbox = Letterbox.fit(HW[::-1], HW, 'stretch')
    assert len(head(zeros, letterbox, Thresholds(score=0.9))) == 0


def found_with(layout, role, score):
    """Decode one object in every row, of which the values of this role are `score`."""
    reading, outputs = read(layout)
    arrays = {spec.name: np.ones(spec.shape, spec.dtype) for spec in outputs}
    values = Values(arrays, reading)
    places = locate(reading, {name: each.shape for name, each in arrays.items()}, HW)
    is_small = layout.coding.is_normalized or layout.is_anchored
    for level in places.levels:
        for each, place in level.slices.items():
            given = {role: score, 'box': np.array([0.2, 0.2, 0.6, 0.6]) * (1 if is_small else 100)}
            if each in given:
                values.view(place, level.rows)[:] = np.resize(given[each], place.values)
    for part in reading.parts:
        if 'count' in part.out.fields:
            arrays[part.spec.name][:] = ROWS
    letterbox = Letterbox.fit(HW[::-1], HW, 'stretch')
    found = BoxHead(reading, '')(arrays, letterbox, Thresholds(score=0.25, iou=0.5))
    return getattr(found, 'detections', found).scores


SCORES = [
    pytest.param(each.values[0], role, id=f'{each.id}-{role}')
    for each in BOXES
    for role in ('scores', 'objectness')
    if role in each.values[0].roles and each.values[0].activation in ('none', 'maybe_sigmoid')
]


@pytest.mark.slow
@pytest.mark.parametrize(('layout', 'role'), SCORES)
def test_scores_are_0_to_1_or_an_error(layout, role):
    """Logits are mostly below 0: so an export without sigmoid is found before it seems to work."""
    for score in (1.0, 1.0005):  # Rounding.
        found = found_with(layout, role, score)
        assert 0.9 < found.max(initial=0) <= 1
    wrong = [315.0, 1.01, -4.0]
    if role == 'objectness' and layout.limits_objectness:
        wrong = []
    elif 'label' in layout.roles or layout.activation == 'maybe_sigmoid':
        wrong.pop()  # Unused rows, or logits.
        assert found_with(layout, role, -4.0).size == 0
    for score in wrong:
        with pytest.raises(
            ScoreRangeError, match=f'a score of {score:g}, outside 0 to 1'
        ) as error:
            found_with(layout, role, score)
        assert 'Set `decoder`' in error.value.remedy
    for score in (np.nan, np.inf, -np.inf):
        assert found_with(layout, role, score).size == 0


def decides(layout, out, axis):
    """Return whether the size of an axis is fixed, or equal to that of another output."""
    rows = [each for each in layout.outputs if 'N' in each.axes.split()]
    is_open = axis == 'N' and not (layout.is_anchored or out.per_level or len(rows) > 1)
    return axis not in 'hw' and not is_open


@pytest.mark.slow
@pytest.mark.parametrize('layout', BOXES)
def test_outputs_of_other_shapes_are_refused(layout):
    reading, outputs = read(layout)
    zeros = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in outputs}
    head, letterbox = BoxHead(reading, 'Export it again.'), Letterbox.fit(HW[::-1], HW, 'stretch')
    for part in reading.parts:
        name, shape = part.spec.name, part.spec.shape
        with pytest.raises(TensorMismatchError, match=f'{name!r} does not exist'):
            head({key: zeros[key] for key in zeros if key != name}, letterbox, Thresholds())
        if 'count' in part.out.fields:
            continue
        axes, others = part.out.axes.split(), {(*shape, 1)}
        if 'B' in axes:
            others.add(shape[1:])
        if axes[-2:] == ['H', 'W']:
            others.add((*shape[:-2], *shape[:-3:-1]))  # As many cells, of another grid.
        for index, axis in enumerate(axes):
            if decides(layout, part.out, axis):
                others |= {
                    (*shape[:index], shape[index] + more, *shape[index + 1 :]) for more in (-1, 1)
                }
        for other in others:
            with pytest.raises(
                TensorMismatchError, match=f'got .*{re.escape(f"{name} {other}")}'
            ) as error:
                head({**zeros, name: np.zeros(other)}, letterbox, Thresholds())
            assert error.value.remedy == 'Export it again.'
            seen = [replace(each, shape=other) if each is part.spec else each for each in outputs]
            assert read_outputs(layout, seen) is None


@pytest.mark.parametrize('layout', [each for each in BOXES if read_open(each.values[0])])
def test_arrays_without_classes_or_of_two_images_are_refused_where_sizes_are_open(layout):
    head, letterbox = BoxHead(read_open(layout), ''), Letterbox.fit(HW[::-1], HW, 'stretch')
    outputs = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in outputs_of(layout)}
    for part in head.reading.parts:
        axes, shape = part.out.axes.split(), outputs[part.spec.name].shape
        others = [(2, *shape[1:]), shape[1:]] * ('B' in axes)
        factors, _ = linear(part.out.size)
        if 'V' in axes and 'C' in factors:
            size = size_of(part.out.size) - factors['C'] * SYMBOLS['C']
            others.append(tuple(size if axis == 'V' else n for axis, n in zip(axes, shape)))
        for other in others:
            with pytest.raises(TensorMismatchError, match='The outputs do not fit the decoder'):
                head({**outputs, part.spec.name: np.zeros(other)}, letterbox, Thresholds())
