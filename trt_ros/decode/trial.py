"""Trial runs of a network on two pictures: evidence in the values of its outputs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trt_ros.decode.boxes import BoxHead, Candidates
from trt_ros.decode.scores import Values
from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import Family, Opinion
from trt_ros.families.layout import BoxLayout
from trt_ros.families.match import Reading
from trt_ros.families.vectors import LabelsHead
from trt_ros.tensors import Arrays
from trt_ros.vision.scores import as_float32, check_range

MIN_VALUES = 8  # Fewer boxes, or values of a vector, may be anything by chance.
MAX_BOXES = 300  # Per picture.
MAX_SHARE = 0.5  # Of inverted boxes, or of scores near 1, in outputs before NMS.
NEARLY_ALL = 0.95  # Share of boxes of no pixel, or far outside.
ROUNDING = 0.01  # Of sums in float16.
BEYOND = 64  # Levels of an image, of 255, beyond which another range is meant.
ALIKE = 0.5  # Correlation of an image with the one that it was made of.
STEP = 4  # Every fourth row and column of a mask is looked at.


def pictures(input_hw: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return a gray picture, and one of colored blocks with noise: (h, w, 3) uint8 each."""
    height, width = input_hw
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (9, 16, 3))
    rows, columns = (np.arange(size) * count // size for size, count in zip(input_hw, (9, 16)))
    noise = rng.integers(-20, 21, (height, width, 1))
    structured = np.clip(blocks[rows][:, columns] + noise, 0, 255).astype(np.uint8)
    return np.full((height, width, 3), 114, np.uint8), structured


class Trial:
    """Evidence about readings of a network by its outputs, as `run` returns, for `pictures`."""

    def __init__(
        self, run: Callable[[Family[Any]], Sequence[Arrays]], input_hw: tuple[int, int]
    ) -> None:
        self._run, self._input_hw = run, input_hw
        self._found: dict[str, Sequence[Arrays]] = {}
        self._opinions: dict[Any, Opinion] = {}

    def __call__(self, family: Family[Any], reading: Reading) -> Opinion:
        """Return whether the outputs are possible for a reading, with what was seen."""
        key = (family.name, reading, reading.network.class_count)
        if key not in self._opinions:
            self._opinions[key] = self._judge(family, reading)
        return self._opinions[key]

    def _judge(self, family: Family[Any], reading: Reading) -> Opinion:
        if not reading.parts or reading.layout.is_cut:
            return Opinion(None)
        trained = repr((family.preprocess, family.constants))
        if trained not in self._found:
            self._found[trained] = self._run(family)
        found = self._found[trained]
        if not found:
            return Opinion(None)
        try:
            if family.task == 'image':
                return _of_image(family, reading, found, self._input_hw)
            holds, text = judge(family, reading, found, self._input_hw)
        except TensorMismatchError as error:
            holds, text = False, error.problem.rstrip('.')
        names = [part.spec.name for part in reading.parts]
        if all(np.array_equal(found[0][name], other[name]) for other in found for name in names):
            text = ', '.join(filter(None, (text, 'equal for two pictures')))
            holds = holds and None
        kind = {True: 'possible results in a ', False: 'impossible results in a ', None: ''}[holds]
        return Opinion(holds, f'{kind}trial run: {text}' if text else '')


def judge(
    family: Family[Any], reading: Reading, found: Sequence[Arrays], input_hw: tuple[int, int]
) -> Opinion:
    """Return whether outputs of the pictures are possible for a reading, with what was seen."""
    if isinstance(reading.layout, BoxLayout):
        return _of_boxes(reading, found, input_hw)
    axes, name = reading.parts[0].out.axes.split(), reading.parts[0].spec.name
    arrays = [as_float32(np.asarray(each[name])) for each in found]
    if not arrays[0].size or any(each.shape != arrays[0].shape for each in arrays):
        return Opinion(None)
    values = np.concatenate(arrays)
    if family.head is LabelsHead:
        check_range(values)
        return Opinion(None)
    if family.task in ('classify', 'embed') and len(reading.parts) == 1:
        return _of_vector(family.task, values.reshape(len(found), -1), reading)
    if axes[-2:] == ['h', 'w'] or axes[1:3] == ['h', 'w']:
        cells = values if axes[-1] == 'w' else np.moveaxis(values, -1, 1)
        return _of_dense(reading, cells[..., ::STEP, ::STEP])
    return Opinion(None)


def _of_image(
    family: Family[Any], reading: Reading, found: Sequence[Arrays], input_hw: tuple[int, int]
) -> Opinion:
    """Judge an image by its levels, and by its likeness to the one that it was made of."""
    assert family.head is not None
    head, picture = family.head(reading, ''), pictures(input_hw)[-1]
    with np.errstate(over='ignore', invalid='ignore'):
        cells = as_float32(head.cells(found[-1], input_hw)) * head.gain + head.offset
    factor = cells.shape[1] // len(picture)
    shown = cells[:, ::factor, ::factor][::-1].transpose(1, 2, 0)  # As the picture, BGR.
    if not np.isfinite(shown).all():
        return Opinion(False, 'an image with NaN or infinite values')
    low, high = np.percentile(shown, (1, 99))
    likeness = float(np.corrcoef(shown.ravel(), picture.ravel())[0, 1]) if high > low else 0.0
    wrong = (
        low < -BEYOND
        or high > 255 + BEYOND
        or high - low < BEYOND
        or low >= head.offset > 0  # A network of signed values returns none below 0.
        or likeness < ALIKE
    )
    levels = f'an image of levels {low:.0f} to {high:.0f} of 255'
    return Opinion(not wrong, f'{levels}, a correlation of {likeness:.2f} with its source')


def _of_boxes(
    reading: Reading[BoxLayout], found: Sequence[Arrays], input_hw: tuple[int, int]
) -> Opinion:
    head = BoxHead(reading, '')
    each = [head.all_boxes(outputs, input_hw) for outputs in found]
    scores_problem = _scores_problem(head, found, input_hw)
    boxes, scores = map(np.concatenate, zip(*map(_best, each)))
    low, high = boxes[:, :2], boxes[:, 2:]
    if reading.layout.coding.form == 'rotated':
        low, high = low - high / 2, low + high / 2
    size = np.array(input_hw[::-1], np.float32)
    used = (low != high).any(axis=1)  # Equal corners fill the rows that NMS left unused.
    low, high, scores = low[used], high[used], scores[used]
    if len(scores) < MIN_VALUES:
        return Opinion(None, f'{len(scores)} boxes')
    is_normalized = reading.layout.coding.is_normalized
    inverted = (high < low - 0.5).any(axis=1).mean()
    tiny = (abs(high - low) <= 1).all(axis=1).mean()
    outside = ((low < -2 * size) | (high > 3 * size)).any(axis=1).mean()
    whole = ((low < 0.02 * size) & (high > 0.98 * size)).all(axis=1).mean()
    fractions = (np.concatenate([candidates.labels for candidates in each]) % 1 != 0).mean()
    text = f'boxes with scores {scores.min():.2g} to {scores.max():.2g}'
    wrong = {
        f'{inverted:.1%} of the boxes inverted': inverted > MAX_SHARE,
        f'{tiny:.1%} of the boxes smaller than a pixel': tiny > NEARLY_ALL and not is_normalized,
        f'{outside:.1%} of the boxes far outside of the image': outside > NEARLY_ALL,
        f'{whole:.1%} of the boxes as large as the image': whole > NEARLY_ALL,
        f'{fractions:.1%} of the classes no whole numbers': fractions > 0,
        _extras_problem(reading, each): True,
        scores_problem: True,
        _sum_problem(reading, found): True,
    }
    if reading.layout.uses_nms:
        saturated = (np.concatenate([candidates.scores for candidates in each]) > 0.99).mean()
        wrong[f'{saturated:.1%} of the scores above 0.99'] = saturated > MAX_SHARE
    seen = [problem for problem, is_wrong in wrong.items() if problem and is_wrong]
    if seen:
        return Opinion(False, f'{text}, {", ".join(seen)}')
    if np.ptp(scores) == 0 or not np.ptp(low, axis=0).any():
        return Opinion(None, f'{text}, all equal')
    return Opinion(True, f'{text}, {inverted:.1%} of the boxes inverted')


def _scores_problem(head: BoxHead, found: Sequence[Arrays], input_hw: tuple[int, int]) -> str:
    """Return what all scores of rows say, not only the best of each; or raise ScoreRangeError."""
    activation = head.layout.activation
    if 'label' in head.layout.roles:  # Unused rows have any.
        return ''
    values = np.concatenate(
        [
            as_float32(Values(outputs, head.reading).view(level.slices['scores'], level.rows))
            for outputs in found
            for level in head.resolve(outputs, input_hw).levels
        ]
    )
    if activation == 'none' and head.layout.select == 'best':
        check_range(values)
    low, high = np.min(values, initial=1), np.max(values, initial=0)
    if activation in ('sigmoid', 'softmax') and 0 <= low < high <= 1:
        return f'scores of {low:.2g} to {high:.2g}, which have had their {activation}'
    return ''


def _extras_problem(reading: Reading[BoxLayout], found: Sequence[Candidates]) -> str:
    """Return what further values of boxes, in radians or pixels, say against these; or ''."""
    layout, values = reading.layout, np.concatenate([candidates.extras for candidates in found])
    if layout.extras == 'keypoints' and reading.values_per_keypoint == 3:
        check_range(values[:, 2::3], is_padded=not layout.uses_nms)
    values = values[np.isfinite(values)]
    if layout.extras not in ('angle', 'keypoints') or not values.size:
        return ''
    low, high = values.min(), values.max()
    if layout.extras == 'angle' and max(-low, high) > np.pi:
        return f'angles of {low:.2g} to {high:.2g}, which are no radians'
    limit = ROUNDING if layout.extras == 'angle' else 1
    if (abs(values) <= limit).mean() > NEARLY_ALL:
        return f'{layout.extras} of {low:.2g} to {high:.2g}, as class scores'
    return ''


def _best(found: Candidates) -> tuple[np.ndarray, np.ndarray]:
    usable = np.flatnonzero(np.isfinite(found.boxes).all(axis=1))
    best = usable[np.argsort(-found.scores[usable], kind='stable')[:MAX_BOXES]]
    return found.boxes[best], found.scores[best]


def _sum_problem(reading: Reading[BoxLayout], found: Sequence[Arrays]) -> str:
    """Return what the sums of class scores say against boxes of one score per class; or ''."""
    if reading.layout.activation != 'none' or reading.layout.select != 'each':
        return ''
    for part in reading.parts:
        roles = set(part.out.fields)
        if 'scores' in roles and roles <= {'background', 'scores'} and part.spec.shape[-1] > 1:
            values = [as_float32(np.asarray(outputs[part.spec.name])) for outputs in found]
            has_sums = all(_sums_to_one(each, -1) for each in values)
            if has_sums and 'background' not in roles:
                return 'the scores of each box sum to 1, as with one for the background'
            if not has_sums and 'background' in roles:
                return 'the scores of a box and the background do not sum to 1'
    return ''


def _of_vector(task: str, vectors: np.ndarray, reading: Reading) -> Opinion:
    """Judge a vector that is class scores or an embedding; `vectors`: (P, N)."""
    count = vectors.shape[1]
    text = f'{count} values, {vectors.min():.2g} to {vectors.max():.2g}'
    if count > 1 and _sums_to_one(vectors, 1):
        return Opinion(task == 'classify', f'{text}, which sum to 1')
    if vectors.size < MIN_VALUES:
        return Opinion(None, text)
    if count >= MIN_VALUES and (abs(np.linalg.norm(vectors, axis=1) - 1) < ROUNDING).all():
        return Opinion(task == 'embed', f'{text}, of a norm of 1')
    if task == 'classify' and 0 <= vectors.min() < vectors.max() <= 1:
        kind = 'independent attributes, for `decoder` multi_label'
        if not reading.network.class_count:
            kind = f'keypoints, or {kind}'
        return Opinion(False, f'{text}, which do not sum to 1, such as {kind}')
    return Opinion(None, text)


def _of_dense(reading: Reading, cells: np.ndarray) -> Opinion:
    """Judge class scores, class indices or depth per cell: (P, C, h, w) or (P, h, w)."""
    text = f'values {cells.min():.2g} to {cells.max():.2g}'
    if 'classes' in reading.layout.roles:
        return Opinion(None, f'{len(np.unique(cells))} classes')
    if cells.ndim == 3 or cells.shape[1] < 2:
        return Opinion(None, text)
    count = cells.shape[1]
    if _sums_to_one(cells, 1):
        return Opinion(True, f'{text}, the {count} channels sum to 1')
    first = cells[:, 0]
    if count > 6 and first.min() >= 0 and first.max() <= 1 and _sums_to_one(cells[:, 5:], 1):
        return Opinion(
            False, f'{text}, channels 6 to {count} sum to 1, as in undecoded boxes with classes'
        )
    return Opinion(None, f'{text}, {len(np.unique(cells.argmax(axis=1)))} of {count} classes')


def _sums_to_one(values: np.ndarray, axis: int) -> bool:
    """Return whether values along an axis are not negative and sum to 1."""
    return bool(
        values.size
        and values.min() >= 0
        and (abs(values.sum(axis=axis) - 1) < ROUNDING).mean() > NEARLY_ALL
    )
